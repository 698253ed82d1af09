"""How long a scan takes, in closed form, where one carried value sets its pace.

A scan's body is a max-plus matrix that depends on the index, so a product of them is in general no formula.  But let
one carried value have a single chain A(t) through iteration t, let no other input start later, and let no way from any
input to any carried value be longer than A(t): then that value is ready at its start plus the sum of A(t), and no way
around it is longer.  What the last iteration makes of it follows, where nothing else reaches that result later.  This
holds for one iteration or more; after none, a carried value is ready when it started and nothing is stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from derive.dominance import Factors, below, below_any
from derive.forms import Form
from derive.maxplus import ONE, Arrival, Arrivals, Step, combine
from derive.work import over_iterations
from graphs.errors import GraphError
from graphs.ir import Node, Value
from graphs.ops.scan import Scan


@dataclass(frozen=True, eq=False)
class Pace:
    """When a scan's operands arrive, and how long from each input to each output of its body in iteration t.

    ``bounds`` are what that is at most, ``exactly`` gives what it is: more is not asked of inputs that do not matter.
    """

    node: Node
    op: Scan
    starts: tuple[Arrivals, ...]
    bounds: Sequence[Mapping[Value, Arrivals]]
    exactly: Callable[[int], Mapping[Value, Arrivals]]
    n: Form
    factors: Factors

    def ready(self, o: int) -> Arrivals:
        """When output ``o`` is ready after all iterations."""
        k, (chain,) = self.pacemaker
        ways = self._certain(k, o)
        found = []
        for way in ways:
            if way.form == chain.form:
                found.append(self._all(chain))
            elif below(way.form, chain.form + self._in(way.form, Form.atom(self.index) + 1), self.factors):
                found.append(self._all_but_last(chain).then(self._at_last(way)))
            else:
                raise self._refusal(f"an earlier iteration may have {self._named(o)!r} ready after a later one")
        if not found or any(self._exceeds(j, o, ways) for j in self._others(k)):
            raise self._refusal(f"{self._named(o)!r} may wait for something else than {self._named(k)!r}")
        return combine(self.starts[k], tuple(found), self.factors)

    @property
    def index(self) -> str:
        return str(self.op.index.name)

    @cached_property
    def pacemaker(self) -> tuple[int, Arrivals]:
        """The carried value whose one chain no other way exceeds, and that chain."""
        for k in (k for k in range(self.op.carried) if self.starts[k] and not self._is_late(k)):
            carried, own = range(self.op.carried), self._out(self.bounds[k], k)
            if len(own) == 1 and not any(self._exceeds(j, i, own) for j in (k, *self._others(k)) for i in carried):
                chain = self._certain(k, k)
                if [a.form for a in chain] == [a.form for a in own]:
                    return k, chain
        raise self._refusal("no carried value has a chain that is certainly the longest in every iteration")

    def _certain(self, k: int, o: int) -> Arrivals:
        """The exact ways, none of which may be in doubt."""
        found = self._out(self._exact(k), o)
        for way in found:
            if way.doubt:
                raise GraphError(way.doubt)
        return found

    def _exact(self, k: int) -> Mapping[Value, Arrivals]:
        if k not in self._known:
            self._known[k] = self.exactly(k)
        return self._known[k]

    @cached_property
    def _known(self) -> dict[int, Mapping[Value, Arrivals]]:
        return {}

    def _others(self, k: int) -> list[int]:
        """The other inputs that have a say: carried values, and what arrives from outside."""
        return [j for j in range(len(self.starts)) if j != k and (j < self.op.carried or self.starts[j])]

    def _is_late(self, k: int) -> bool:
        mine = [a.form for a in self.starts[k]]
        return not all(below_any(a.form, mine, self.factors) for j in self._others(k) for a in self.starts[j])

    def _exceeds(self, j: int, o: int, ways: Arrivals) -> bool:
        """May a way from input ``j`` to output ``o`` be longer than those given?"""
        return not all(below_any(a.form, [w.form for w in ways], self.factors) for a in self._out(self.bounds[j], o))

    def _out(self, reach: Mapping[Value, Arrivals], o: int) -> Arrivals:
        return reach.get(list(self.op.body.outputs.values())[o], ())

    def _named(self, o: int) -> str:
        return list(self.op.body.outputs)[o]

    # -- sums over the iterations -------------------------------------------------------------------------------------
    def _all(self, chain: Arrival) -> Arrival:
        steps = tuple(Step(s.where, ONE, over_iterations(s.times * s.amount, self.op)) for s in chain.steps)
        return Arrival(over_iterations(chain.form, self.op), steps)

    def _all_but_last(self, chain: Arrival) -> Arrival:
        whole, end = self._all(chain), self._at_last(chain)
        steps = (Step(a.where, ONE, a.amount - b.amount) for a, b in zip(whole.steps, end.steps, strict=True))
        return Arrival(whole.form - end.form, tuple(steps))

    def _at_last(self, way: Arrival) -> Arrival:
        steps = tuple(Step(s.where, ONE, self._in(s.times * s.amount, self.n)) for s in way.steps)
        return Arrival(self._in(way.form, self.n), steps)

    def _in(self, form: Form, iteration: Form) -> Form:
        return form.substitute({self.index: iteration})

    def _refusal(self, why: str) -> GraphError:
        return GraphError(
            f"{self.node.name}: the depth of this scan has no closed form, because {why}; unroll it for given sizes"
        )
