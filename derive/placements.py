"""Work, depth and memory of the stages of one training iteration under a placement.

A placement adds edges to the graph of invocations: an exclusive group runs its invocations in program order, and a
barrier holds a stage back until the one before is over.  Work is a sum over invocations, depth the longest path, and
memory the heaviest set of buffers on one group that some order of execution lets exist at the same time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import networkx as nx

from derive.building_blocks import Blocks
from derive.convex import pruned
from derive.dominance import Factors, as_factors
from derive.forms import Form, Max, total
from derive.interchange import from_sympy
from derive.maxplus import START, Arrival, Arrivals, Step, as_max, combine, join
from derive.measure import Measured
from derive.memory import ADAM_COPIES
from graphs.errors import GraphError
from graphs.placements import Group, Placement, placement
from graphs.stages import Options, StageGraph, stage_graph
from graphs.stages.stage import ASSESSMENT, GENERATION, STAGES, TRAINED, TRAINING, Invocation, Node

ZERO = Form.constant(0)
ONE = Form.constant(1)
RESIDENCIES = ("invocation", "stage", "all")


@dataclass(frozen=True)
class StageQuestion:
    """A stage (or, without one, the whole iteration) of an algorithm under a placement and a set of conventions.

    ``algorithm`` is a name, or a graph of one's own, which is taken as it is.
    ``one_at_a_time`` False lets every group run invocations side by side.  ``residency`` says which models are in
    memory: those of the invocations that run, those of the stage, or all that the group serves.  ``glue`` charges
    recursions between invocations.  ``over_all_groups`` adds memory up instead of taking the heaviest group.
    """

    algorithm: str | StageGraph = "PPO"
    placement: Placement = field(default_factory=lambda: placement("baseline"))
    stage: str | None = None
    options: Options = field(default_factory=Options)
    one_at_a_time: bool = True
    residency: str = "stage"
    glue: bool = False
    copies: int = ADAM_COPIES
    over_all_groups: bool = False
    blocks: Blocks = field(default_factory=Blocks)

    def __post_init__(self) -> None:
        if self.residency not in RESIDENCIES:
            raise GraphError(f"no residency is called {self.residency!r}; use one of {', '.join(RESIDENCIES)}")
        if self.stage not in (None, *STAGES):
            raise GraphError(f"no stage is called {self.stage!r}; use one of {', '.join(STAGES)}")

    #: the graph of stages is not partitioned; its invocations may be
    scheme = "None"

    @property
    def factors(self) -> Factors:
        return as_factors(self.blocks.factors(self.model(n) for n in self.graph.invocations))

    @cached_property
    def graph(self) -> StageGraph:
        if isinstance(self.algorithm, StageGraph):
            return self.algorithm
        return stage_graph(self.algorithm, replace(self.options, shared=self.placement.shared))

    @cached_property
    def stages(self) -> tuple[str, ...]:
        """The stages that are asked about and have an invocation."""
        wanted = STAGES if self.stage is None else (self.stage,)
        return tuple(s for s in wanted if any(n.stage == s for n in self.graph.invocations))

    def model(self, node: Invocation) -> str:
        return self.graph.model(node.role)

    def group(self, node: Invocation) -> Group:
        found = self.placement.group(node.stage, node.role)
        return found if self.one_at_a_time else replace(found, exclusive=False)


# -- work -------------------------------------------------------------------------------------------------------------
def stage_work(q: StageQuestion) -> Measured:
    """FLOPs of all invocations; where they run makes no difference."""
    parts = [(n.name, q.blocks.work(n, q.model(n))) for n in q.graph.invocations if n.stage in q.stages]
    return Measured(Max.of(total(f for _, f in parts)), tuple(parts))


# -- depth ------------------------------------------------------------------------------------------------------------
def queues(q: StageQuestion) -> dict[str, list[Invocation]]:
    """The invocations of each exclusive group, in program order."""
    out: dict[str, list[Invocation]] = {}
    for node in q.graph.invocations:
        if q.group(node).exclusive:
            out.setdefault(q.group(node).name, []).append(node)
    return out


def schedule(q: StageQuestion) -> nx.DiGraph:
    """The graph of one iteration with the edges that the placement adds; a barrier is a node of its own."""
    out = q.graph.digraph.copy()
    for queue in queues(q).values():
        nx.add_path(out, [n.name for n in queue])
    for before, after in q.placement.barriers:
        bar = f"barrier before {after}"
        out.add_edges_from((n.name, bar) for n in q.graph.nodes if STAGES.index(n.stage) <= STAGES.index(before))
        out.add_edges_from((bar, n.name) for n in q.graph.nodes if STAGES.index(n.stage) >= STAGES.index(after))
    if not nx.is_directed_acyclic_graph(out):
        raise GraphError(f"placement {q.placement.name}: its program order runs against the data; reorder the nodes")
    return out


def delay(q: StageQuestion, node: Node | None) -> Arrivals:
    """What a node adds to a path through it."""
    if node is None or (not isinstance(node, Invocation) and not (q.glue and node.chain)):
        return START
    if isinstance(node, Invocation):
        found = q.blocks.depth(node, q.model(node), q.placement.schemes_of(node.stage))
    else:
        assert node.chain is not None
        found = Max.of(from_sympy(node.trips) * from_sympy(node.chain.size))
    return tuple(Arrival(f, (Step(node.name, ONE, f),)) for f in found.members)


def longest_path(q: StageQuestion, order: nx.DiGraph) -> Arrivals:
    """The latest arrival at the end of the graph."""
    ready: dict[str, Arrivals] = {}
    for name in nx.lexicographical_topological_sort(order):
        before = [a for p in order.predecessors(name) for a in ready[p]] or START
        ready[name] = combine(join(before, q.factors), delay(q, q.graph.by_name.get(name)), q.factors)
    return join([a for found in ready.values() for a in found] or START, q.factors)


def stage_depth(q: StageQuestion) -> Measured:
    """Longest path through the nodes of the stage, or of the iteration with its barriers."""
    order = schedule(q)
    if q.stage is not None:
        order = order.subgraph([n.name for n in q.graph.in_stage(q.stage)])
    found = longest_path(q, order)
    value = pruned(as_max(found), q.factors)
    found = tuple(a for a in found if a.form in value.members)
    several = len(found) > 1
    parts = [
        (f"path {i + 1}: {s.where}" if several else s.where, s.amount) for i, a in enumerate(found) for s in a.steps
    ]
    return Measured(value, tuple(parts))


def depth_in_waves(q: StageQuestion, waves: Form) -> Max:
    """Depth of generation and assessment where the batch goes through in so many parts, one after the other.

    Each part takes as long as the whole batch does at once.  Fused, a part is assessed while the next one is generated,
    ``a + b + (n - 1) max(a, b)``; behind a barrier, or on one exclusive group, nothing overlaps.
    """
    first, second = (stage_depth(replace(q, stage=stage)).value for stage in (GENERATION, ASSESSMENT))
    groups = [{q.group(n) for n in q.graph.invocations if n.stage == stage} for stage in (GENERATION, ASSESSMENT)]
    if (GENERATION, ASSESSMENT) in q.placement.barriers or any(g.exclusive for g in groups[0] & groups[1]):
        return first.scale(waves) + second.scale(waves)
    return pruned(Max.of(first.scale(waves) + second, first + second.scale(waves)), q.factors)


# -- memory -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Buffer:
    """Something that occupies memory on a group for a while; its size may be a maximum."""

    where: str
    group: str
    size: Max


def stage_memory(q: StageQuestion) -> Measured:
    """The heaviest set of coexisting buffers on one device group, over the groups that are active in the stage.

    Stages that a missing barrier lets overlap are measured together.
    """
    together: set[frozenset[Buffer]] = set()
    for phase in q.placement.phases:
        nodes = [n for n in q.graph.invocations if n.stage in phase]
        if not set(phase) & set(q.stages) or not nodes:
            continue
        active = sorted({q.group(n).name for n in nodes if n.stage in q.stages})
        resident = residents(q, phase, active)
        for alive in states(q, nodes):
            there = frozenset(b for b in alive | resident if b.group in active)
            places = [active] if q.over_all_groups else [[group] for group in active]
            together |= {frozenset(b for b in there if b.group in groups) for groups in places}
    ordered = sorted(together, key=lambda s: sorted((b.group, b.where) for b in s))
    heaviest = [found for found in ordered if not any(found < other for other in ordered)]
    peaks = {total(size for _, size in held): held for found in heaviest for held in _alternatives(found, q.factors)}
    if not peaks:
        return Measured(Max.of(ZERO), ())
    value = pruned(Max.of(*peaks), q.factors)
    several = len(value.members) > 1
    parts: list[tuple[str, Form]] = []
    for i, form in enumerate(value.members):
        label = f"set {i + 1}: " if several else ""
        parts += [(label + where, size) for where, size in peaks[form] if size]
    return Measured(value, tuple(parts))


#: buffers by name, each with one of the sizes it may have
Held = tuple[tuple[str, Form], ...]


def _alternatives(buffers: Iterable[Buffer], factors: Factors) -> Iterator[Held]:
    """The sizes that buffers may have together: each is one member of its maximum."""
    ordered = sorted(buffers, key=lambda b: b.where)
    return itertools.product(*([(b.where, f) for f in pruned(b.size, factors).members] for b in ordered))


def residents(q: StageQuestion, phase: tuple[str, ...], active: Iterable[str]) -> frozenset[Buffer]:
    """Models that stay in memory while the stages of the phase run, with the training state of those being trained."""
    out: dict[tuple[str, str], Form] = {}
    for node in q.graph.invocations:
        group, model = q.group(node).name, q.model(node)
        if group not in active:
            continue
        if is_stale(q, node):
            out[group, f"snapshot of {model}"] = q.blocks.shadow(model)
        elif q.residency == "all" or (q.residency == "stage" and node.stage in phase):
            copies = q.copies if node.stage == TRAINING else 1  # training comes last, so its copies stand
            out[group, f"weights of {model}"] = copies * q.blocks.weights(model)
    return frozenset(Buffer(where, group, Max.of(size)) for (group, where), size in out.items())


def is_stale(q: StageQuestion, node: Invocation) -> bool:
    """Does the pass use an older copy of a model that is trained meanwhile?"""
    return q.placement.staleness is not None and node.role in TRAINED and node.stage != TRAINING


def states(q: StageQuestion, nodes: list[Invocation]) -> Iterator[frozenset[Buffer]]:
    """Sets of buffers that exist together at some instant of some order of execution, without dominated ones.

    An instant is given by the invocations that are over, of which each has those before it too; everything that can run
    then does, because running more frees nothing.
    """
    before = _predecessors(q, nodes)
    found: set[frozenset[Buffer]] = set()
    seen: set[frozenset[str]] = set()
    todo: list[frozenset[str]] = [frozenset()]
    while todo:
        done = todo.pop()
        if done in seen:
            continue
        seen.add(done)
        running = frozenset(n.name for n in nodes if n.name not in done and before[n.name] <= done)
        found.add(frozenset(_alive(q, nodes, done, running)))
        todo += [done | {name} for name in sorted(running)]
    maximal = [s for s in found if not any(s < other for other in found)]
    yield from sorted(maximal, key=lambda s: sorted(b.where for b in s))


def _predecessors(q: StageQuestion, nodes: list[Invocation]) -> Mapping[str, frozenset[str]]:
    order = schedule(q)
    names = {n.name for n in nodes}
    return {name: frozenset(nx.ancestors(order, name) & names) for name in sorted(names)}


def _alive(
    q: StageQuestion, nodes: list[Invocation], done: frozenset[str], running: frozenset[str]
) -> Iterator[Buffer]:
    for node in nodes:
        reader = q.graph.reader_of_activations(node)
        held = node.name in running or (reader is not None and node.name in done and reader not in done)
        if not held:
            continue
        model, group = q.model(node), q.group(node).name
        size = q.blocks.buffer(node, model, kept=reader is not None)
        if any(size.members):
            yield Buffer(f"buffers of {node.name}", group, size)
        if q.residency == "invocation" and not is_stale(q, node):
            copies = q.copies if node.stage == TRAINING else 1
            yield Buffer(f"weights of {model}", group, Max.of(copies * q.blocks.weights(model)))
