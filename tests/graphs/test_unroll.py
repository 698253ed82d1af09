"""An unrolled graph is the same computation without loops."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.blocks.decoder import DENSE, DISPATCHED, EXPERTS
from graphs.errors import GraphError
from graphs.execute import run
from graphs.ir import Graph
from graphs.models.roles import ROLES, forward
from graphs.ops.repeat import Repeat
from graphs.sizes import Sizes
from graphs.transforms.backward import training
from graphs.transforms.partition import partition
from graphs.transforms.recompute import Recompute
from graphs.transforms.unroll import unroll
from tests.graphs.test_partition import EVEN, SCHEMES, arrays, degrees, model, same

FFNS = {"dense": DENSE, "experts": EXPERTS, "dispatched": DISPATCHED}


@cache
def graphs(ffn: str, kind: str) -> Graph:
    base = forward(Sizes.canonical(), ROLES["policy"], FFNS[ffn], loss=True)
    return base if kind == "forward" else training(base, recompute=Recompute(kind))


KINDS = ["forward", "none", "selective", "layer_boundary"]


@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("kind", KINDS)
@given(layers=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=5)
def test_unrolled_graphs_give_the_same_outputs(ffn: str, kind: str, layers: int, seed: int) -> None:
    graph, sizes = graphs(ffn, kind), EVEN | {"L": layers}
    inputs = arrays(graph, sizes, seed)
    got, wanted = run(unroll(graph, layers), inputs, sizes), run(graph, inputs, sizes)
    assert set(got) == set(wanted)
    assert all(np.array_equal(got[k], wanted[k]) for k in wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_every_occurrence_of_a_body_is_copied_once_for_each_layer(kind: str) -> None:
    graph, layers = graphs("dense", kind), 3
    wanted = Counter[tuple[str, str]]()
    for node in graph.nodes:
        inner = node.op.body.nodes if isinstance(node.op, Repeat) else ()
        for n in inner:
            wanted[n.op.kind, n.phase] += layers
        if not inner:
            wanted[node.op.kind, node.phase] += 1
    got = Counter((n.op.kind, n.phase) for n in unroll(graph, layers).nodes if n.op.kind not in ("slice", "stack"))
    assert got == wanted


def test_saved_values_go_straight_from_a_layer_to_its_backward() -> None:
    """Only parameters are sliced and only their gradients stacked."""
    unrolled = unroll(graphs("dense", "none"), 3)
    parameters = [n for n, t in graphs("dense", "none").parameters() if "layer" in t.names]
    assert {v.node for n in unrolled.nodes if n.op.kind == "slice" for v in n.operands} == set(parameters)
    assert sum(n.op.kind == "stack" for n in unrolled.nodes) == len(parameters)


@pytest.mark.parametrize("name", ["Data", "Tensor", "Sequence", "Context", "Expert"])
def test_an_unrolled_graph_is_partitioned_like_any_other(name: str) -> None:
    graph, scheme = model("policy", "experts"), SCHEMES[name]
    inputs = arrays(graph, EVEN)
    got = run(partition(unroll(graph, EVEN["L"]), scheme), inputs, EVEN, degrees(scheme))
    assert same(got, run(graph, inputs, EVEN))


def test_unrolling_and_sizes_must_agree() -> None:
    graph = graphs("dense", "none")
    inputs = arrays(graph, EVEN)
    with pytest.raises(GraphError, match="has size 4 but 3 entries; unroll as many times"):
        run(unroll(graph, 3), inputs, EVEN)
    with pytest.raises(GraphError, match="has no entry 4; unroll as many times"):
        run(unroll(graph, 5), inputs, EVEN)


def test_a_loop_runs_at_least_once() -> None:
    with pytest.raises(GraphError, match="cannot unroll 0 times; a loop runs at least once"):
        unroll(graphs("dense", "none"), 0)


def test_a_partitioned_loop_is_not_unrolled() -> None:
    with pytest.raises(GraphError, match="unroll the sequential graph"):
        unroll(partition(graphs("dense", "none"), SCHEMES["Pipeline"]), 4)
