"""Inline: the occurrences of one graph become a part of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphs.errors import GraphError
from graphs.ir import Builder, Graph, Value


def inline(build: Builder, graph: Graph, given: Mapping[str, Value] | None = None) -> dict[str, Value]:
    """Append the graph's occurrences; gives its outputs.

    ``given`` are values of the builder for some of its inputs; the others become inputs of the builder.
    """
    given = given or {}
    for name, value in given.items():
        if build.type(value).axes != graph.inputs[name].axes:
            raise GraphError(
                f"graph {build.name}: what it gives to {graph.name} as {name!r} has other axes; relabel it"
            )
    known = {Value(n): given[n] if n in given else build.input(n, t) for n, t in graph.inputs.items()}
    for node in graph.nodes:
        label = build.fresh(node.name)
        build.append(replace(node, name=label, operands=tuple(known[v] for v in node.operands)))
        known.update({Value(node.name, i): Value(label, i) for i in range(len(node.types))})
    return {name: known[value] for name, value in graph.outputs.items()}
