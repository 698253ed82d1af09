"""Bind: a loop body in one of its iterations.  For checking; no cost is derived this way."""

from __future__ import annotations

from dataclasses import replace

import sympy

from graphs.ir import Builder, Graph, Op
from graphs.ops.repeat import Repeat
from graphs.ops.scan import Scan


def bind(graph: Graph, index: sympy.Symbol, value: sympy.Expr) -> Graph:
    """The graph with ``index`` replaced by ``value`` in positions and restrictions, in loop bodies too."""
    build = Builder(graph.name)
    for name, tensor in graph.inputs.items():
        build.input(name, tensor.at(index, value))
    for node in graph.nodes:
        op = _bound(node.op, index, value)
        inferred = op.infer(*(build.type(v) for v in node.operands))
        types = tuple(t.with_role(old.role) for t, old in zip(inferred, node.types, strict=True))
        build.append(replace(node, op=op, types=types))
    return Graph(graph.name, build.inputs, tuple(build.nodes), graph.outputs)


def _bound(op: Op, index: sympy.Symbol, value: sympy.Expr) -> Op:
    """An inner scan with the same index binds it itself."""
    if isinstance(op, Scan) and op.index == index:
        return op
    return replace(op, body=bind(op.body, index, value)) if isinstance(op, Repeat) else op.at(index, value)
