"""Sums over an index: closed forms against plain addition, bounds of sums of logs, and what is proved of them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derive.asymptotics import Domain, Proved, Refuted, at_most, equal, order
from derive.asymptotics.checker import Reader, Rejected, check_certificate, same_text, value_at
from derive.expr import Sum
from derive.forms import Form, Max
from derive.normal import to_form
from derive.sums import bounds_of, closed_form, primitive, sizes_of, without_sums
from derive.textform import parse_text

LOGS = "Sum(log(S + t), (t, 1, T - 1))"
TWO = Domain({}, {"T": 2})
ANY = Domain()

SUMMANDS = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(0, 4), st.sampled_from(["1", "S", "B*d", "log(d)", "S**2/d"])), max_size=4
)


def form(text: str) -> Form:
    value = to_form(without_sums(parse_text(text)))
    assert isinstance(value, Form)
    return value


@given(SUMMANDS, st.integers(1, 3), st.integers(0, 6), st.sampled_from([1, 2, 8]), st.sampled_from([1, 4, 16]))
def test_the_closed_form_is_what_adding_up_gives(terms, low, count, big, size):
    body = " + ".join(f"({c})*t**{k}*{front}" for c, k, front in terms) or "0"
    e = parse_text(f"Sum({body}, (t, {low}, T))")
    assert isinstance(e, Sum)
    sizes = {"S": 3, "B": big, "d": size}
    if low > 2:
        with pytest.raises(ValueError, match="below the first"):
            closed_form(e)
        return
    closed = closed_form(e)
    top = low + count - 1
    inner = to_form(parse_text(body))
    total = sum((inner.evaluate({**sizes, "t": t}) for t in range(low, top + 1)), Fraction(0))
    if top >= 1:
        assert closed.evaluate({**sizes, "T": top}) == total
    checked = Reader({}).single(f"Sum({body}, (t, {low}, T))")
    if top >= 1:
        assert value_at(checked, {**sizes, "T": top}, {})[0] == total


@given(SUMMANDS)
def test_the_primitive_telescopes(terms):
    body = " + ".join(f"({c})*t**{k}*{front}" for c, k, front in terms) or "0"
    inner = form(body)
    big = primitive(inner, "t")
    assert big.substitute({"t": Form.atom("t") + 1}) - big == inner
    assert all(dict(m).get("t", 0) > 0 for m in big.terms)  # so it is 0 at 0


def test_nested_sums_have_closed_forms():
    assert form("Sum(Sum(S + i, (i, 1, t)), (t, 1, T))") == form("S*T*(T + 1)/2 + T*(T + 1)*(T + 2)/6")


def test_a_closed_form_is_certified_against_the_sum_as_written():
    """The checker reads the sum itself: nothing about the closed form is taken on trust."""
    certificate: dict[str, Any] = {
        "claim": "equal", "f": "Sum(4*B*(S + t)*d, (t, 1, T - 1))", "g": "4*B*S*T*d - 4*B*S*d + 2*B*T**2*d - 2*B*T*d",
        "factors": {}, "least": {}, "hypotheses": [],
    }  # fmt: skip
    check_certificate(certificate)
    assert form(certificate["f"]) == form(certificate["g"])
    assert same_text(certificate["f"], certificate["g"], {})
    with pytest.raises(Rejected):
        check_certificate({**certificate, "g": "4*B*S*T*d - 4*B*S*d + 2*B*T**2*d - B*T*d"})
    assert isinstance(equal(form(certificate["f"]), form(certificate["g"]), ANY), Proved)


@given(st.integers(1, 40), st.integers(1, 200))
def test_the_bounds_of_a_sum_of_logs_hold(start, steps):
    sizes = {"S": start, "T": steps}
    exact = sum(math.log2(start + t) for t in range(1, steps))
    low, high = (float(b.evaluate(sizes)) for b in bounds_of(LOGS))
    assert low - 1e-9 <= exact <= high + 1e-9
    for least, two in (({}, False), ({"T": 2}, True)):
        reader = Reader({}, least=least)
        reader.single(LOGS)
        ((below, above),) = reader.sums.values()
        if steps >= 2 or not two:
            assert value_at(below, sizes, reader.logs)[0] <= exact + 1e-9
            assert value_at(above, sizes, reader.logs)[1] >= exact - 1e-9


def test_theta_of_a_sum_of_logs_for_two_steps_or_more():
    f, g = form(LOGS), form("T*log(S + T)")
    for answer in (order(f, g, TWO), order(g, f, TWO)):
        assert isinstance(answer, Proved)
        check_certificate(answer.certificate)


def test_with_a_single_step_the_lower_bound_fails():
    """The sum is empty at T = 1, where log(S + 1) is not."""
    f, g = form(LOGS), form("T*log(S + T)")
    assert isinstance(order(f, g, ANY), Proved)
    assert not isinstance(order(g, f, ANY), Proved)
    proof = order(g, f, TWO)
    assert isinstance(proof, Proved)
    for least in ({}, {"S": 2}, {"T": 1}):
        with pytest.raises(Rejected):
            check_certificate({**proof.certificate, "least": least})


def test_a_sum_of_logs_among_other_terms():
    decode = form(f"4*L*{LOGS} + L*T*log(d) + Sum(S + t, (t, 1, T - 1))")
    assert isinstance(order(decode, form("L*T*log(d) + L*T*log(S + T) + T*S + T**2"), TWO), Proved)
    assert isinstance(order(form("L*T*log(S + T)"), decode, TWO), Proved)
    assert isinstance(order(decode, form("L*T*log(d) + T**2"), TWO), Refuted)
    assert isinstance(order(form("T**2"), form(LOGS), TWO), Refuted)
    assert isinstance(order(form(f"d + {LOGS}"), form("d"), TWO), Refuted)


def test_a_sum_of_logs_is_not_one_of_its_bounds():
    f, g = form(LOGS), form("(T - 1)*log(S + T)")
    assert isinstance(at_most(f, g, ANY), Proved)
    assert not isinstance(at_most(g, f, ANY), Proved)
    assert not isinstance(equal(f, g, ANY), Proved)


def test_signs_turn_the_bounds_around():
    """T*log(S + T) minus the sum is not bounded by 1: the sum may be as small as a half of it."""
    gap = form(f"T*log(S + T) - {LOGS}")
    assert not isinstance(order(gap, Form.constant(1), TWO), Proved)
    assert isinstance(order(gap, form("T*log(S + T)"), TWO), Proved)
    assert not isinstance(order(form("T"), Max.of(gap), TWO), Proved)


@pytest.mark.parametrize(
    "text",
    [
        "Sum(log(t), (t, 1, T))",
        "Sum(t*log(S + t), (t, 1, T))",
        "Sum(log(S + t)**2, (t, 1, T))",
        "Sum(ceil_log(S + t), (t, 1, T))",
        "Sum(log(S + t), (t, 2, T + 1))",
        "Sum(log(S + 2*t), (t, 1, T))",
        "Sum(1/t, (t, 1, T))",
        "Sum(t, (t, 0, T))",
        "Sum(t, (t, 2, T - 1))",
        "Sum(t, (t, 1, T/2))",
        "Sum(t, (t, 1, t))",
        "Sum(Sum(log(S + i), (i, 1, t)), (t, 1, T))",
    ],
)
def test_what_has_no_normal_form_is_refused_by_both(text):
    with pytest.raises(ValueError, match=r"normal form|raise|power|inverse|divide"):
        form(text)
    with pytest.raises(Rejected):
        Reader({}).single(text)


def test_an_index_does_not_capture_a_factor():
    with pytest.raises(Rejected, match="is a size"):
        Reader({"d": "h*d_h"}).single("Sum(d, (h, 1, T))")


def test_logs_of_the_index_stay_inside():
    reader = Reader({})
    reader.single(f"log(S + t) + {LOGS}")
    assert "log(S + t)" in reader.logs
    reader = Reader({})
    reader.single(f"{LOGS} + log(S)")
    assert "log(S + t)" not in reader.logs


def test_the_sizes_in_a_sum():
    assert sizes_of(LOGS) == {"S", "T"}
    assert sizes_of("d") == {"d"}
