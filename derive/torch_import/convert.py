"""A traced graph as an operation graph: contractions with their axes, everything else by name and results.

Axes belong to one value: an axis is known by its place, and it is called by its size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import getitem
from pathlib import Path
from typing import Any

import networkx as nx
import torch

from derive.torch_import import capture
from derive.torch_import.extents import Extents, distinct
from derive.torch_import.kinds import CONTRACTIONS, name_of, nature
from graphs.axes import Role
from graphs.errors import GraphError
from graphs.ir import Builder, Graph, Node, Value
from graphs.ops.contraction import Contraction
from graphs.ops.foreign import Foreign
from graphs.ops.relabel import Relabel

#: a frame of a traced call, outermost first: file and line
FRAME = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class Imported:
    """The operation graph of a layer's training step; ``source`` says of occurrences which line asked for them."""

    graph: Graph
    extents: Extents
    source: Mapping[str, str]


@dataclass
class _Conversion:
    captured: capture.Captured
    build: Builder
    extents: Extents
    values: dict[Any, list[Value | None]] = field(default_factory=dict)
    #: calls whose result is a view of another's, or the same changed in place, with the first of those
    base: dict[Any, Any] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)

    def value(self, node: Any) -> Value:
        """What a call with one result gave."""
        (found,) = self.values[node]
        if found is None:
            raise GraphError(f"{node.name} is no tensor; report the layer")
        return found

    def enter(self, node: Any, label: str, tensor: Any) -> None:
        """An input of the graph: a parameter, an input of the layer, or a constant of its code."""
        found = self.extents.tensor(tensor, _role(tensor))
        if found.role is not Role.INDEX:
            found = found.with_role(Role.PARAMETER if label in self.captured.parameters else Role.INPUT)
        self.values[node] = [self.build.input(label, found)]

    def call(self, node: Any) -> None:
        """Append what one traced call does; what computes sizes and numbers is left out."""
        found = node.meta.get("val")
        results = list(found) if isinstance(found, list | tuple) else [found]
        if node.target is getitem and node.args[0] in self.values:
            self.values[node] = [self.values[node.args[0]][node.args[1]]]
        elif any(isinstance(x, torch.Tensor) for x in results):
            try:
                added = iter(self.operation(node, [x for x in results if isinstance(x, torch.Tensor)]))
            except GraphError as error:
                raise GraphError(f"{node.target} {_place(node)}: {error}") from error
            self.values[node] = [next(added) if isinstance(x, torch.Tensor) else None for x in results]
            self.rebind(node)

    def operation(self, node: Any, results: Sequence[Any]) -> list[Value]:
        kind = nature(node.target)
        operands = [v for n in node.all_input_nodes for v in self.values.get(n, ()) if v is not None]
        if kind == "contraction":
            return [self.contraction(node, results[0])]
        if kind is None:
            raise GraphError("it has no rule; add one in derive/torch_import/kinds.py, or write the layer without it")
        types = tuple(self.extents.tensor(x, _role(x)) for x in results)
        added = self.build.add(Foreign(name_of(node.target), kind, types), *operands, name=node.name)
        self.source[added[0].node] = _line(node)
        return list(added)

    def contraction(self, node: Any, result: Any) -> Value:
        """The product of two operands; what else is added to it is an operation of its own."""
        name = name_of(node.target)
        pattern, first = CONTRACTIONS[name]
        left, right = (self.value(a) for a in node.args[first : first + 2])
        value = self.product(node.name, pattern, left, right)
        self.source[value.node] = _line(node)
        wanted = self.extents.tensor(result, _role(result))
        if [a.size for a in self.build.type(value).axes] != [a.size for a in wanted.axes]:
            raise GraphError(
                f"its operands give {self.build.type(value).names}, PyTorch traced {wanted.names}; report it"
            )
        if first:
            addend = self.value(node.args[0])
            (value,) = self.build.add(Foreign("add", "pointwise", (wanted,)), addend, value, name=f"{node.name}.add")
        return value

    def product(self, name: str, pattern: str, left: Value, right: Value) -> Value:
        """Axes that the pattern shares are called as in ``left``, the others of ``right`` get names of their own."""
        factors, out = pattern.split("->")
        first, second = factors.split(",")
        names = dict(zip(first, self.build.type(left).names, strict=True))
        own = {x: n for x, n in zip(second, self.build.type(right).names, strict=True) if x not in names}
        names |= dict(zip(own, distinct(own.values(), names.values()), strict=True))
        right = self.renamed(right, [names[x] for x in second])
        op = Contraction(tuple(names[x] for x in out))
        return self.build.add(op, left, right, name=name)[0]

    def renamed(self, value: Value, names: Sequence[str]) -> Value:
        """The value with its axes called so; a name that is in use further on gives way first."""
        for place, new in enumerate(names):
            old = self.build.type(value).names
            if old[place] != new and new in old:
                (spare,) = distinct([new], [*old, *names])
                (value,) = self.build.add(Relabel(new, spare), value)
            if old[place] != new:
                (value,) = self.build.add(Relabel(old[place], new), value)
        return value

    def rebind(self, node: Any) -> None:
        """What shares memory with an operand that the call changed in place depends on the call from here on."""
        schema = getattr(node.target, "_schema", None)
        places = [i for i, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.is_write] if schema else []
        if node.target.is_view or places == [0]:
            self.base[node] = self.base.get(node.args[0], node.args[0])
        (written, *_) = (v for v in self.values[node] if v is not None)
        changed = {self.base.get(node.args[i], node.args[i]) for i in places if i < len(node.args)}
        for other in [n for n in self.values if n is not node and self.base.get(n, n) in changed]:
            before = self.value(other)
            self.values[other] = list(
                self.build.add(Foreign("written", "movement", (self.build.type(before),)), before, written)
            )


def convert(captured: capture.Captured) -> Imported:
    """The operation graph; GraphError names an operation without a rule and the line that asks for it."""
    graph = captured.traced.graph
    extents = Extents(captured.traced.shape_env, captured.layer.sizes)
    todo = _Conversion(captured, Builder(captured.layer.place), extents)
    labels = dict(zip((n for n in graph.nodes if n.op == "placeholder"), captured.tensors, strict=True))
    for node, label in labels.items():
        extents.declare(label, node.meta["val"])
    extents.settle()
    for node in graph.nodes:
        if node.op == "placeholder":
            todo.enter(node, labels[node], node.meta["val"])
        elif node.op == "get_attr" and isinstance(getattr(captured.traced, node.target), torch.Tensor):
            todo.enter(node, node.name, getattr(captured.traced, node.target))
        elif node.op == "call_function":
            todo.call(node)
    (end,) = (n for n in graph.nodes if n.op == "output")
    results = [todo.value(node) for node in end.args[0]]
    for i, value in enumerate(results):
        name = f"out.{i}" if i < captured.results else f"gradient.{i - captured.results}"
        todo.build.output(name, value)
    return Imported(_phased(todo.build.graph(), results[: captured.results]), extents, todo.source)


def _phased(graph: Graph, results: Sequence[Value]) -> Graph:
    """The graph with all that the results do not depend on in the backward phase, where activations are gradients."""
    forward = {v.node for v in results}.union(*(nx.ancestors(graph.network, v.node) for v in results))
    nodes = tuple(n if n.name in forward else _backward(n) for n in graph.nodes)
    return Graph(graph.name, graph.inputs, nodes, graph.outputs)


def _backward(node: Node) -> Node:
    types = tuple(t.with_role(Role.GRADIENT) if t.role is Role.ACTIVATION else t for t in node.types)
    return replace(node, phase="backward", types=types)


def _role(tensor: Any) -> Role:
    return Role.ACTIVATION if tensor.is_floating_point() or tensor.is_complex() else Role.INDEX


def _line(node: Any) -> str:
    """The layer's line that asked for an operation, ``file.py:12``; empty where PyTorch's backward pass did."""
    frames = FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f"{Path(file).name}:{line}" for file, line in frames if Path(file) != Path(capture.__file__)]
    return own[0] if own else ""


def _place(node: Any) -> str:
    return f"at {_line(node)}" if _line(node) else "in the backward pass"
