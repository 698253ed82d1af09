"""Replace every macro (softmax, norm, cross-entropy) by its primitives, in loop bodies too."""

from __future__ import annotations

from dataclasses import replace

from graphs.ir import Builder, Graph, Node, Op, Value
from graphs.ops.repeat import Repeat

#: occurrence before -> after, by identity: origins of collectives follow
Renewed = dict[int, Node]


def is_macro(op: Op) -> bool:
    return type(op).expand is not Op.expand


def expand_macros(graph: Graph, renewed: Renewed | None = None) -> Graph:
    renewed = {} if renewed is None else renewed
    build = Builder(graph.name)
    for name, tensor in graph.inputs.items():
        build.input(name, tensor)
    for node in graph.nodes:
        build.fresh(node.name)
    known: dict[Value, Value] = {}
    for node in graph.nodes:
        operands = tuple(known.get(v, v) for v in node.operands)
        if is_macro(node.op):
            build.phase = node.phase
            first = len(build.nodes)
            with build.within(node.region):
                for i, value in enumerate(node.op.expand(build, operands)):
                    known[Value(node.name, i)] = value
            build.nodes[first:] = [replace(n, stage=node.stage) for n in build.nodes[first:]]
        else:
            renewed[id(node)] = _renewed(node, operands, renewed)
            build.append(renewed[id(node)])
    outputs = {name: known.get(v, v) for name, v in graph.outputs.items()}
    return Graph(graph.name, graph.inputs, tuple(build.nodes), outputs)


def _renewed(node: Node, operands: tuple[Value, ...], renewed: Renewed) -> Node:
    origins = tuple(renewed.get(id(n), n) for n in node.origins)
    op = replace(node.op, body=expand_macros(node.op.body, renewed)) if isinstance(node.op, Repeat) else node.op
    return replace(node, op=op, operands=operands, origins=origins)
