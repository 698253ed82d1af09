"""Reverse mode: a forward graph with a scalar loss becomes a training graph.

Each op's vector-Jacobian rule says what the backward pass computes and, by what it asks the tape for, which forward
values must be kept.  A loop's backward is a loop over the reversed body.  Under recomputation the backward body
computes the values inside of some regions again, from what flows into them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import cast

import sympy

from graphs.axes import Role, Tensor
from graphs.errors import GraphError
from graphs.ir import ATTENTION, REGIONS, Builder, Graph, Node, Op, Value
from graphs.ops.constant import Broadcast, Constant
from graphs.ops.contraction import Contraction
from graphs.ops.pointwise import ONE, Pointwise
from graphs.ops.reduction import Reduction
from graphs.ops.repeat import Repeat
from graphs.ops.scan import Scan


class Recompute(Enum):
    """What a training step computes again instead of keeping it: nothing, the attention region, or whole layers."""

    NONE = "none"
    SELECTIVE = "selective"
    LAYER_BOUNDARY = "layer_boundary"

    @property
    def regions(self) -> tuple[str | None, ...]:
        """The regions of a loop body that are computed again (None: what lies in no region)."""
        return {"none": (), "selective": (ATTENTION,), "layer_boundary": (None, *REGIONS)}[self.value]


@dataclass
class Tape:
    """What a vector-Jacobian rule may do: read forward values and append backward operations."""

    build: Builder
    source: Graph
    fetch: Callable[[Value, Node], Value]
    loops: Mapping[str, LoopBackward]

    def operand_type(self, node: Node, index: int) -> Tensor:
        return self.source.type(node.operands[index])

    def operand(self, node: Node, index: int) -> Value:
        """The forward operand; asking for it makes it a saved value, or one that is computed again."""
        return self.fetch(node.operands[index], node)

    def output(self, node: Node, index: int) -> Value:
        """The forward result; asking for it makes it a saved value, or one that is computed again."""
        return self.fetch(Value(node.name, index), node)

    def apply(self, op: Op, *values: Value, role: Role = Role.GRADIENT, name: str | None = None) -> Value:
        return self.build.add(op, *values, role=role, name=f"{name or op.kind}'")[0]

    def pointwise(self, fn: str, *values: Value, factor: sympy.Expr = ONE) -> Value:
        return self.apply(Pointwise(fn, factor), *values, name=fn)

    @staticmethod
    def gradient_role(tensor: Tensor) -> Role:
        return Role.PARAMETER_GRADIENT if tensor.role is Role.PARAMETER else Role.GRADIENT

    def sum_to(self, value: Value, like: Tensor) -> Value:
        """Undo a broadcast: sum over the axes that ``like`` does not have, and take the order of its axes."""
        role = self.gradient_role(like)
        extra = tuple(n for n in self.build.type(value).names if n not in like.names)
        if extra:
            value = self.apply(Reduction("sum", extra), value, role=role)
        if self.build.type(value).names != like.names:
            value = self.apply(Broadcast(like.axes), value, role=role)
        return value

    def contract(self, dy: Value, other: Value, like: Tensor, hint: str) -> Value:
        """dy x other over the axes of ``like``; an axis that neither has was summed out of ``like`` alone."""
        known = {*self.build.type(dy).names, *self.build.type(other).names}
        names, role = tuple(n for n in like.names if n in known), self.gradient_role(like)
        piece = self.apply(Contraction(names, like.domain), dy, other, role=role, name=hint)
        return piece if names == like.names else self.apply(Broadcast(like.axes), piece, role=role)

    def loop(self, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        plan = self.loops[node.name]
        return plan.emit(self, node, cotangents)


def sweep(tape: Tape, nodes: Sequence[Node], cotangents: dict[Value, Value]) -> None:
    """Propagate cotangents through the occurrences in reverse order; contributions to one value are added."""
    for node in reversed(nodes):
        given = [cotangents.get(Value(node.name, i)) for i in range(len(node.types))]
        if all(c is None for c in given):
            continue
        with tape.build.within(node.region):
            pieces = node.op.vjp(tape, node, given)
        for operand, piece in zip(node.operands, pieces, strict=True):
            tensor = tape.source.type(operand)
            if piece is None or tensor.role in (Role.INDEX, Role.INPUT):
                continue
            before, role = cotangents.get(operand), tape.gradient_role(tensor)
            both = piece if before is None else tape.apply(Pointwise("add"), before, piece, role=role, name="add")
            cotangents[operand] = both


def training(graph: Graph, loss: str = "loss", recompute: Recompute = Recompute.NONE) -> Graph:
    """Forward and backward of a graph whose output ``loss`` is a scalar.

    Outputs are those of the graph and ``grad:<name>`` for each parameter.
    """
    if graph.type(graph.outputs[loss]).axes:
        raise GraphError(f"graph {graph.name}: output {loss!r} is not a scalar; sum it first")
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            raise GraphError(f"{node.name}: generation is not differentiated; train on a forward pass over its tokens")
    loops = {n.name: plan_loop(n, recompute) for n in graph.nodes if isinstance(n.op, Repeat)}
    build = Builder(f"{graph.name}/training")
    for name, tensor in graph.inputs.items():
        build.input(name, tensor)
    for node in graph.nodes:
        build.append(loops[node.name].extended(node) if node.name in loops else node)
    build.phase = "backward"
    tape = Tape(build, graph, lambda value, _reader: value, loops)
    cotangents = {graph.outputs[loss]: tape.apply(Constant(1.0), name="seed")}
    sweep(tape, graph.nodes, cotangents)
    for name, value in graph.outputs.items():
        build.output(name, value)
    for name, _ in graph.parameters():
        if Value(name) in cotangents:
            build.output(f"grad:{name}", cotangents[Value(name)])
    return prune(build.graph())


def prune(graph: Graph) -> Graph:
    """The graph without occurrences that no output depends on."""
    wanted = {v.node for v in graph.outputs.values()}
    kept = []
    for node in reversed(graph.nodes):
        if node.name in wanted:
            kept.append(node)
            wanted |= {v.node for v in node.operands}
    return Graph(graph.name, graph.inputs, tuple(reversed(kept)), graph.outputs)


@dataclass(frozen=True)
class LoopBackward:
    """The reversed loop of one `Repeat`: its body, the forward values it keeps, and where its inputs come from."""

    forward: Repeat
    body: Graph
    saved: tuple[Value, ...]
    stacked_inputs: tuple[str, ...]
    shared_inputs: tuple[str, ...]
    gradients: tuple[str, ...]

    def extended(self, node: Node) -> Node:
        """The forward loop that also stacks the values its backward reads."""
        body = self.forward.body
        outputs = dict(body.outputs) | {f"saved:{v.node}[{v.index}]": v for v in self.saved}
        op = replace(self.forward, body=Graph(body.name, body.inputs, body.nodes, outputs))
        types = (*node.types, *(body.type(v).prepend(self.forward.axis) for v in self.saved))
        return replace(node, op=op, types=types)

    def emit(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        carried = self.forward.carried
        if any(c is None for c in cotangents[:carried]) or any(c is not None for c in cotangents[carried:]):
            raise GraphError(f"{node.name}: the loss must depend on every carried value and on no stacked one")
        names = list(self.forward.body.inputs)
        kept = [Value(node.name, len(node.types) + i) for i in range(len(self.saved))]
        stacked = [tape.operand(node, names.index(n)) for n in self.stacked_inputs]
        shared = [tape.operand(node, names.index(n)) for n in self.shared_inputs]
        given = [c for c in cotangents[:carried] if c is not None]
        op = Repeat(self.body, self.forward.axis, carried, len(stacked) + len(kept), not self.forward.reverse)
        results = tape.build.add(op, *given, *stacked, *kept, *shared, name=f"{node.name}'")
        by_name = dict(zip((*names[:carried], *self.gradients), results, strict=True))
        return [by_name.get(n) for n in names]


def plan_loop(node: Node, recompute: Recompute) -> LoopBackward:
    """Differentiate a loop body with respect to its carried and stacked inputs."""
    op = cast(Repeat, node.op)
    body, names = op.body, list(op.body.inputs)
    stacked = names[op.carried : op.carried + op.stacked]
    outputs = list(body.outputs.values())
    if any(isinstance(n.op, Repeat) for n in body.nodes):
        raise GraphError(f"{node.name}: a loop inside a loop has no backward yet; flatten it")
    build = Builder(f"{body.name}'", phase="backward")
    seeds = [
        build.input(f"d:{n}", body.type(v).with_role(Role.GRADIENT))
        for n, v in zip(names[: op.carried], outputs, strict=False)
    ]
    reader = _BodyReader(build, body, set(stacked), set(names[op.carried + op.stacked :]), recompute)
    tape = Tape(build, body, reader.fetch, {})
    cotangents = dict(zip(outputs, seeds, strict=False))
    sweep(tape, body.nodes, cotangents)
    for name in names[: op.carried]:
        build.output(f"d:{name}", cotangents[Value(name)])
    gradients = tuple(n for n in stacked if Value(n) in cotangents)
    for name in gradients:
        build.output(f"grad:{name}", cotangents[Value(name)])
    if any(Value(n) in cotangents for n in names[op.carried + op.stacked :]):
        raise GraphError(f"{node.name}: a parameter shared by all iterations is not supported; stack it along the loop")
    _order_inputs(
        build, [*(f"d:{n}" for n in names[: op.carried]), *reader.stacked, *reader.saved_names, *reader.shared]
    )
    graph = prune(build.graph())
    return LoopBackward(op, graph, tuple(reader.saved), tuple(reader.stacked), tuple(reader.shared), gradients)


def _order_inputs(build: Builder, order: list[str]) -> None:
    build.inputs = {name: build.inputs[name] for name in order}


class _BodyReader:
    """Gives a backward body the forward values it asks for: as loop inputs, as saved values, or computed again.

    A value is computed again where the occurrence that made it and the one that reads it both lie in regions that are.
    So what flows into such a region, and what the rest reads of it, is saved.
    """

    def __init__(self, build: Builder, body: Graph, stacked: set[str], shared: set[str], recompute: Recompute) -> None:
        self.build, self.body, self.again = build, body, recompute.regions
        self.is_stacked, self.is_shared = stacked, shared
        self.stacked: list[str] = []
        self.shared: list[str] = []
        self.saved: list[Value] = []
        self.saved_names: list[str] = []
        self.known: dict[Value, Value] = {}

    def fetch(self, value: Value, reader: Node) -> Value:
        if value not in self.known:
            self.known[value] = self._obtain(value, reader)
        return self.known[value]

    def _obtain(self, value: Value, reader: Node) -> Value:
        tensor = self.body.type(value)
        if value.node in self.is_stacked:
            self.stacked.append(value.node)
            return self.build.input(value.node, tensor)
        if value.node in self.is_shared:
            self.shared.append(value.node)
            return self.build.input(value.node, tensor)
        producer = self.body.by_name.get(value.node)
        if producer is not None and {producer.region, reader.region} <= set(self.again):
            return self._again(producer, value)
        self.saved.append(value)
        name = f"saved:{value.node}[{value.index}]"
        self.saved_names.append(name)
        return self.build.input(name, tensor)

    def _again(self, node: Node, value: Value) -> Value:
        operands = tuple(self.fetch(v, node) for v in node.operands)
        if node.name not in {n.name for n in self.build.nodes}:
            self.build.append(replace(node, operands=operands, phase="recompute"))
        return value


def saved_values(graph: Graph) -> list[Value]:
    """Values of the forward phase that later phases of a training graph read, but no parameters and no indices.

    A parameter that the forward phase gathered and that is read as gathered is such a value.
    """
    forward = {n.name for n in graph.nodes if n.phase == "forward"} | set(graph.inputs)
    parameters = {Value(name) for name, _ in graph.parameters()}
    out: dict[Value, None] = {}
    for node in graph.nodes:
        if node.phase != "forward":
            for v in node.operands:
                if v.node in forward and v not in parameters and graph.type(v).role is not Role.INDEX:
                    out[v] = None
    return list(out)
