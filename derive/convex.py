"""Pruning of maxima by convex combination: ``(x + y)/2 <= max(x, y)``, so the left side may go."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

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


def pruned(value: Max, factors: Factors = ()) -> Max:
    """The same maximum without members that the rest certainly reaches."""
    kept = list(value.members)
    free = {f: f.substitute(dict(factors)) for f in kept}  # once for each, not for each pair
    for form in value.members:
        rest = [f for f in kept if f is not form]
        if rest and (below_any(free[form], [free[f] for f in rest]) or under_a_combination(form, rest)):
            kept = rest
    return Max.of(*kept)
