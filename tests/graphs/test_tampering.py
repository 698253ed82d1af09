"""A partitioned graph whose collectives are tampered with does not give the sequential results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from graphs import execute
from graphs.errors import GraphError
from graphs.ir import Graph, Node
from graphs.ops.collective import REDUCING, Collective
from graphs.ops.pointwise import Pointwise
from graphs.ops.repeat import Repeat
from tests.graphs.test_partition import EVEN, SCHEMES, degrees, even_case, everywhere, same, split

EXCHANGING = [name for name, scheme in SCHEMES.items() if scheme.entries and name != "Pipeline"]
FFN = "dispatched"


def gives(graph: Graph, name: str) -> bool:
    """Does the graph run, and give what the sequential graph gives?"""
    inputs, wanted = even_case("policy", FFN)
    try:
        return same(execute.run(graph, inputs, EVEN, degrees(SCHEMES[name])), wanted)
    except GraphError:
        return False


def without(graph: Graph, dropped: int, start: int = 0) -> tuple[Graph, int]:
    """The graph with its reducing collective number ``dropped`` left out, and the number of those passed."""
    nodes, at = [], start
    for node in graph.nodes:
        op = node.op
        if isinstance(op, Repeat):
            body, at = without(op.body, dropped, at)
            op = replace(op, body=body)
        elif isinstance(op, Collective) and op.action in REDUCING:
            if at == dropped:
                op = replace(op, action="shard", fn="sum") if op.action == "reduce_scatter" else Pointwise("scale")
            at += 1
        nodes.append(replace(node, op=op))
    return Graph(graph.name, graph.inputs, tuple(nodes), graph.outputs), at


@pytest.mark.parametrize("name", EXCHANGING)
def test_leaving_out_any_one_reducing_collective_is_noticed(name: str) -> None:
    graph = split(name, "policy", FFN)
    assert gives(graph, name)
    for dropped in range(without(graph, -1)[1]):
        assert not gives(without(graph, dropped)[0], name), f"reducing collective {dropped} of {name}"


def moving(graph: Graph) -> Iterator[Node]:
    """Collectives that move data without adding it up."""
    for node, _ in everywhere(graph):
        if isinstance(node.op, Collective) and node.op.action in ("all_gather", "all_to_all", "send"):
            yield node


@pytest.mark.parametrize("name", EXCHANGING)
def test_a_rank_that_sends_zeros_in_any_one_exchange_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, honest = split(name, "policy", FFN), execute._collective
    for silent in moving(graph):

        def tampered(
            node: Node, op: Collective, held: execute.Held, machine: execute.Machine, silent: Node = silent
        ) -> execute.Held:
            if node is silent:
                where = machine.dimensions.index(op.mesh)
                first = min(r[where] for r in held)
                held = {r: np.zeros_like(a) if r[where] == first else a for r, a in held.items()}
            return honest(node, op, held, machine)

        monkeypatch.setattr(execute, "_collective", tampered)
        assert not gives(graph, name), f"{silent.name} of {name}"
