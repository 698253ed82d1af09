"""Makespan, idle time and activations in flight of a pipeline schedule, by traversal of its graph.

Durations are exact rationals for one unit of layers.  Without a list of layers the unit is all that a rank holds, so
that a chunk has 1/n_vs of it and schedules with and without virtual stages compare; with a list it is one layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import networkx as nx

from derive.forms import Form, Max
from derive.maxplus import START, Arrival, Arrivals, as_max, combine, join
from graphs.errors import GraphError
from graphs.schedules import Kind, Pipeline, Schedule, Task
from graphs.schedules.schedule import SPLIT

Span = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Durations:
    """Time of the passes of one micro-batch through one unit of layers, and of a transfer to a neighbour.

    ``backward`` is the whole backward pass, ``weight_gradient`` the part of it that can wait; a transfer keeps neither
    rank busy.
    """

    forward: Fraction = Fraction(1)
    backward: Fraction = Fraction(2)
    weight_gradient: Fraction = Fraction(1)
    transfer: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.forward <= 0 or self.backward <= 0:
            raise GraphError("forward and backward pass take no time; give durations above 0")
        if not 0 <= self.weight_gradient <= self.backward:
            raise GraphError(
                f"a weight gradient of {self.weight_gradient} is not part of a backward pass of {self.backward}; give"
                " a duration between 0 and that"
            )
        if self.transfer < 0:
            raise GraphError(f"a transfer takes {self.transfer}; give a duration of at least 0")

    def of(self, kind: Kind) -> Fraction:
        return {
            Kind.FORWARD: self.forward,
            Kind.BACKWARD: self.backward,
            Kind.INPUT_GRADIENT: self.backward - self.weight_gradient,
            Kind.WEIGHT_GRADIENT: self.weight_gradient,
        }[kind]


@dataclass(frozen=True)
class Step:
    """One training step as it runs: when each task starts and ends, every task as early as its edges allow."""

    pipeline: Pipeline
    layers: tuple[Fraction, ...]
    ranks: tuple[tuple[Task, ...], ...]
    spans: Mapping[Task, Span]

    @cached_property
    def makespan(self) -> Fraction:
        return max(end for _, end in self.spans.values())

    @cached_property
    def busy(self) -> tuple[Fraction, ...]:
        """Useful time of each rank."""
        return tuple(sum((self._length(t) for t in tasks), Fraction(0)) for tasks in self.ranks)

    @property
    def useful(self) -> Fraction:
        """Useful time of all ranks together."""
        return sum(self.busy, Fraction(0))

    @property
    def idle(self) -> Fraction:
        """Time in which ranks wait, from the start of the step to its end, all ranks together."""
        return self.pipeline.stages * self.makespan - self.useful

    @property
    def bubble_over_ideal(self) -> Fraction:
        """Idle per useful time: how much longer the step takes than without waiting."""
        return self.idle / self.useful

    @property
    def bubble_over_total(self) -> Fraction:
        """Idle per available time: the share of the step that is lost; 1 minus the efficiency."""
        return self.idle / (self.idle + self.useful)

    @property
    def efficiency(self) -> Fraction:
        return 1 - self.bubble_over_total

    @cached_property
    def in_flight(self) -> tuple[int, ...]:
        """Most activations that each rank keeps at a time, one for a micro-batch in a chunk."""
        return tuple(int(_peak(tasks, lambda _: Fraction(1))) for tasks in self.ranks)

    @cached_property
    def in_flight_layers(self) -> tuple[Fraction, ...]:
        """The same with each activation weighted by the layers of its chunk."""
        return tuple(_peak(tasks, lambda task: self.layers[task.chunk]) for tasks in self.ranks)

    def _length(self, task: Task) -> Fraction:
        start, end = self.spans[task]
        return end - start


def run_step(
    schedule: Schedule,
    pipeline: Pipeline,
    durations: Durations = Durations(),
    layers: Sequence[int] | None = None,
) -> Step:
    """Time one training step.  ``layers`` says how many each chunk has, in the order of the forward pass."""
    return time_graph(schedule.graph(pipeline), pipeline, durations, layers)


def time_graph(
    graph: nx.DiGraph, pipeline: Pipeline, durations: Durations, layers: Sequence[int] | None = None
) -> Step:
    """Longest paths through a graph of `graphs.schedules.schedule.task_graph`."""
    weights = _weights(pipeline, layers)
    spans: dict[Task, Span] = {}
    for task in nx.topological_sort(graph):
        start = max((spans[u][1] + _wait(graph, u, task, durations) for u in graph.pred[task]), default=Fraction(0))
        spans[task] = start, start + durations.of(task.kind) * weights[task.chunk]
    ranks: list[list[Task]] = [[] for _ in range(pipeline.stages)]
    for task, rank in graph.nodes(data="rank"):
        ranks[rank].append(task)
    return Step(pipeline, weights, tuple(map(tuple, ranks)), spans)


def symbolic_makespan(graph: nx.DiGraph, durations: Mapping[Kind, Form]) -> Max:
    """Longest path for durations that are symbols, chunks all alike and transfers free: a maximum of sums.

    Durations may be any positive numbers: a sum scales with its durations, so dominance for sizes >= 1 is dominance.
    """
    ready: dict[Task, Arrivals] = {}
    for task in nx.topological_sort(graph):
        before = join((a for u in graph.pred[task] for a in ready[u]), ()) or START
        ready[task] = combine(before, (Arrival(durations[task.kind]),), ())
    return as_max(join((a for task in graph if not graph.succ[task] for a in ready[task]), ()))


def _weights(pipeline: Pipeline, layers: Sequence[int] | None) -> tuple[Fraction, ...]:
    if layers is None:
        return (Fraction(1, pipeline.virtual),) * pipeline.chunks
    if len(layers) != pipeline.chunks:
        raise GraphError(f"{len(layers)} numbers of layers for {pipeline.chunks} chunks; give one for each")
    for place, n in enumerate(layers, 1):
        if n < 1:
            raise GraphError(f"number {place} of the {len(layers)} numbers of layers is {n}; give at least one layer")
    return tuple(Fraction(n) for n in layers)


def _wait(graph: nx.DiGraph, before: Task, after: Task, durations: Durations) -> Fraction:
    return Fraction(0) if graph.nodes[before]["rank"] == graph.nodes[after]["rank"] else durations.transfer


def _peak(tasks: Sequence[Task], weight: Callable[[Task], Fraction]) -> Fraction:
    """Forward passes done whose last backward task is not; a weight gradient still needs its activations."""
    last = SPLIT[-1] if any(t.kind is SPLIT[-1] for t in tasks) else Kind.BACKWARD
    kept = most = Fraction(0)
    for task in tasks:
        if task.kind is Kind.FORWARD:
            kept += weight(task)
            most = max(most, kept)
        elif task.kind is last:
            kept -= weight(task)
    return most
