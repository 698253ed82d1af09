"""From an expression as it is written to its normal form."""

from __future__ import annotations

from functools import reduce
from typing import TypeAlias

from derive import forms
from derive.expr import Add, Call, Div, Expr, Log, Max, Mul, Num, Order, Pow, Sym, rebuild, text
from derive.forms import Form

MAX_TERMS = 20_000
MAX_BITS = 4_096

Value: TypeAlias = Form | forms.Max


def to_form(expr: Expr) -> Value:
    """The normal form; ValueError, one sentence, where the expression is outside that class."""
    match expr:
        case Num(value):
            return Form.constant(value)
        case Sym(name):
            return forms.symbol(name)
        case Add(terms):
            return _added([to_form(t) for t in terms])
        case Mul(factors):
            return reduce(_times, map(to_form, factors))
        case Div(top, bottom):
            return _times(to_form(top), _single(bottom, "divisor").inverse())
        case Max(args):
            return forms.Max.of(*map(to_form, args))
    return _applied_form(expr)


def _applied_form(expr: Expr) -> Form:
    match expr:
        case Pow(base, exponent):
            return _power(_single(base, "base of a power"), exponent)
        case Log(arg, ceil):
            return forms.ceil_log2(_single(arg, "argument of a log")) if ceil else _log_form(arg)
        case Order():
            raise ValueError(f"{text(expr)} is a bound, not a value: it has no normal form")
        case Call():
            raise ValueError(f"{text(expr)} is an opaque cost: it has no normal form until its definition is put in")
    raise ValueError(f"{text(expr)} has no normal form: sums over an index and minima are outside it")


def _log_form(arg: Expr) -> Form:
    """Logs of products, quotients and powers are taken apart, so that ``log(d/(S + T))`` has a normal form."""
    match arg:
        case Mul(factors):
            return forms.total(map(_log_form, factors))
        case Div(top, bottom):
            return _log_form(top) - _log_form(bottom)
        case Pow(base, exponent):
            return _log_form(base) * exponent
    return forms.log2(_single(arg, "argument of a log"))


def named_costs(expr: Expr) -> Expr:
    """Opaque costs as sizes of their own, named by their text: ``C_f_tok(pi)``."""
    return Sym(text(expr)) if isinstance(expr, Call) else rebuild(expr, named_costs)


def single_form(expr: Expr) -> Form:
    """`to_form` where a maximum is not expected; ValueError for one."""
    return _single(expr, "expression")


def _single(expr: Expr, role: str) -> Form:
    form = to_form(expr)
    if isinstance(form, forms.Max):
        raise ValueError(f"{text(expr)} is a maximum, which the normal form does not allow as the {role}")
    return form


def _added(parts: list[Value]) -> Value:
    plain = forms.total(p for p in parts if isinstance(p, Form))
    out: Value = plain
    for part in parts:
        if isinstance(part, forms.Max):
            out = part + out
    return out


def _times(left: Value, right: Value) -> Value:
    if isinstance(left, forms.Max) and isinstance(right, forms.Max):
        raise ValueError("a product of two maxima is outside the normal form")
    if isinstance(left, forms.Max):
        left, right = right, left
    assert isinstance(left, Form)
    if isinstance(right, Form):
        _refuse_growth(len(left.terms) * len(right.terms))
        return left * right
    if any(c < 0 for c in left.terms.values()):
        raise ValueError(f"({left.text}) times a maximum is outside the normal form: the factor may be negative")
    return right.scale(left)


def _power(base: Form, exponent: int) -> Form:
    sizes = [abs(p) for m in base.terms for _, p in m]
    bits = [max(c.numerator.bit_length(), c.denominator.bit_length()) for c in base.terms.values()]
    if max([1, *sizes, *bits]) * abs(exponent) > MAX_BITS:
        raise ValueError(f"the power {exponent} of ({base.text}) is too large for the normal form")
    _refuse_growth(len(base.terms) ** min(abs(exponent), 64))
    return base**exponent


def _refuse_growth(terms: int) -> None:
    if terms > MAX_TERMS:
        raise ValueError(f"the expanded expression would have more than {MAX_TERMS} terms")
