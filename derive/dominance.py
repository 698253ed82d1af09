"""When one form is never below another: the pruning rule of depth.

Sufficient and sound, not complete: sizes are written in free factors >= 1, logs of sizes and sums of them are >= 0, and
a difference whose coefficients are all nonnegative after the shift x = 1 + u of its factors is nonnegative.  What it
cannot decide is kept, so a maximum may carry members it does not need but never loses one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from derive.forms import Atom, Form, Log, is_sum

Factors = tuple[tuple[str, Form], ...]


def as_factors(factors: Mapping[str, Form]) -> Factors:
    return tuple(sorted(factors.items()))


@lru_cache(maxsize=65536)
def nonnegative(form: Form, factors: Factors = ()) -> bool:
    """True where the form is certainly >= 0 for all free factors >= 1."""
    free = form.substitute(dict(factors))
    if all(c > 0 for c in free.terms.values()):
        return True
    if any(c < 0 for c in _at_one(free).values()):
        return False
    cleared = _clear_denominators(free)
    if _has_loose_negative(cleared):
        return False
    polynomial = {x for m in cleared.terms for x, p in m if not _may_vanish(x)}
    return all(c > 0 for c in _shift(cleared, polynomial).terms.values())


def _has_loose_negative(form: Form) -> bool:
    """Does a negative term divide no positive one?  Then the shift leaves it negative: a cheap way to know."""
    positive = [dict(m) for m, c in form.terms.items() if c > 0]
    negative = [m for m, c in form.terms.items() if c < 0]
    return not all(any(all(p.get(x, 0) >= power for x, power in m) for p in positive) for m in negative)


def _may_vanish(atom: Atom) -> bool:
    """A log, and a sum of logs, may be 0 where sizes are 1; everything else is at least 1."""
    return isinstance(atom, Log) or is_sum(atom)


def _at_one(form: Form) -> dict[tuple[tuple[Atom, int], ...], Fraction]:
    """Coefficients of the logs where every size is 1: the shifted form's own, for u = 0, and cheap."""
    out: dict[tuple[tuple[Atom, int], ...], Fraction] = {}
    for monomial, c in form.terms.items():
        logs = tuple((x, p) for x, p in monomial if _may_vanish(x))
        out[logs] = out.get(logs, Fraction(0)) + c
    return out


def _clear_denominators(form: Form) -> Form:
    lowest: dict[str, int] = {}
    for monomial in form.terms:
        for atom, power in monomial:
            if power < 0 and not isinstance(atom, Log):
                lowest[atom] = max(lowest.get(atom, 0), -power)
    for atom, power in sorted(lowest.items()):
        form = form * Form.atom(atom, power)
    return form


def _shift(form: Form, symbols: set[Atom]) -> Form:
    """x -> 1 + u for the polynomial occurrences of each symbol (its logs stay what they are, nonnegative)."""
    out = Form.constant(0)
    for monomial, c in form.terms.items():
        part = Form.constant(c)
        for atom, power in monomial:
            base = Form.atom(atom)
            part = part * (base + 1 if atom in symbols else base) ** power
        out = out + part
    return out


def below(small: Form, large: Form, factors: Factors = ()) -> bool:
    return nonnegative(large - small, factors)


def below_any(small: Form, large: Sequence[Form], factors: Factors = (), trips: Form | None = None) -> bool:
    """True where the form is certainly below the maximum of ``large``.

    Besides single members it tries the convex combinations ((n-1) f + g)/n of two, n = ``trips`` >= 1: a path that
    takes one branch of a loop in one iteration and another in the rest.
    """
    if any(below(small, f, factors) for f in large):
        return True
    if trips is None:
        return False
    return any(below(trips * small, (trips - 1) * f + g, factors) for f in large for g in large if f is not g)
