"""Arranging and printing never change the value: display, LaTeX and back is the identity on forms."""

import random
import string
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derive import expr as ex
from derive.expr import text
from derive.forms import Form, Max, ceil_log2, log2, symbol, total
from derive.latex import parse
from derive.normal import to_form
from derive.render.printer import latex
from derive.render.typeset import display
from derive.textform import parse_text

SIZES = (
    "B", "m", "L", "d", "d_ff", "h", "V", "E_a", "d_e", "P_t", "P_d", "S", "T", "L_pi", "d_ff_pi", "h_kv", "B_pairs",
)  # fmt: skip
sizes = st.sampled_from(SIZES)
coefficients = st.fractions(min_value=-40, max_value=40, max_denominator=6)
monomials = st.dictionaries(sizes, st.integers(-2, 4), max_size=5)


def _monomial(powers):
    out = Form.constant(1)
    for name, power in powers.items():
        out = out * symbol(name) ** power
    return out


@st.composite
def log_forms(draw):
    arg = _monomial(draw(st.dictionaries(sizes, st.integers(-3, 3), min_size=1, max_size=4)))
    if draw(st.booleans()):
        arg = arg + draw(st.integers(1, 5)) * _monomial(draw(monomials)) * arg.inverse()
    log = ceil_log2(arg) if draw(st.integers(0, 4)) == 0 else log2(arg)
    return log * log if draw(st.integers(0, 6)) == 0 else log


@st.composite
def forms(draw):
    plain = [draw(coefficients) * _monomial(draw(monomials)) for _ in range(draw(st.integers(0, 6)))]
    logs = [draw(coefficients) * _monomial(draw(monomials)) * draw(log_forms()) for _ in range(draw(st.integers(0, 3)))]
    return total([*plain, *logs])


@given(forms(), st.booleans())
def test_round_trip_through_latex_and_text(form, order):
    shown = display(form, order)
    assert to_form(shown) == form
    assert to_form(parse(latex(shown))) == form
    assert to_form(parse_text(text(shown))) == form
    assert to_form(parse_text(form.text)) == form


@given(st.lists(forms(), min_size=1, max_size=3))
def test_round_trip_of_maxima(members):
    maximum = Max.of(*members)
    value = to_form(parse(latex(display(maximum))))
    assert Max.of(value) == maximum


names = st.sampled_from(SIZES).map(ex.Sym)
numbers = st.integers(0, 12).map(ex.num)
models = st.sampled_from(("pi", "ref", "R", "V", "SH", "M"))


def _grow(inner):
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        several.map(lambda xs: ex.add(*xs)),
        several.map(lambda xs: ex.mul(*xs)),
        inner.map(ex.negate),
        st.builds(ex.Div, inner, inner),
        st.builds(ex.Pow, inner, st.integers(0, 5)),
        st.builds(ex.Log, inner, st.booleans()),
        several.map(lambda xs: ex.Max(tuple(xs))),
        st.builds(ex.Sum, inner, st.just("t"), inner, inner),
        st.builds(ex.Order, inner),
        models.map(lambda m: ex.Call("C_f_tok", (m,))),
    )


def _value(expr):
    """A meaning that does not depend on how brackets are written: a polynomial hash at one point."""
    match expr:
        case ex.Num(value):
            return value
        case ex.Sym(name):
            return Fraction(random.Random(name).randrange(2, 10**6))
        case ex.Add(items):
            return sum(map(_value, items))
        case ex.Mul(items):
            out = Fraction(1)
            for item in items:
                out *= _value(item)
            return out
        case ex.Div(top, bottom):
            return _value(top) / (_value(bottom) or Fraction(7, 3))
        case ex.Pow(base, exponent):
            return _value(base) ** exponent
    own = {k: v for k, v in vars(expr).items() if k in ("name", "ceil", "index")}
    key = f"{type(expr).__name__} {own} {expr.args if isinstance(expr, ex.Call) else ''}"
    parts = [str(_value(c)) for c in ex.children(expr)]
    return Fraction(random.Random(key + "|".join(parts)).randrange(2, 10**6))


@given(st.recursive(st.one_of(names, numbers), _grow, max_leaves=8))
def test_any_expression_keeps_its_meaning(expr):
    """Trees that no form would give, printed and read: products of sums, fractions of fractions, signs anywhere."""
    assert _value(parse_text(text(expr))) == _value(expr)
    assert _value(parse(latex(expr))) == _value(expr)


GOLDEN = [
    ("24*B*L*d**2*m + 12*B*L*d*d_ff*m + 6*B*L*d*m**2", r"6BmL(4d^{2}+2dd_{\text{ff}}+md)"),
    ("24*B*L*d**2*m/P_d + 12*B*L*d*d_ff*m/P_d", r"\tfrac{12BmL}{P_{d}}(2d^{2}+dd_{\text{ff}})"),
    ("L*(16*d**2 + 8*d*d_ff + 8*d) + 4*V*d + 4*d + B*m*L*d", r"L(16d^{2}+8dd_{\text{ff}}+8d)+4Vd+4d+BmLd"),
    ("P_d*(L*16*d**2 + L*8*d*d_ff + 4*V*d) + B*m*L*d", r"P_{d}[L(16d^{2}+8dd_{\text{ff}})+4Vd]+BmLd"),
    ("L*(16*d**2 + 8*E*d*d_e/P_e) + 4*V*d", r"L\bigl(16d^{2}+\tfrac{8Edd_{e}}{P_{e}}\bigr)+4Vd"),
    ("6*B*m*L*(P_e*(4*d**2 + m*d) + 2*E_a*d*d_e)", r"6BmL[P_{e}(4d^{2}+md)+2E_{a}dd_{e}]"),
    ("2*L*log(d**4*d_ff*m/(P_t**2*h)) + log(B*m)",
     r"2L\log\bigl(\tfrac{d^{4}d_{\text{ff}}m}{P_{t}^{2}h}\bigr)+\log(Bm)"),
    ("L*log(d) + log(B*m/P_c)", r"L\log d+\log\bigl(\tfrac{Bm}{P_{c}}\bigr)"),
    ("2*L*(4*d**2 + 2*d*d_ff + m*d) + 2*V*d", r"2L(4d^{2}+2dd_{\text{ff}}+md)+2Vd"),
    ("-log(d*h) - 3/2", r"-\log(dh)-\tfrac{3}{2}"),
    ("Max(L*log(d) + log(m), L*log(d) + log(V))", r"L\log d+\max\{\log V,\allowbreak\ \log m\}"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "expected"), GOLDEN)
def test_the_papers_manner(written, expected):
    assert latex(display(to_form(parse_text(written)))) == expected


def test_order_style_keeps_widths_and_tokens_apart():
    form = to_form(parse_text("L*log(d*m/P_t) + log(B*m)"))
    assert latex(display(form, order=True)) == r"L\bigl(\log\tfrac{d}{P_{t}}+\log m\bigr)+\log(Bm)"
    assert latex(display(form)) == r"L\log\bigl(\tfrac{dm}{P_{t}}\bigr)+\log(Bm)"


def test_no_letter_is_lost_in_names():
    assert set(string.ascii_letters) >= {latex(ex.Sym(s))[0] for s in SIZES}
