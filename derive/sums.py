"""Sums over an index: closed forms of polynomial ones, and a name for sums of logs, which have bounds only.

A polynomial sum is ``F(upper + 1) - F(lower)`` with ``F(t + 1) - F(t)`` the summand, so it is 0 when it is empty, with
upper = lower - 1.  ``Sum(log(S + t), (t, 1, T - 1))`` stays an atom of the form under its text; the checker reads that
text and bounds it by ``(T - 1)*log(S + T)`` from above and by a half of that from below (a quarter of ``T*log(S + T)``
for T >= 2), so that `order` can compare it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from derive import expr as ex
from derive.dominance import nonnegative
from derive.expr import Expr, Sum, Sym
from derive.forms import Form, Log, is_sum, log2, total
from derive.normal import single_form
from derive.textform import parse_text

MAX_POWER = 39


def without_sums(e: Expr) -> Expr:
    """The expression with every sum written out: its closed form, and atoms for sums of logs; ValueError for others."""
    e = ex.rebuild(e, without_sums)
    return _written(closed_form(e)) if isinstance(e, Sum) else e


def _written(form: Form) -> Expr:
    """The form as an expression, term by term."""
    terms = []
    for monomial, c in form.ordered:
        atoms = ((ex.Log(_written(x.arg), x.ceil) if isinstance(x, Log) else Sym(x), p) for x, p in monomial)
        terms.append(ex.mul(ex.num(c), *(ex.Pow(x, p) for x, p in atoms)))
    return ex.add(*terms)


def closed_form(e: Sum) -> Form:
    """The value of a sum whose summand is a polynomial in the index, plus logs of it; ValueError where it is not."""
    return sum_over(single_form(without_sums(e.body)), e.index, single_form(e.lower), single_form(e.upper), ex.text(e))


def sum_over(body: Form, index: str, low: Form, high: Form, name: str | None = None) -> Form:
    """The sum of ``body`` for index = low, ..., high; ValueError, naming the sum, where it has no normal form."""
    name = name or f"Sum({body.text}, ({index}, {low.text}, {high.text}))"
    _check_bounds(name, index, low, high)
    logs = {x for m in body.terms for x, _ in m if isinstance(x, Log) and index in x.arg.symbols}
    if any(is_sum(symbol) for symbol in body.symbols):
        raise ValueError(f"{name} is a sum of sums of logs, which has no normal form")
    plain = Form({m: c for m, c in body.terms.items() if logs.isdisjoint(x for x, _ in m)})
    antiderivative = primitive(plain, index)
    out = [antiderivative.substitute({index: high + 1}), -antiderivative.substitute({index: low})]
    for monomial, c in body.terms.items():
        inside = [(x, p) for x, p in monomial if x in logs]
        if inside:
            front = Form({tuple(x for x in monomial if x[0] not in logs): c})
            log, power = inside[0]
            if len(inside) > 1 or power != 1 or index in front.symbols or not isinstance(log, Log):
                raise ValueError(f"{name} has no normal form: only single logs of {index} are summed")
            out.append(front * log_sum(name, index, log, low, high))
    return total(out)


def _check_bounds(name: str, index: str, low: Form, high: Form) -> None:
    sides = (low, high)
    if any(
        c.denominator != 1 or any(isinstance(x, Log) or p < 0 for x, p in m) for f in sides for m, c in f.terms.items()
    ):
        raise ValueError(f"{name} has no normal form: its bounds are no whole numbers")
    if not low or any(c < 0 for c in low.terms.values()):
        raise ValueError(f"{name} has no normal form: the first {index} may be below 1")
    if index in low.symbols | high.symbols or not nonnegative(high + 1 - low):
        raise ValueError(f"{name} has no normal form: the last {index} may be below the first")


def primitive(body: Form, index: str) -> Form:
    """F with ``F(index + 1) - F(index) = body``, F(0) = 0, for a polynomial in the index."""
    parts = []
    for monomial, c in body.terms.items():
        power = dict(monomial).get(index, 0)
        if not 0 <= power <= MAX_POWER:
            raise ValueError(f"{body.text} summed over {index}: the power {power} is outside the normal form")
        parts.append(Form({tuple(x for x in monomial if x[0] != index): c}) * _power_sum(power, index))
    return total(parts)


@lru_cache(maxsize=256)
def _power_sum(k: int, index: str) -> Form:
    """The sum of t**k for t = 0, ..., index - 1."""
    lower = total(_power_sum(j, index) * math.comb(k + 1, j) for j in range(k))
    return (Form.atom(index, k + 1) - lower) * Fraction(1, k + 1)


def log_sum(name: str, index: str, log: Log, low: Form, high: Form) -> Form:
    """An atom for the sum of one log of a size plus the index, from 1 on."""
    start, last = log.arg - Form.atom(index), high + 1
    fine = all(
        form and all(c > 0 and all(not isinstance(x, Log) and p > 0 for x, p in m) for m, c in form.terms.items())
        for form in (start, last)
    )
    if log.ceil or low != Form.constant(1) or index in start.symbols or not fine:
        raise ValueError(f"{name} has no normal form: only log(a + {index}) is summed, from 1 on, with a >= 1")
    return Form.atom(f"Sum({log.text}, ({index}, 1, {high.text}))")


def sizes_of(name: str) -> frozenset[str]:
    """The sizes in a symbol of a form, which may be a sum of logs."""
    return ex.free_symbols(parse_text(name)) if is_sum(name) else frozenset({name})


def bounds_of(name: str) -> tuple[Form, Form]:
    """Lower and upper bound of a sum of logs, for all sizes >= 1."""
    e = parse_text(name)
    if not isinstance(e, Sum) or not isinstance(e.body, ex.Log):
        raise ValueError(f"{name} is not a sum of logs")
    high = single_form(e.upper)
    top = high * log2(single_form(e.body.arg).substitute({e.index: high + 1}))
    return top * Fraction(1, 2), top
