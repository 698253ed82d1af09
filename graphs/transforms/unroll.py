"""Unroll: every loop of a sequential graph becomes copies of its body.  For checking; no cost is derived this way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sympy

from graphs.errors import GraphError
from graphs.ir import Builder, Graph, Node, Value
from graphs.ops.repeat import Repeat
from graphs.ops.scan import Scan
from graphs.ops.slice import Slice, Stack
from graphs.transforms.bind import bind
from graphs.transforms.prune import prune


def unroll(graph: Graph, count: int | Mapping[str, int]) -> Graph:
    """The graph with ``count`` copies of each loop body; it runs at sizes at which the loops run ``count`` times.

    Where loops run differently often, ``count`` says how often for the name of each loop's axis.
    """
    for times in [count] if isinstance(count, int) else count.values():
        if times < 1:
            raise GraphError(f"graph {graph.name}: cannot unroll {times} times; a loop runs at least once")
    unroller = _Unroller(Builder(f"{graph.name}/unrolled"), count)
    for name, tensor in graph.inputs.items():
        unroller.build.input(name, tensor)
    known = unroller.copy(graph, {Value(name): Value(name) for name in graph.inputs}, "")
    for name, value in graph.outputs.items():
        unroller.build.output(name, unroller.whole(known[value]))
    return prune(unroller.build.graph())


class _Unroller:
    """Appends copies of occurrences.  A loop's stacked results stay apart until something wants them as one value."""

    def __init__(self, build: Builder, counts: int | Mapping[str, int]) -> None:
        self.build, self.counts = build, counts
        self.entries: dict[Value, tuple[Repeat, list[Value]]] = {}
        self.stacked: dict[Value, Value] = {}

    def copy(self, graph: Graph, known: Mapping[Value, Value], prefix: str) -> dict[Value, Value]:
        """Copy the graph's occurrences; gives the new value of each of its values."""
        out = dict(known)
        for node in graph.nodes:
            self.build.phase = node.phase
            name = prefix + node.name
            if isinstance(node.op, Repeat):
                results = self._loop(node, node.op, [out[v] for v in node.operands], name)
            else:
                label = self.build.fresh(name)
                operands = tuple(self.whole(out[v]) for v in node.operands)
                self.build.append(replace(node, name=label, operands=operands))
                results = [Value(label, i) for i in range(len(node.types))]
            out.update({Value(node.name, i): v for i, v in enumerate(results)})
        return out

    def whole(self, value: Value) -> Value:
        """The value as one, stacked if it was left in pieces."""
        if value not in self.entries:
            return value
        if value not in self.stacked:
            op, entries = self.entries[value]
            pieces = [self.whole(v) for v in entries]
            role = self.build.type(pieces[0]).role
            (self.stacked[value],) = self.build.add(Stack(op.axis), *pieces, name=f"{value.node}.stack", role=role)
        return self.stacked[value]

    def _entry(self, value: Value, op: Repeat, i: int) -> Value:
        if value in self.entries and self.entries[value][0].axis == op.axis:
            return self.entries[value][1][i]
        value = self.whole(value)
        role = self.build.type(value).role
        return self.build.add(Slice(op.axis.name, i), value, name=f"{value.node}@{i}", role=role)[0]

    def _loop(self, node: Node, op: Repeat, operands: Sequence[Value], name: str) -> list[Value]:
        count = self._count(node, op)
        names, outputs = list(op.body.inputs), list(op.body.outputs.values())
        carried, pieces = list(operands[: op.carried]), {}
        for i in reversed(range(count)) if op.reverse else range(count):
            body = bind(op.body, op.index, sympy.Integer(i + 1)) if isinstance(op, Scan) else op.body
            last = op.carried + op.stacked
            stacked = [self._entry(v, op, i) for v in operands[op.carried : last]]
            given = [*carried, *stacked, *operands[last:]]
            known = self.copy(body, {Value(n): v for n, v in zip(names, given, strict=True)}, f"{name}@{i}/")
            results = [known[v] for v in outputs]
            carried, pieces[i] = results[: op.carried], results[op.carried :]
        stacks = [Value(name, j) for j in range(op.carried, len(outputs))]
        for j, value in enumerate(stacks):
            self.entries[value] = (op, [pieces[i][j] for i in range(count)])
        return [*carried, *stacks]

    def _count(self, node: Node, op: Repeat) -> int:
        """How often the loop is to be unrolled."""
        count = self.counts if isinstance(self.counts, int) else self.counts.get(op.axis.name)
        if count is None:
            raise GraphError(f"{node.name} runs along axis {op.axis.name!r}; say how often it is unrolled")
        if op.axis.splits:
            raise GraphError(f"{node.name}: a partitioned loop cannot be unrolled; unroll the sequential graph")
        if op.axis.size.is_Integer and op.axis.size != count:
            raise GraphError(f"{node.name} runs {op.axis.size} times, not {count}; unroll {op.axis.size} times")
        return count
