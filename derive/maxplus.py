"""Max-plus algebra over forms: when a value is ready, as a maximum of sums that remember the steps they are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from derive.dominance import Factors, below, below_any
from derive.forms import Form, Max

ZERO = Form.constant(0)
ONE = Form.constant(1)


@dataclass(frozen=True)
class Step:
    """One occurrence on a longest path: how often it is passed, and what it adds each time."""

    where: str
    times: Form
    amount: Form


@dataclass(frozen=True)
class Arrival:
    """One candidate for the latest arrival at a value, with the steps that add up to it.

    ``doubt`` says why it may not be one for every number of iterations of some loop: then it may be dropped for the
    sake of a candidate beyond doubt, but none of those for its sake.
    """

    form: Form
    steps: tuple[Step, ...] = ()
    doubt: str = ""

    def then(self, other: Arrival) -> Arrival:
        return Arrival(self.form + other.form, self.steps + other.steps, self.doubt or other.doubt)

    def repeated(self, times: Form, where: str) -> Arrival:
        steps = tuple(Step(f"{where}/{s.where}", s.times * times, s.amount) for s in self.steps)
        return Arrival(self.form * times, steps, self.doubt)


Arrivals = tuple[Arrival, ...]
START: Arrivals = (Arrival(ZERO),)


def join(candidates: Iterable[Arrival], factors: Factors) -> Arrivals:
    """The maximum: candidates that another one certainly dominates are dropped."""
    kept: list[Arrival] = []
    for arrival in sorted(candidates, key=lambda a: (-len(a.form.terms), a.form.text)):
        if below_any(arrival.form, [k.form for k in kept if arrival.doubt or not k.doubt], factors):
            continue
        kept = [k for k in kept if (arrival.doubt and not k.doubt) or not below(k.form, arrival.form, factors)]
        kept.append(arrival)
    return tuple(sorted(kept, key=lambda a: (a.form.text, a.doubt)))


def combine(a: Arrivals, b: Arrivals, factors: Factors) -> Arrivals:
    """Max-plus product: every sum of one candidate of each."""
    return join((x.then(y) for x in a for y in b), factors)


def as_max(found: Arrivals) -> Max:
    return Max.of(*(a.form for a in found))
