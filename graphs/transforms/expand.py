"""Replace every macro (softmax, norm, cross-entropy) by its primitives, in loop bodies too.

Primitives whose results nothing reads, such as the probabilities of a cross-entropy without backward, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    primitives: set[str] = set()
    for node in graph.nodes:
        operands = tuple(known.get(v, v) for v in node.operands)
        if is_macro(node.op):
            build.phase = node.phase
            first = len(build.nodes)
            with build.within(node.region):
                for i, value in enumerate(node.op.expand(build, operands)):
                    known[Value(node.name, i)] = value
            build.nodes[first:] = [replace(n, stage=node.stage) for n in build.nodes[first:]]
            primitives |= {n.name for n in build.nodes[first:]}
        else:
            renewed[id(node)] = _renewed(node, operands, renewed)
            build.append(renewed[id(node)])
    outputs = {name: known.get(v, v) for name, v in graph.outputs.items()}
    return Graph(graph.name, graph.inputs, _read(build.nodes, outputs, primitives), outputs)


def _read(nodes: Sequence[Node], outputs: Mapping[str, Value], primitives: set[str]) -> tuple[Node, ...]:
    """The occurrences without those primitives that neither an output nor another occurrence reads."""
    read, kept = {v.node for v in outputs.values()}, []
    for node in reversed(nodes):
        if node.name in read or node.name not in primitives:
            kept.append(node)
            read |= {v.node for v in node.operands}
    return tuple(reversed(kept))


def _renewed(node: Node, operands: tuple[Value, ...], renewed: Renewed) -> Node:
    origins = tuple(renewed.get(id(n), n) for n in node.origins)
    op = replace(node.op, body=expand_macros(node.op.body, renewed)) if isinstance(node.op, Repeat) else node.op
    return replace(node, op=op, operands=operands, origins=origins)
