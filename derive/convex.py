"""Pruning of maxima by convex combination: ``(x + y)/2 <= max(x, y)``, so the left side may go."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from derive.asymptotics.simplex import Budget, OutOfSteps, Program
from derive.dominance import Factors, below_any
from derive.forms import Form, Max

STEPS = 2_000


def under_a_combination(form: Form, others: Sequence[Form]) -> bool:
    """True where a weighted mean of the others has no smaller coefficient anywhere; sound for terms >= 0."""
    program = Program(Budget(STEPS))
    names = range(len(others))
    program.add(dict.fromkeys(names, Fraction(1)), "==", 1)
    for monomial in sorted({m for f in (form, *others) for m in f.terms}, key=str):
        row = {i: others[i].terms.get(monomial, Fraction(0)) for i in names}
        program.add(row, ">=", form.terms.get(monomial, Fraction(0)))
    try:
        return program.solve() is not None
    except OutOfSteps:
        return False


@lru_cache(maxsize=256)
def pruned(value: Max, factors: Factors = ()) -> Max:
    """The same maximum without members that the rest certainly reaches."""
    kept = list(value.members)
    free = {f: f.substitute(dict(factors)) for f in kept}  # once for each, not for each pair
    levels = dict(zip(kept, _levels([free[f] for f in kept]), strict=True))
    for form in value.members:
        rest = [f for f in kept if f is not form]
        higher = [free[f] for f in rest if all(x <= y for x, y in zip(levels[form], levels[f], strict=True))]
        if rest and (below_any(free[form], higher) or under_a_combination(form, rest)):
            kept = rest
    return Max.of(*kept)


def _levels(forms: Sequence[Form]) -> list[tuple[Fraction, ...]]:
    """The forms at a few sizes: one that is lower anywhere needs no proof that it is not above."""
    names = sorted({s for f in forms for s in f.symbols})
    points = [{name: 2 ** (1 + (i * step) % 5) for i, name in enumerate(names)} for step in (1, 2, 3)]
    return [tuple(Fraction(f.evaluate(point)) for point in points) for f in forms]
