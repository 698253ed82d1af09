"""Makespans of pipeline schedules for every number of stages and micro-batches, by induction on the grid of tasks.

A proof gives each task a start time in closed form, and names the edges as families over the indices s (stage) and i
(place among the forward, or among the backward, passes of that stage).

*Upper bound*: along every edge the head starts no earlier than the tail ends, so by induction in order of execution a
task that starts as soon as it can starts no later than its closed form says, and all end by the makespan.
*Lower bound*: a chain of edges, one after the other, is as long as the makespan.

`check` works for all sizes at once, in exact arithmetic.  That the families hold the edges of the schedule's graph is
compared size by size with `edges_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from derive.asymptotics.simplex import Budget, Program
from derive.forms import Form, symbol, total
from graphs.schedules import Kind, Pipeline, Task

S, I, K, C = symbol("s"), symbol("i"), symbol("k"), symbol("c")
ZERO, ONE = Form.constant(0), Form.constant(1)


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


Bound = tuple[tuple[Form, ...], ...]  # the greatest of some leasts


def least(*forms: Form) -> Bound:
    return (forms,)


def greatest(*forms: Form | Bound) -> Bound:
    return tuple(piece for form in forms for piece in (((form,),) if isinstance(form, Form) else form))


@dataclass(frozen=True)
class Time:
    """A sum of durations that are >= 0: how many of each, in the order of the proof's ``durations``."""

    counts: tuple[Bound, ...]

    @staticmethod
    def of(*counts: Form | Bound) -> Time:
        return Time(tuple(greatest(count) for count in counts))

    def at(self, place: Place) -> Time:
        values = {"s": place.stage, "i": place.index}
        return self._each(lambda form, _: form.substitute(values))

    def plus(self, counts: Sequence[int]) -> Time:
        return self._each(lambda form, k: form + counts[k])

    def evaluate(self, sizes: Mapping[str, int]) -> list[Fraction]:
        """The counts at given sizes."""
        return [max(min(f.evaluate(sizes) for f in piece) for piece in bound) for bound in self.counts]

    def _each(self, change: Callable[[Form, int], Form]) -> Time:
        return Time(
            tuple(tuple(tuple(change(f, k) for f in piece) for piece in bound) for k, bound in enumerate(self.counts))
        )


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


def as_they_come(_: Pipeline, kind: Kind, stage: int, index: int) -> Task:
    """One chunk on each stage, micro-batches in order."""
    return Task(kind, stage, index)


@dataclass(frozen=True)
class Proof:
    """``sizes`` and ``grid`` are forms >= 0: what is assumed of the sizes, and the ranges of s and i.

    All times are counted in ``durations``, each assumed >= 0, and ``passes`` says how many of each a pass takes.
    ``task`` says which task is at a place, for given sizes.
    """

    schedule: str
    sizes: tuple[Form, ...]
    grid: tuple[Form, ...]
    durations: tuple[Form, ...]
    passes: Mapping[Kind, tuple[int, ...]]
    makespan: tuple[Form, ...]
    starts: Mapping[Kind, Time]
    edges: Mapping[str, Edges]
    chain: tuple[Run, ...]
    task: Callable[[Pipeline, Kind, int, int], Task] = as_they_come

    @property
    def makespan_in_time(self) -> Form:
        return total(count * duration for count, duration in zip(self.makespan, self.durations, strict=True))

    def start(self, place: Place) -> Time:
        return self.starts[place.kind].at(place)

    def end(self, place: Place) -> Time:
        return self.start(place).plus(self.passes[place.kind])

    def domain(self, edges: Edges) -> tuple[Form, ...]:
        """Forms that are >= 0 where the edges are."""
        ends = (f.substitute({"s": p.stage, "i": p.index}) for p in (edges.tail, edges.head) for f in self.grid)
        return tuple(dict.fromkeys((*self.sizes, *self.grid, *ends, *edges.where)))


def check(proof: Proof) -> None:
    """Verify the proof for all sizes and durations that it assumes; ProofError names the step that fails."""
    tasks_start_after_those_they_need(proof)
    tasks_end_by_the_makespan(proof)
    chain_is_as_long_as_the_makespan(proof)


def tasks_start_after_those_they_need(proof: Proof) -> None:
    for kind in proof.starts:
        place = Place(kind, S, I)
        _demand_order(
            Time.of(*(ZERO for _ in proof.durations)),
            proof.start(place),
            (*proof.sizes, *proof.grid),
            f"{place} starts before 0",
        )
    for name, edges in proof.edges.items():
        _demand_order(
            proof.end(edges.tail), proof.start(edges.head), proof.domain(edges), f"edges {name}: the head is too early"
        )


def tasks_end_by_the_makespan(proof: Proof) -> None:
    last = Time.of(*proof.makespan)
    for kind in proof.starts:
        place = Place(kind, S, I)
        _demand_order(proof.end(place), last, (*proof.sizes, *proof.grid), f"{place} ends after the makespan")


def chain_is_as_long_as_the_makespan(proof: Proof) -> None:
    here = _begin(proof, proof.chain[0])
    tasks: list[tuple[Kind, Form]] = []
    for run in proof.chain:
        if _begin(proof, run) != here:
            raise ProofError(f"the chain is at {here}, where {run.names[0]} does not begin")
        here = _follow(proof, run)
        tasks += [(proof.edges[name].tail.kind, run.times) for name in run.names]
    tasks.append((here.kind, ONE))
    for k, duration in enumerate(proof.durations):
        found = total(times * proof.passes[kind][k] for kind, times in tasks)
        if found != proof.makespan[k]:
            raise ProofError(f"the chain takes {duration} {found} times, the makespan {proof.makespan[k]} times")


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
    return proof.edges[run.names[0]].tail.at(s=run.s, i=run.i).at(k=ZERO)


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
    """``early`` <= ``late`` for all durations >= 0: shown for the count of each duration by itself."""
    for low, high in zip(early.counts, late.counts, strict=True):
        for piece in low:
            if not any(_is_below(piece, other, domain) for other in high):
                raise ProofError(f"{otherwise} ({', '.join(f.text for f in piece)} is not shown to be below)")


def _is_below(low: tuple[Form, ...], high: tuple[Form, ...], domain: tuple[Form, ...]) -> bool:
    """The least of ``low`` is below the least of ``high``: each member of that has a member of this below it."""
    return all(any(_is_nonnegative(h - f, domain) for f in low) for h in high)


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
