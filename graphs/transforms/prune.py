"""Leaving out what no output of a graph depends on."""

from __future__ import annotations

from graphs.ir import Graph


def prune(graph: Graph) -> Graph:
    """The graph without occurrences that no output depends on."""
    wanted = {v.node for v in graph.outputs.values()}
    kept = []
    for node in reversed(graph.nodes):
        if node.name in wanted:
            kept.append(node)
            wanted |= {v.node for v in node.operands}
    return Graph(graph.name, graph.inputs, tuple(reversed(kept)), graph.outputs)
