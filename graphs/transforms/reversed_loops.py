"""The backward pass of a loop, a loop over the reversed body.

Under recomputation the backward body computes the values inside of some regions again, from what flows into them, and
loops in such a region as a whole.  A carried value that every iteration changes in a way that can be undone, such as
rolling it on, is not kept per iteration: the backward loop starts from the last and undoes the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from graphs.axes import UNDIFFERENTIATED, Role
from graphs.errors import GraphError
from graphs.ir import Builder, Graph, Node, Op, Value
from graphs.ops.repeat import Repeat
from graphs.transforms.prune import prune
from graphs.transforms.recompute import Recompute
from graphs.transforms.tape import Tape, accumulate, sweep


@dataclass(frozen=True)
class LoopBackward:
    """The reversed loop of one `Repeat`: its body, the forward values it keeps, and where its inputs come from.

    It carries the cotangents of ``carried`` values, sums up those of ``summed`` ones, which all iterations share, and
    goes back through ``rebuilt`` ones; then come ``stacked`` inputs, saved values and ``shared`` inputs.
    """

    forward: Repeat
    body: Graph
    carried: tuple[str, ...]
    summed: tuple[str, ...]
    rebuilt: tuple[str, ...]
    stacked: tuple[str, ...]
    saved: tuple[Value, ...]
    shared: tuple[str, ...]
    gradients: tuple[str, ...]

    def extended(self, node: Node) -> Node:
        """The forward loop that also stacks the values its backward reads."""
        body = self.forward.body
        outputs = dict(body.outputs) | {saved_name(v): v for v in self.saved}
        op = replace(self.forward, body=Graph(body.name, body.inputs, body.nodes, outputs))
        types = (*node.types, *(body.type(v).prepend(self.forward.axis) for v in self.saved))
        return replace(node, op=op, types=types)

    def emit(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        names, types = list(self.forward.body.inputs), list(self.forward.body.inputs.values())
        if any(c is not None for c in cotangents[self.forward.carried :]):
            raise GraphError(f"{node.name}: the loss must not depend on a stacked value; carry it")
        given = []
        for name in (*self.carried, *self.summed):
            i = names.index(name)
            found = cotangents[i] if i < self.forward.carried else None
            given.append(tape.zeros(types[i]) if found is None else found)
        given += [tape.read(Value(node.name, names.index(n)), node) for n in self.rebuilt]
        stacked = [tape.operand(node, names.index(n)) for n in self.stacked]
        kept = [tape.read(Value(node.name, len(node.types) + i), node) for i in range(len(self.saved))]
        shared = [tape.operand(node, names.index(n)) for n in self.shared]
        op = Repeat(self.body, self.forward.axis, len(given), len(stacked) + len(kept), not self.forward.reverse)
        results = tape.build.add(op, *given, *stacked, *kept, *shared, name=f"{node.name}'")
        by_name = dict(zip((*self.carried, *self.summed), results, strict=False))
        by_name.update(zip(self.gradients, results[len(given) :], strict=True))
        starts = results[len(given) - len(self.rebuilt) : len(given)]
        tape.rebuilt.update((node.operands[names.index(n)], v) for n, v in zip(self.rebuilt, starts, strict=True))
        return [by_name.get(n) for n in names]


def plan_loops(graph: Graph, recompute: Recompute) -> dict[str, LoopBackward]:
    return {n.name: plan_loop(n, recompute) for n in graph.nodes if isinstance(n.op, Repeat)}


def keeping(graph: Graph, loops: Mapping[str, LoopBackward]) -> Graph:
    """The graph whose loops stack what their backward reads."""
    nodes = tuple(loops[n.name].extended(n) if n.name in loops else n for n in graph.nodes)
    return Graph(graph.name, graph.inputs, nodes, graph.outputs)


def saved_name(value: Value) -> str:
    return f"saved:{value.node}[{value.index}]"


def plan_loop(node: Node, recompute: Recompute) -> LoopBackward:
    """Differentiate a loop body with respect to its inputs."""
    op = cast(Repeat, node.op)
    loops = plan_loops(op.body, Recompute.NONE)
    forward = replace(op, body=keeping(op.body, loops))
    body, names, last = forward.body, list(op.body.inputs), op.carried + op.stacked
    followed = [n for n in names if body.inputs[n].role not in UNDIFFERENTIATED]
    carried, summed = ([n for n in followed if n in part] for part in (names[: op.carried], names[last:]))
    ends = dict(zip(names[: op.carried], body.outputs.values(), strict=False)) | {n: Value(n) for n in summed}
    build = Builder(f"{body.name}'", phase="backward")
    reader = _BodyReader(build, forward, recompute)
    tape = Tape(build, body, reader.fetch, loops)
    cotangents: dict[Value, Value] = {}
    for name in (*carried, *summed):
        seed = build.input(f"d:{name}", body.type(ends[name]).with_role(Role.GRADIENT))
        accumulate(tape, cotangents, ends[name], seed)
    sweep(tape, op.body.nodes, cotangents)
    summed = [n for n in summed if cotangents[Value(n)] != Value(f"d:{n}")]
    for name in (*carried, *summed):
        build.output(f"d:{name}", cotangents.get(Value(name)) or tape.zeros(body.inputs[name]))
    for name in reader.rebuilt:
        build.output(f"rebuilt:{name}", reader.known[Value(name)])
    gradients = [n for n in names[op.carried : last] if Value(n) in cotangents]
    for name in gradients:
        build.output(f"grad:{name}", cotangents[Value(name)])
    return _plan_of(reader, carried, summed, gradients)


def _plan_of(reader: _BodyReader, carried: list[str], summed: list[str], gradients: list[str]) -> LoopBackward:
    """The plan once the body is built; what nothing reads in the end is neither kept nor handed in."""
    graph = prune(reader.build.graph())
    read = {v.node for n in graph.nodes for v in n.operands} | {v.node for v in graph.outputs.values()}
    stacked, shared = (tuple(n for n in found if n in read) for found in (reader.stacked, reader.shared))
    saved = tuple(v for v in reader.saved if saved_name(v) in read)
    returned = (*(f"d:{n}" for n in (*carried, *summed)), *(f"rebuilt:{n}" for n in reader.rebuilt))
    inputs = {n: graph.inputs[n] for n in (*returned, *stacked, *map(saved_name, saved), *shared)}
    return LoopBackward(
        reader.loop,
        Graph(graph.name, inputs, graph.nodes, graph.outputs),
        tuple(carried),
        tuple(summed),
        tuple(reader.rebuilt),
        stacked,
        saved,
        shared,
        tuple(gradients),
    )


class _BodyReader:
    """Gives a backward body the forward values it asks for.

    They come as loop inputs, as saved values, by undoing what the forward body did, or computed again.  A value is
    computed again where the occurrence that made it and the one that reads it both lie in regions that are.  So what
    flows into such a region, and what the rest reads of it, is saved.
    """

    def __init__(self, build: Builder, loop: Repeat, recompute: Recompute) -> None:
        self.build, self.loop, self.body, self.again = build, loop, loop.body, recompute.regions
        names, last = list(loop.body.inputs), loop.carried + loop.stacked
        self.is_stacked, self.is_shared = set(names[loop.carried : last]), set(names[last:])
        self.chains = {
            n: _undoable(loop.body, n, v)
            for n, v in zip(names[: loop.carried], loop.body.outputs.values(), strict=False)
        }
        self.stacked: list[str] = []
        self.shared: list[str] = []
        self.saved: list[Value] = []
        self.rebuilt: list[str] = []
        self.known: dict[Value, Value] = {}

    def fetch(self, value: Value, reader: Node) -> Value:
        if value not in self.known:
            self.known[value] = self._obtain(value, reader)
        return self.known[value]

    def _obtain(self, value: Value, reader: Node) -> Value:
        tensor = self.body.type(value)
        for name, chain in self.chains.items():
            if value in (Value(name), *(Value(n.name) for n in chain)) and chain:
                return self._rebuild(name, chain)[value]
        for names, found in ((self.is_stacked, self.stacked), (self.is_shared, self.shared)):
            if value.node in names:
                found.append(value.node)
                return self.build.input(value.node, tensor)
        producer = self.body.by_name.get(value.node)
        if producer is not None and {producer.region, reader.region} <= set(self.again):
            return self._again(producer, value)
        self.saved.append(value)
        return self.build.input(saved_name(value), tensor)

    def _rebuild(self, name: str, chain: Sequence[Node]) -> dict[Value, Value]:
        """All values between a carried value and what becomes of it, from the latter on."""
        self.rebuilt.append(name)
        at = self.build.input(f"rebuilt:{name}", chain[-1].types[0])
        for node in reversed(chain):
            self.known[Value(node.name)] = at
            (at,) = self.build.add(cast(Op, node.op.inverse()), at, name=f"{node.name}.undone", role=node.types[0].role)
        self.known[Value(name)] = at
        return self.known

    def _again(self, node: Node, value: Value) -> Value:
        operands = tuple(self.fetch(v, node) for v in node.operands)
        if node.name not in {n.name for n in self.build.nodes}:
            self.build.append(replace(in_phase(node, "recompute"), operands=operands))
        return value


def _undoable(body: Graph, name: str, output: Value) -> list[Node]:
    """The occurrences that make of a carried value what is handed on, in order, where each of them can be undone."""
    chain: list[Node] = []
    while output != Value(name):
        node = body.by_name.get(output.node)
        if node is None or node.op.inverse() is None:
            return []
        chain.insert(0, node)
        (output,) = node.operands
    return chain


def in_phase(node: Node, phase: str) -> Node:
    """The occurrence, with everything inside of it if it is a loop, in another phase."""
    if not isinstance(node.op, Repeat):
        return replace(node, phase=phase)
    body = node.op.body
    nodes = tuple(in_phase(n, phase) for n in body.nodes)
    return replace(node, op=replace(node.op, body=Graph(body.name, body.inputs, nodes, body.outputs)), phase=phase)
