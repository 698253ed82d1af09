"""Logs of a form, collected: terms with the same coefficient become one log, ``2L log(d^4 d_ff m / h)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

from derive import expr as ex
from derive.expr import Div, Expr, Log, Pow
from derive.forms import Form, Monomial
from derive.forms import Log as LogAtom
from derive.parsing import MAX_EXPONENT
from derive.render.terms import TOKENS, WIDTHS, Term, gcd, is_degree, product, rank, stem

Argument: TypeAlias = tuple[Form, int]
"""An argument of a log with its integer exponent."""

ARGUMENT_GROUPS = (("V", "E", "E_a"), WIDTHS, ("h", "h_kv", "L"), TOKENS)
WITH_TOKENS = frozenset({*TOKENS, "P_d", "P_c"})


def log_terms(terms: Sequence[tuple[Monomial, Fraction]], order: bool, show: Callable[[Form], Expr]) -> list[Expr]:
    """Summands for monomials that contain a log; `show` arranges an argument that is itself a sum."""
    groups: dict[Monomial, list[tuple[Form, Fraction]]] = {}
    rest: list[Expr] = []
    for monomial, coefficient in terms:
        logs = [(x, p) for x, p in monomial if isinstance(x, LogAtom)]
        if len(logs) == 1 and logs[0][1] == 1 and not logs[0][0].ceil:
            outer = tuple((x, p) for x, p in monomial if not isinstance(x, LogAtom))
            groups.setdefault(outer, []).append((logs[0][0].arg, coefficient))
        else:
            rest.append(_power_of_logs(monomial, coefficient, show))
    keys = sorted(groups, key=_outer_place)
    return [_collected(key, groups[key], order, show) for key in keys] + rest


def _outer_place(monomial: Monomial) -> tuple[object, ...]:
    """Coefficients with layers first, the bare log last."""
    names = [(rank(str(x)), -p) for x, p in monomial]
    return (not any(stem(str(x)) == "L" for x, _ in monomial), not monomial, sorted(names))


def _collected(outer: Monomial, parts: list[tuple[Form, Fraction]], order: bool, show: Callable[[Form], Expr]) -> Expr:
    """``outer x (sum of coefficient x log(argument))`` as one log with integer exponents."""
    number = gcd(c for _, c in parts)
    if all(c < 0 for _, c in parts):
        number = -number
    arguments = sorted(((form, int(c / number)) for form, c in parts), key=lambda item: _argument_place(item[0]))
    factor = Term.of(number, {str(x): p for x, p in outer})
    if any(abs(e) > MAX_EXPONENT for _, e in arguments):  # a power that nobody could read: one log for each argument
        return ex.add(*(ex.mul(product(factor), ex.num(e), Log(show(form))) for form, e in arguments))
    pieces = [Log(_ratio(part, show)) for part in _split(arguments, order and bool(outer))]
    if number == 1 and not outer:
        return ex.add(*pieces)
    if number == -1 and not outer and len(pieces) == 1:
        return ex.negate(pieces[0])
    return ex.mul(product(factor), ex.add(*pieces))


def _split(arguments: list[Argument], order: bool) -> list[list[Argument]]:
    """Inside ``O(...)``: widths and tokens in logs of their own, as in ``L(log(d/P_t) + log m)``."""
    tokens = [a for a in arguments if a[0].symbols and a[0].symbols <= WITH_TOKENS]
    model = [a for a in arguments if a not in tokens]
    flat = all(abs(e) == 1 for _, e in arguments)
    both = all(any(e > 0 for _, e in part) for part in (tokens, model))
    return [model, tokens] if order and flat and both else [arguments]


def _ratio(arguments: list[Argument], show: Callable[[Form], Expr]) -> Expr:
    above = [_power(show(form), e) for form, e in arguments if e > 0]
    below = [_power(show(form), -e) for form, e in arguments if e < 0]
    return Div(ex.mul(*above), ex.mul(*below)) if below else ex.mul(*above)


def _power(base: Expr, exponent: int) -> Expr:
    return base if exponent == 1 else Pow(base, exponent)


def _argument_place(form: Form) -> tuple[object, ...]:
    """Numbers, degrees, vocabulary and experts, widths, heads, then tokens: ``d^4 d_ff m`` over ``P_t^2 h``."""
    if len(form.symbols) != 1 or form != Form.atom(min(form.symbols)):
        return (1 if form.symbols else -1, 0, (0, form.text))
    (name,) = form.symbols
    groups = (i for i, names in enumerate(ARGUMENT_GROUPS, start=1) if stem(name) in names)
    group = 0 if is_degree(name) else next(groups, len(ARGUMENT_GROUPS) + 1)
    return (0, group, rank(name))


def _power_of_logs(monomial: Monomial, coefficient: Fraction, show: Callable[[Form], Expr]) -> Expr:
    """A product of several logs, a power of one, or a ceiling: written out as it is."""
    sizes = Term.of(abs(coefficient), {str(x): p for x, p in monomial if not isinstance(x, LogAtom)})
    logs: list[Expr] = [_log_power(x, p, show) for x, p in monomial if isinstance(x, LogAtom)]
    bare = sizes.coefficient == 1 and not sizes.powers
    out = ex.mul(*([] if bare else [product(sizes)]), *logs)
    return ex.negate(out) if coefficient < 0 else out


def _log_power(atom: LogAtom, power: int, show: Callable[[Form], Expr]) -> Expr:
    log = Log(show(atom.arg), atom.ceil)
    if power < 0:
        return Div(ex.num(1), _power(log, -power))
    return _power(log, power)
