"""Communication: what every exchange of a partitioned graph moves, by phase, per rank and over all ranks.

A rank's exchanges are the collectives of its graph, those in loops times the trips that the rank makes, and what a
pipeline's stages hand on: each value carried by a loop over layers goes once over each boundary between two stages.
Exchanges of unlike tensors are not merged into buckets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction

from derive.costs.counting import product
from derive.costs.traffic import Traffic, handed_on, traffic_of
from derive.dominance import below, below_any
from derive.forms import Form, Max, symbol
from derive.interchange import from_sympy
from derive.measure import STEP, Question, graph_of
from derive.units import ELEMENTS, MESSAGES, STEPS, Quantity
from graphs.axes import Role
from graphs.errors import GraphError
from graphs.ir import UPDATE, Graph, Node
from graphs.ops.collective import Collective
from graphs.ops.repeat import Repeat
from graphs.schemes import schemes
from graphs.schemes.scheme import LAYER
from graphs.symbols import is_size

#: stages of a pipeline; there are inner ones from three stages on
POSITIONS = ("first", "inner", "last")
ORDER = ("forward", "recompute", "backward", UPDATE)
OTHER_END = {"first": "last", "last": "first"}
ONE = Form.constant(1)


@dataclass(frozen=True)
class Item:
    """One exchange: what a rank's graph says once, ``count`` times per rank, in each of ``groups`` groups of ranks.

    ``positions`` are the pipeline stages whose ranks send; ``axes`` and ``role`` are those of the tensor.
    """

    where: str
    phase: str
    action: str
    meshes: tuple[str, ...]
    axes: tuple[str, ...]
    role: Role
    traffic: Traffic
    groups: Form
    positions: tuple[str, ...] = POSITIONS
    count: Form = ONE
    in_loop: bool = False

    @property
    def mesh(self) -> str:
        return "*".join(self.meshes)

    @property
    def sent(self) -> Quantity:
        """By one of the ranks that send most."""
        return Quantity.of(self.count * self.traffic.sent, ELEMENTS)

    @property
    def messages(self) -> Quantity:
        return Quantity.of(self.count * self.traffic.messages, MESSAGES)

    @property
    def steps(self) -> Quantity:
        """Rounds, one after the other, in which a rank takes part."""
        return Quantity.of(self.count * self.traffic.steps, STEPS)

    @property
    def total(self) -> Quantity:
        """Sent by all ranks together."""
        return Quantity.of(self.count * self.groups * self.traffic.total, ELEMENTS)

    @property
    def total_messages(self) -> Quantity:
        return Quantity.of(self.count * self.groups * self.traffic.total_messages, MESSAGES)

    def within(self, loop: Node, trips: Form) -> Item:
        return replace(self, where=f"{loop.name}/{self.where}", count=trips * self.count, in_loop=True)

    def at(self, values: Mapping[str, Form]) -> Item:
        amounts = {f.name: getattr(self.traffic, f.name).substitute(values) for f in fields(Traffic)}
        count, groups = self.count.substitute(values), self.groups.substitute(values)
        return replace(self, traffic=Traffic(**amounts), count=count, groups=groups)


def items(graph: Graph, meshes: tuple[str, ...], algorithm: str = "ring") -> Iterator[Item]:
    """Every exchange of one rank's graph on a mesh of these dimensions, in order of execution."""
    for node in graph.nodes:
        if isinstance(node.op, Repeat):
            trips = from_sympy(node.op.axis.extent)
            yield from (item.within(node, trips) for item in items(node.op.body, meshes, algorithm))
            yield from _relay(node, node.op, meshes, algorithm)
        else:
            moved = traffic_of(graph, node, algorithm)
            if moved is not None and isinstance(node.op, Collective):
                yield _item(graph, node, node.op, moved, meshes)


def _item(graph: Graph, node: Node, op: Collective, moved: Traffic, meshes: tuple[str, ...]) -> Item:
    """An occurrence bound to a stage is done by the ranks of that stage alone; a send to it leaves the other end."""
    bound = {*op.meshes, pipeline(graph)} if node.stage else set(op.meshes)
    sender = OTHER_END[node.stage] if node.stage and op.action == "send" else node.stage
    positions = (sender,) if sender else POSITIONS
    tensor, groups = node.types[0], product(symbol(m) for m in meshes if m not in bound)
    return Item(node.name, node.phase, op.action, op.meshes, tensor.names, tensor.role, moved, groups, positions)


def pipeline(graph: Graph) -> str:
    """The mesh dimension over which the graph's loops are cut into stages."""
    for node in graph.nodes:
        if isinstance(node.op, Repeat) and node.op.axis.splits:
            return node.op.axis.splits[0].mesh
    raise GraphError(f"graph {graph.name}: an occurrence is bound to a pipeline stage, but no loop is split")


def _relay(node: Node, op: Repeat, meshes: tuple[str, ...], algorithm: str) -> Iterator[Item]:
    """What a loop that is cut into stages hands from each stage to the next."""
    for name, tensor, moved in handed_on(op, algorithm):
        mesh = op.axis.splits[0].mesh
        groups = (symbol(mesh) - 1) * product(symbol(m) for m in meshes if m != mesh)
        positions = tuple(p for p in POSITIONS if p != ("first" if op.reverse else "last"))
        where = f"{node.name}/{name}.hand_on"
        item = Item(where, node.phase, "send", (mesh,), tensor.names, tensor.role, moved, groups, positions)
        yield replace(item, in_loop=True)


@dataclass(frozen=True)
class Communication:
    """The exchanges of one training step; ``stages`` are the kinds of pipeline stage that exist."""

    question: Question
    algorithm: str
    items: tuple[Item, ...]
    stages: tuple[str, ...] = POSITIONS

    @property
    def phases(self) -> tuple[str, ...]:
        """Those with exchanges, in the order of the step."""
        return tuple(sorted({item.phase for item in self.items}, key=lambda p: ORDER.index(p) if p in ORDER else -1))

    def during(self, *phases: str) -> Communication:
        return replace(self, items=tuple(i for i in self.items if i.phase in phases))

    def per_rank(self, of: Callable[[Item], Quantity], unit: str) -> Quantity:
        """The sum on the rank that has most; a maximum where it depends on the sizes which stage that is."""
        sums = [self.at_stage(stage).overall(of, unit) for stage in self.busiest(of, unit)]
        return Quantity.of(Max.of(*(q.amount for q in sums)), unit)

    def at_stage(self, stage: str) -> Communication:
        return replace(self, items=tuple(i for i in self.items if stage in i.positions))

    def busiest(self, of: Callable[[Item], Quantity], unit: str) -> list[str]:
        """Stages of which none certainly has less than another that is kept; one of those that have the same."""
        kept: dict[Form, str] = {}
        for stage in self.stages:
            (form,) = self.at_stage(stage).overall(of, unit).amount.members
            if not below_any(form, list(kept), self.question.factors):
                kept = {f: s for f, s in kept.items() if not below(f, form, self.question.factors)} | {form: stage}
        return list(kept.values())

    def overall(self, of: Callable[[Item], Quantity], unit: str) -> Quantity:
        """The sum over all exchanges."""
        return Quantity.total((of(i) for i in self.items), unit)

    def at(self, sizes: Mapping[str, int]) -> Communication:
        """With numbers for some sizes; GraphError where they do not fit the scheme or the algorithm.

        One rank alone exchanges nothing, and two stages have none between them.
        """
        check_sizes(self.question, sizes, self.algorithm)
        kept = [i for i in self.items if any(sizes.get(m) != 1 for m in i.meshes)]
        values = {name: Form.constant(value) for name, value in sizes.items()}
        degree = sizes.get(schemes()[self.question.scheme].pipeline or "")
        if degree == 1:
            kept = [replace(i, positions=POSITIONS) for i in kept]
        stages = self.stages if degree is None or degree > 2 else tuple(OTHER_END)
        return replace(self, items=tuple(i.at(values) for i in kept), stages=stages)


def check_sizes(q: Question, sizes: Mapping[str, int], algorithm: str) -> None:
    """Sizes are known and positive, and the degrees suit the algorithm and divide what the scheme cuts."""
    for name, value in sizes.items():
        if not is_size(name):
            raise GraphError(f"no size is called {name!r}; use the names that graphs/symbols.py registers")
        if value < 1:
            raise GraphError(f"{name}={value} is not positive; a size is at least 1")
    cuts: dict[str, list[str]] = {}
    for entry in schemes()[q.scheme].entries:
        cuts.setdefault(entry.axis, []).append(entry.mesh)
        degree = sizes.get(entry.mesh, 1)
        if algorithm == "tree" and entry.axis != LAYER and degree & (degree - 1):
            raise GraphError(f"tree algorithms need a power of two, {entry.mesh}={degree} is none; use ring")
    axes = q.sizes.axes()
    for axis in sorted(cuts.keys() & axes.keys()):
        size = from_sympy(axes[axis].size)
        if size.symbols <= sizes.keys():
            _check_division(axis, size.evaluate(sizes), {m: sizes.get(m, 1) for m in dict.fromkeys(cuts[axis])})


def _check_division(axis: str, size: Fraction, degrees: Mapping[str, int]) -> None:
    if size % math.prod(degrees.values()):
        named = " and ".join(f"{mesh}={degree}" for mesh, degree in degrees.items())
        raise GraphError(f"{named} does not divide axis {axis!r} of size {size}; change one")


def communication(q: Question, algorithm: str = "ring") -> Communication:
    """Every exchange of one training step under the question's scheme."""
    found = items(graph_of(q, STEP), schemes()[q.scheme].meshes, algorithm)
    return Communication(q, algorithm, tuple(i for i in found if i.in_loop or not q.blocks_only))
