"""The text form: `parse_text` reads what `text` writes."""

import pytest

from derive.expr import text
from derive.normal import to_form
from derive.parsing import ParseError
from derive.textform import parse_text

READS = [
    "2*L*log(d**4*d_ff*m/h) + log(B*m)",
    "Sum(2*(S + t), (t, 1, T - 1))",
    "Max(d, -h) + Min(d, 2*h)",
    "C_f_tok(pi) + B*M_KV",
    "O(d**(-2))",
    "ceil_log(d)",
    "-d**2 - (d - h)",
    "1/2*d/h/m",
    "d/(h*m)",
    "params(ref)",
    "(d + h)**2*(m/d)",
]

REFUSES = [
    ("(d", r"expected `\)` after"),
    ("d)", "closes no bracket"),
    ("d d", "unexpected `d` at position 3"),
    ("q", "unknown symbol q at position 1"),
    ("foo(d)", "is not a function"),
    ("log(d, h)", "is not a function"),
    ("Sum(d)", "is not a function"),
    ("C_f_tok(q)", "q at position 9 .* is not a model"),
    ("d**-2", "unexpected `-` at position 4"),
    ("d**1000", "above the limit"),
    ("2**3**4", "unexpected"),
    ("__import__('os')", "unexpected `_` at position 1"),
    ("d;h", "unexpected `;` at position 2"),
]


@pytest.mark.parametrize("written", READS)
def test_round_trip(written):
    assert text(parse_text(written)) == written
    assert parse_text(text(parse_text(written))) == parse_text(written)


@pytest.mark.parametrize(("written", "message"), REFUSES)
def test_refuses_in_one_sentence(written, message):
    with pytest.raises(ParseError, match=message) as caught:
        parse_text(written)
    assert "\n" not in str(caught.value)


def test_division_is_left_to_right():
    assert to_form(parse_text("d/h*m")) == to_form(parse_text("d*m/h"))
    assert to_form(parse_text("d/(h*m)")) != to_form(parse_text("d/h*m"))


def test_a_long_product_does_not_exhaust_the_stack():
    assert to_form(parse_text("*".join(["d"] * 5000))).text == "d**5000"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("O(d)", "bound"),
        ("C_f_tok(pi)", "opaque"),
        ("Sum(t, (t, 1, T))", "sums over an index"),
        ("Min(d, h)", "minima"),
        ("d/(S + T)", "cannot divide"),
        ("log(Max(d, h))", "maximum"),
        ("Max(d, h)*Max(d, m)", "two maxima"),
        ("(d - h)*Max(d, m)", "may be negative"),
        ("log(d - d)", "log of 0"),
        ("((2**64)**64)**64", "too large"),
        ("*".join(f"({a} + {b})" for a in "BSTmLd" for b in "hVEK"), "more than"),
    ],
)
def test_outside_the_normal_form(written, message):
    with pytest.raises(ValueError, match=message):
        to_form(parse_text(written))
