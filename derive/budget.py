"""How a budget of operations may be divided between prompts, rollouts per prompt and updates.

The cost of an iteration is linear in the prompts ``B``: ``B*(per prompt + K*per rollout)``.  Both are derived.  The
first is zero unless rollouts share the prefill of their prompt; epochs over the batch enter the second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.forms import Form, Scalar
from derive.placements import StageQuestion, stage_work
from graphs.errors import GraphError

LARGEST = 2**64


@dataclass(frozen=True)
class Split:
    """Work of one iteration: ``total = B*(per_prompt + K*per_rollout)``."""

    total: Form
    per_prompt: Form
    per_rollout: Form


def split(q: StageQuestion) -> Split:
    """The derived cost of an iteration, taken apart; GraphError for an algorithm without rollouts."""
    (total,) = stage_work(replace(q, stage=None)).value.members
    if "K" not in total.symbols:
        raise GraphError(f"{q.graph.name} samples no rollouts, so there is no budget to divide; choose PPO or GRPO")
    each = coefficient(total, "B", 1)
    return Split(total, coefficient(each, "K", 0), coefficient(each, "K", 1))


def coefficient(form: Form, name: str, power: int) -> Form:
    """What multiplies that power of a size."""
    return Form(
        {
            tuple(x for x in monomial if x[0] != name): c
            for monomial, c in form.terms.items()
            if dict(monomial).get(name, 0) == power
        }
    )


def iso_compute(
    cost: Form, budget: int, over: tuple[str, Sequence[int]], solve_for: str, given: Mapping[str, Scalar]
) -> list[dict[str, int]]:
    """For each value of one size the largest value of another with which the cost stays within the budget.

    A point that no value reaches is left out.  GraphError where a size or an opaque cost has no value, or the cost does
    not grow with the size that is solved for.
    """
    name, values = over
    if missing := sorted(cost.symbols - {name, solve_for} - given.keys()):
        raise GraphError(f"no value for {', '.join(missing)}; give one with --set {missing[0]}=NUMBER")
    if solve_for not in cost.symbols or any(dict(m).get(solve_for, 0) < 0 for m in cost.terms):
        raise GraphError(f"the cost does not grow with {solve_for}; solve for another size")
    known = {n: Fraction(v) for n, v in given.items() if n in cost.symbols}
    points = []
    for value in values:
        at_value = cost.substitute({name: Form.constant(value)})

        def fits(x: int, at_value: Form = at_value) -> bool:
            return at_value.evaluate({**known, solve_for: x}) <= budget

        if best := _largest(fits):
            points.append({name: value, solve_for: best})
    return points


def _largest(fits: Callable[[int], bool]) -> int:
    """The largest x >= 1 that fits, 0 where none does, by doubling and bisection; what fits is an interval from 1."""
    if not fits(1):
        return 0
    high = 2
    while fits(high):
        high *= 2
        if high > LARGEST:
            raise GraphError("the budget is not used up by any size; give a smaller one")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
