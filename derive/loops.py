"""How long a loop takes, in closed form: a loop body is a small max-plus matrix from its inputs to its outputs.

Carried values may feed each other in one direction.  One that starts at c with chain a per iteration ends at c + n a;
one that it feeds by b, with a chain e of its own, at c + b + (n-1) max(a, e).  A stacked output that reads the first
by s is ready at c + (n-1) a + s.  Another input that arrives at t and enters the chain by p gives t + p + (n-1) a, and
t + p + (n-2) a + s, which is a path for n >= 2 only.  Such a form is used where it is harmless for n = 1, else it is in
doubt: harmless still where something beyond doubt comes later, within a surrounding loop or at the end, else refused.
A toll, paid once on every way through carried values, is added to each.  A loop of a symbolic number of iterations is
taken to run at least once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import networkx as nx

from derive.dominance import Factors, below_any
from derive.forms import Form
from derive.maxplus import ONE, START, ZERO, Arrival, Arrivals, Step, combine, join
from graphs.errors import GraphError
from graphs.ir import Node, Value
from graphs.ops.repeat import Repeat


@dataclass(frozen=True)
class Path:
    """A path through a loop of n iterations: ``base`` once and ``trip`` n - ``spent`` times, for least <= n <= most."""

    base: Arrival
    trip: Arrival | None
    spent: int
    least: int
    most: int | None = None

    def exists(self, n: int) -> bool:
        return self.least <= n and (self.most is None or n <= self.most)

    def length(self, n: Form) -> Arrival:
        if self.trip is None:
            return self.base
        times, doubt = n - self.spent, self.base.doubt or self.trip.doubt
        steps = tuple(Step(s.where, s.times * times, s.amount) for s in self.trip.steps)
        return Arrival(self.base.form + self.trip.form * times, self.base.steps + steps, doubt)

    @property
    def is_certain(self) -> bool:
        return not self.base.doubt and not (self.trip and self.trip.doubt)


@dataclass(frozen=True)
class Course:
    """A way through carried values, each feeding the next: its steps, and the chains it can wait in meanwhile."""

    once: Arrivals
    chains: Arrivals
    length: int


@dataclass(frozen=True, eq=False)
class Loop:
    """When a loop's operands arrive, and how long from each input to each output of its body.

    ``toll``: what the carried values pay once, on their way from the first iteration to the last.
    ``at_most``: a formula that some numbers of iterations stay below is good enough.
    """

    node: Node
    op: Repeat
    starts: tuple[Arrivals, ...]
    reach: tuple[Mapping[Value, Arrivals], ...]
    n: Form
    factors: Factors
    toll: Form = ZERO
    at_most: bool = False

    def ready(self, o: int) -> Arrivals:
        """When output ``o`` is ready after all iterations."""
        paths = list(self._carried_paths(o) if o < self.op.carried else self._side_paths(o))
        if self.n.terms.keys() <= {()}:
            count = int(self.n.evaluate({}))
            if count == 0:
                return self.starts[o] if o < self.op.carried else ()
            return join((p.length(self.n) for p in paths if p.exists(count)), self.factors)
        doubt = (
            f"{self.node.name}: no one formula says when {list(self.op.body.outputs)[o]!r} is ready for every number of"
            " iterations, because a value may delay the carried chain; give the loop axis a number"
        )
        return join((self._latest(p, paths, doubt) for p in paths), self.factors)

    def _to(self, j: int, o: int) -> Arrivals:
        """From body input ``j`` to body output ``o`` within one iteration."""
        return self.reach[j].get(list(self.op.body.outputs.values())[o], ())

    def _carried_paths(self, o: int) -> Iterator[Path]:
        for k in range(self.op.carried):
            for course in self._courses.get((k, o), ()):
                yield from self._through(self.starts[k], course, START, 0, exactly=True)
                yield from self._through(self._late[k], course, START, 1)

    def _side_paths(self, o: int) -> Iterator[Path]:
        for (k, i), courses in self._courses.items():
            for course in courses:
                yield from self._through(self.starts[k], course, self._to(i, o), 1)
                yield from self._through(self._late[k], course, self._to(i, o), 2)
        for j in range(self.op.carried, len(self.starts)):
            for direct in combine(self.starts[j], self._to(j, o), self.factors):
                yield Path(direct, None, 0, 1)

    def _through(
        self, start: Arrivals, course: Course, end: Arrivals, spent: int, exactly: bool = False
    ) -> Iterator[Path]:
        """Paths that spend ``spent`` iterations around a course, and all the others (``exactly``) or some in it."""
        used = spent + course.length
        for base in combine(combine(start, course.once, self.factors), end, self.factors):
            for trip in course.chains:
                yield Path(base, trip, used, max(used, 1))
            if not course.chains and (used or not exactly):
                yield Path(base, None, used, max(used, 1), used if exactly else None)

    @cached_property
    def _courses(self) -> dict[tuple[int, int], list[Course]]:
        """All ways from one carried value to another, or of waiting in the same one."""
        carried, names = range(self.op.carried), list(self.op.body.inputs)
        net = nx.DiGraph((k, i) for k in carried for i in carried if k != i and self._to(k, i))
        net.add_nodes_from(carried)
        if not nx.is_directed_acyclic_graph(net):
            k, i = nx.find_cycle(net)[0]
            raise GraphError(
                f"{self.node.name}: the carried values {names[k]!r} and {names[i]!r} feed each other, which has no"
                " closed-form depth; let one feed the other only"
            )
        ways = {(k, i): [[k]] if k == i else list(nx.all_simple_paths(net, k, i)) for k in carried for i in carried}
        return {ends: [self._course(way) for way in found] for ends, found in ways.items()}

    def _course(self, way: Sequence[int]) -> Course:
        once: Arrivals = (Arrival(self.toll, (Step(self.node.name, ONE, self.toll),)),) if self.toll else START
        for k, i in itertools.pairwise(way):
            once = combine(once, self._to(k, i), self.factors)
        return Course(once, join((a for k in way for a in self._to(k, k)), self.factors), len(way) - 1)

    @cached_property
    def _late(self) -> list[Arrivals]:
        """For each carried value, entries from other inputs that its own chain may have to wait for."""
        out = []
        for k in range(self.op.carried):
            entries = self._first(k, range(self.op.carried, len(self.starts)))
            if self._to(k, k):
                own = [x.form for x in self._first(k, range(self.op.carried)) if not x.doubt]
                entries = [d for d in entries if not below_any(d.form, own, self.factors, self.n)]
            out.append(join(entries, self.factors))
        return out

    def _first(self, k: int, inputs: Sequence[int]) -> list[Arrival]:
        """When some inputs let carried value ``k`` be ready after one iteration."""
        return [x for j in inputs for x in combine(self.starts[j], self._to(j, k), self.factors)]

    def _latest(self, path: Path, paths: list[Path], doubt: str) -> Arrival:
        """The end of the path, in doubt where it would count for so few iterations that there is no such path."""
        length = path.length(self.n)
        if self.at_most:
            return replace(length, doubt="")
        return length if self._is_harmless(path, paths) else replace(length, doubt=length.doubt or doubt)

    def _is_harmless(self, path: Path, paths: list[Path]) -> bool:
        """True where the path is below the others for every number of iterations that it does not exist for."""
        for n in range(1, path.least):
            here = Form.constant(n)
            others = [p.length(here).form for p in paths if p.is_certain and p.exists(n)]
            if not below_any(path.length(here).form, others, self.factors, self.n):
                return False
        always = [p.length(self.n).form for p in paths if p.is_certain and p.least == 1 and p.most is None]
        return path.most is None or below_any(path.base.form, always, self.factors, self.n)
