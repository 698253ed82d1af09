"""Brute force for placements: a clock and the events of an execution, with no edges, closures or paths.

Nothing here uses the project's schedule; it reads the nodes in program order and the declaration of the placement.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from graphs.placements import Placement
from graphs.stages.stage import STAGES, TRAINED, TRAINING, Invocation, StageGraph


def finish_times(graph: StageGraph, place: Placement, cost: dict[str, int], iterations: int) -> list[dict[str, int]]:
    """When each node of each iteration is over, everything starting as early as it may."""
    free: dict[str, int] = {}
    out: list[dict[str, int]] = []
    group = {n.name: place.group(n.stage, n.role) for n in graph.invocations}
    awaited = {n.name: [*n.inputs, *_held_back_by(graph, place, n)] for n in graph.nodes}
    for k in range(iterations):
        done: dict[str, int] = {}
        for node in graph.nodes:
            start = max([done[name] for name in awaited[node.name]], default=0)
            if isinstance(node, Invocation):
                here = group[node.name]
                start = max(start, weights_ready(graph, place, node, out, k))
                start = max(start, free.get(here.name, 0)) if here.exclusive else start
                start += cost[node.name]
                if here.exclusive:
                    free[here.name] = start
            done[node.name] = start
        out.append(done)
    return out


def _held_back_by(graph: StageGraph, place: Placement, node) -> list[str]:
    """Nodes on the far side of a barrier."""
    out: list[str] = []
    for before, after in place.barriers:
        if STAGES.index(node.stage) >= STAGES.index(after):
            out += [n.name for n in graph.nodes if STAGES.index(n.stage) <= STAGES.index(before)]
    return out


def weights_ready(graph: StageGraph, place: Placement, node: Invocation, past: list[dict[str, int]], k: int) -> int:
    """When the update that a pass over a trained model needs is over."""
    if node.role not in TRAINED or place.staleness is None:
        return 0
    behind = 1 if node.stage == TRAINING else 1 + place.staleness
    role = "actor" if graph.shared else node.role
    return past[k - behind].get(f"update_{role}", 0) if k >= behind else 0


def average_period(graph: StageGraph, place: Placement, cost: dict[str, int], warm: int = 180) -> Fraction:
    """Time per iteration once the pattern repeats; 60 iterations hold any number of tokens up to 6, and 10, 12, 15."""
    times = finish_times(graph, place, cost, warm + 61)
    return Fraction(max(times[-1].values()) - max(times[-61].values()), 60)


@dataclass
class Memory:
    """Peaks per group over every order of starting and finishing the invocations of some stages."""

    graph: StageGraph
    place: Placement
    stages: tuple[str, ...]
    size: dict[str, int]
    peak: dict[str, int] = field(default_factory=dict)
    seen: set[tuple[frozenset[str], frozenset[str]]] = field(default_factory=set)

    def explore(self) -> dict[str, int]:
        before = frozenset(n.name for n in self.graph.nodes if STAGES.index(n.stage) < STAGES.index(self.stages[0]))
        self._visit(before, frozenset())
        return self.peak

    def _visit(self, over: frozenset[str], running: frozenset[str]) -> None:
        if (over, running) in self.seen:
            return
        self.seen.add((over, running))
        self._weigh(over, running)
        for node in self.graph.nodes:
            if node.name in over | running or node.stage not in self.stages or not self._may_start(node, over, running):
                continue
            if isinstance(node, Invocation):
                self._visit(over, running | {node.name})
            else:
                self._visit(over | {node.name}, running)
        for name in running:
            self._visit(over | {name}, running - {name})

    def _may_start(self, node, over: frozenset[str], running: frozenset[str]) -> bool:
        if not set(node.inputs) <= over:
            return False
        for before, after in self.place.barriers:
            earlier = {n.name for n in self.graph.nodes if STAGES.index(n.stage) <= STAGES.index(before)}
            if STAGES.index(node.stage) >= STAGES.index(after) and not earlier <= over:
                return False
        if not isinstance(node, Invocation):
            return True
        group = self.place.group(node.stage, node.role)
        if not group.exclusive:
            return True
        queue = [n.name for n in self.graph.invocations if self.place.group(n.stage, n.role) == group]
        return set(queue[: queue.index(node.name)]) <= over and not running & set(queue)

    def _weigh(self, over: frozenset[str], running: frozenset[str]) -> None:
        held: dict[str, int] = {}
        for node in self.graph.invocations:
            reader = next(
                (n.name for n in self.graph.invocations if n.run.value == "backward" and node.name in n.inputs), None
            )
            kept = reader is not None and node.run.value == "forward" and node.name in over and reader not in over
            if node.stage in self.stages and (node.name in running or kept):
                group = self.place.group(node.stage, node.role).name
                held[group] = held.get(group, 0) + self.size[node.name]
        for group, total in held.items():
            self.peak[group] = max(self.peak.get(group, 0), total)
