"""Makespans of pipeline schedules for every number of stages and micro-batches, by induction on the grid of tasks.

A proof gives each task a start time in closed form, and names the edges as families over the indices s (stage) and i
(place among the forward, or among the backward, passes of that stage).

*Upper bound*: along every edge the head starts no earlier than the tail ends, so by induction in order of execution no
task need start later than its closed form says, and all end by the makespan.  *Lower bound*: a chain of edges, one
after the other, is as long as the makespan.

`check` works for all sizes at once, in exact arithmetic.  That the families hold the edges of the schedule's graph is
compared size by size with `edges_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from derive.asymptotics.simplex import Budget, Program
from derive.forms import Form, symbol, total
from graphs.schedules import Kind, Pipeline, Task

S, I, K, C = symbol("s"), symbol("i"), symbol("k"), symbol("c")
ONE = Form.constant(1)


class ProofError(ValueError):
    """A step of a proof that does not hold; the message is one sentence that names it."""


@dataclass(frozen=True)
class Place:
    """A family of tasks: a kind, and stage and place in it as forms of the indices."""

    kind: Kind
    stage: Form
    index: Form

    def at(self, **values: Form) -> Place:
        return Place(self.kind, self.stage.substitute(values), self.index.substitute(values))

    def __str__(self) -> str:
        return f"{self.kind.value}({self.stage}, {self.index})"


@dataclass(frozen=True)
class Time:
    """The least of ``forward`` times t_F plus the greatest of ``backward`` times t_B, the times of one pass."""

    forward: tuple[Form, ...]
    backward: tuple[Form, ...]

    def at(self, place: Place) -> Time:
        values = {"s": place.stage, "i": place.index}
        return Time(*(tuple(f.substitute(values) for f in forms) for forms in (self.forward, self.backward)))

    def after(self, kind: Kind) -> Time:
        """One pass later."""
        if kind is Kind.FORWARD:
            return Time(tuple(f + 1 for f in self.forward), self.backward)
        return Time(self.forward, tuple(f + 1 for f in self.backward))


@dataclass(frozen=True)
class Edges:
    """Edges from ``tail`` to ``head`` wherever both lie on the grid and every form of ``where`` is >= 0.

    ``where`` may use a third index c, from 0 to n_vs - 1.
    """

    tail: Place
    head: Place
    where: tuple[Form, ...] = ()


@dataclass(frozen=True)
class Run:
    """Part of a chain: the named edges one after the other at (s, i), for k = 0 ... ``times`` - 1."""

    names: tuple[str, ...]
    s: Form
    i: Form
    times: Form


def as_they_come(pipeline: Pipeline, kind: Kind, stage: int, index: int) -> Task:
    """One chunk on each stage, micro-batches in order."""
    return Task(kind, stage, index)


@dataclass(frozen=True)
class Proof:
    """``sizes`` and ``grid`` are forms >= 0: what is assumed of the sizes, and the ranges of s and i.

    ``makespan`` counts forward and backward passes; a pass is ``share`` of all that a rank does for a micro-batch.
    ``task`` says which task is at a place, for given sizes.
    """

    schedule: str
    sizes: tuple[Form, ...]
    grid: tuple[Form, ...]
    makespan: tuple[Form, Form]
    starts: Mapping[Kind, Time]
    edges: Mapping[str, Edges]
    chain: tuple[Run, ...]
    share: Form = ONE
    task: Callable[[Pipeline, Kind, int, int], Task] = as_they_come

    def makespan_of(self, forward: Form, backward: Form) -> Form:
        """In time, where these are a rank's forward and backward pass of one micro-batch."""
        return self.share * (self.makespan[0] * forward + self.makespan[1] * backward)

    def start(self, place: Place) -> Time:
        return self.starts[place.kind].at(place)

    def end(self, place: Place) -> Time:
        return self.start(place).after(place.kind)

    def domain(self, edges: Edges) -> tuple[Form, ...]:
        """Forms that are >= 0 where the edges are."""
        ends = (f.substitute({"s": p.stage, "i": p.index}) for p in (edges.tail, edges.head) for f in self.grid)
        return tuple(dict.fromkeys((*self.sizes, *self.grid, *ends, *edges.where)))


def check(proof: Proof) -> None:
    """Verify the proof for all sizes and all durations > 0; ProofError names the step that fails."""
    tasks_start_after_those_they_need(proof)
    tasks_end_by_the_makespan(proof)
    chain_is_as_long_as_the_makespan(proof)


def tasks_start_after_those_they_need(proof: Proof) -> None:
    for kind in proof.starts:
        place = Place(kind, S, I)
        nothing = Time((Form.constant(0),), (Form.constant(0),))
        _demand_order(nothing, proof.start(place), (*proof.sizes, *proof.grid), f"{place} starts before 0")
    for name, edges in proof.edges.items():
        _demand_order(
            proof.end(edges.tail), proof.start(edges.head), proof.domain(edges), f"edges {name}: the head is too early"
        )


def tasks_end_by_the_makespan(proof: Proof) -> None:
    last = Time(*((passes,) for passes in proof.makespan))
    for kind in proof.starts:
        place = Place(kind, S, I)
        _demand_order(proof.end(place), last, (*proof.sizes, *proof.grid), f"{place} ends after the makespan")


def chain_is_as_long_as_the_makespan(proof: Proof) -> None:
    here = _begin(proof, proof.chain[0])
    passes: list[tuple[Kind, Form]] = []
    for run in proof.chain:
        if _begin(proof, run) != here:
            raise ProofError(f"the chain is at {here}, where {run.names[0]} does not begin")
        here = _follow(proof, run)
        passes += [(proof.edges[name].tail.kind, run.times) for name in run.names]
    passes.append((here.kind, ONE))
    for kind, wanted in zip((Kind.FORWARD, Kind.BACKWARD), proof.makespan, strict=True):
        found = total(times for k, times in passes if k is kind)
        if found != wanted:
            raise ProofError(f"the chain has {found} passes {kind.value}, not the {wanted} of the makespan")


def edges_of(proof: Proof, pipeline: Pipeline, names: Iterable[str] | None = None) -> set[tuple[Task, Task]]:
    """The edges that the proof is about, or those of the named families, for given sizes."""
    sizes = {"P_p": pipeline.stages, "n_mb": pipeline.micro_batches, "n_vs": pipeline.virtual}
    places = [
        sizes | {"s": s, "i": i, "c": c}
        for s in range(pipeline.stages)
        for i in range(pipeline.micro_batches * pipeline.virtual)
        for c in range(pipeline.virtual)
    ]
    return {
        (_task(proof, pipeline, edges.tail, values), _task(proof, pipeline, edges.head, values))
        for edges in (proof.edges[name] for name in (proof.edges if names is None else names))
        for domain in [proof.domain(edges)]
        for values in places
        if all(form.evaluate(values) >= 0 for form in domain)
    }


def _task(proof: Proof, pipeline: Pipeline, place: Place, values: Mapping[str, int]) -> Task:
    return proof.task(pipeline, place.kind, int(place.stage.evaluate(values)), int(place.index.evaluate(values)))


def _begin(proof: Proof, run: Run) -> Place:
    return proof.edges[run.names[0]].tail.at(s=run.s, i=run.i).at(k=Form.constant(0))


def _follow(proof: Proof, run: Run) -> Place:
    """Where a run leads, after checking that its edges exist and join each other."""
    values, within = {"s": run.s, "i": run.i}, (*proof.sizes, K, run.times - 1 - K)
    begin = here = proof.edges[run.names[0]].tail.at(**values)
    for name in run.names:
        edges = proof.edges[name]
        if edges.tail.at(**values) != here:
            raise ProofError(f"the chain is at {here}, where {name} does not begin")
        for form in proof.domain(edges):
            if not _is_nonnegative(form.substitute(values), within):
                raise ProofError(f"edges {name}: there is none at {here}")
        here = edges.head.at(**values)
    if run.times != ONE:
        if not _is_nonnegative(run.times, proof.sizes):
            raise ProofError(f"a run of {', '.join(run.names)} may have a negative length")
        if here != begin.at(k=K + 1):
            raise ProofError(f"a run of {', '.join(run.names)} leads to {here}, where it does not go on")
    return here.at(k=run.times - 1)


def _demand_order(early: Time, late: Time, domain: tuple[Form, ...], otherwise: str) -> None:
    """``early`` <= ``late`` for all t_F, t_B > 0: a least is below another where each of that one's members has one of its
    own below it, a greatest where each of its own members has one above it."""
    for high in late.forward:
        if not any(_is_nonnegative(high - low, domain) for low in early.forward):
            raise ProofError(f"{otherwise} (forward passes: {high})")
    for low in early.backward:
        if not any(_is_nonnegative(high - low, domain) for high in late.backward):
            raise ProofError(f"{otherwise} (backward passes: {low})")


def _is_nonnegative(form: Form, facts: tuple[Form, ...]) -> bool:
    """True where ``form`` is a constant >= 0 plus nonnegative multiples of the facts (Farkas), checked by adding up."""
    columns = (ONE, *dict.fromkeys(facts))
    program = Program(Budget())
    for monomial in sorted({m for f in (form, *columns) for m in f.terms}):
        row = {k: f.terms[monomial] for k, f in enumerate(columns) if monomial in f.terms}
        program.add(row, "==", form.terms.get(monomial, Fraction(0)))
    found = program.solve()
    if found is None or any(c < 0 for c in found.values()):
        return False
    return total(columns[k] * c for k, c in found.items()) == form
