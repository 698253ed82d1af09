"""Micro-batches: their mean gradients are those of the batch, and a reduction waits for the last one where it may."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from graphs.errors import GraphError
from graphs.execute import run
from graphs.ir import Graph
from graphs.models.roles import forward
from graphs.ops.collective import Collective
from graphs.ops.repeat import Repeat
from graphs.schemes import Scheme
from graphs.sizes import Sizes
from graphs.transforms.accumulate import accumulate
from graphs.transforms.partition import partition
from tests.graphs.test_partition import EVEN, SCHEMES, arrays, degrees, model, same

MICRO = 3
SIZES = EVEN | {"n_mb": MICRO}
WHOLE = [name for name, scheme in SCHEMES.items() if "P_p" not in scheme.meshes]


@cache
def micro_batches() -> Graph:
    return accumulate(model("policy", "dense"))


@cache
def case() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    inputs = arrays(micro_batches(), SIZES)
    return inputs, run(micro_batches(), inputs, SIZES)


def exchanges(graph: Graph, depth: int = 0) -> Counter[tuple[int, str, str]]:
    """Collectives by the number of loops around them, phase and action."""
    out = Counter[tuple[int, str, str]]()
    for node in graph.nodes:
        if isinstance(node.op, Repeat):
            out += exchanges(node.op.body, depth + 1)
        elif isinstance(node.op, Collective) and node.op.action != "shard":
            out[depth, node.phase, node.op.action] += 1
    return out


def test_accumulated_gradients_are_those_of_all_sequences_at_once() -> None:
    inputs, got = case()
    joined = {k: a.reshape(-1, *a.shape[2:]) if k in ("ids", "targets") else a for k, a in inputs.items()}
    whole = run(model("policy", "dense"), joined, EVEN | {"B": MICRO * EVEN["B"]})
    assert same(got, {k: whole[k] for k in got})


@pytest.mark.parametrize(("gathered", "accumulated"), [("again", "shards"), ("kept", "shards"), ("again", "partial")])
@pytest.mark.parametrize("name", WHOLE)
def test_every_scheme_accumulates_the_sequential_gradients(name: str, gathered: str, accumulated: str) -> None:
    scheme = replace(SCHEMES[name], gathered=gathered, accumulated=accumulated)
    inputs, wanted = case()
    assert same(run(partition(micro_batches(), scheme), inputs, SIZES, degrees(scheme)), wanted)


def reductions(scheme: Scheme) -> tuple[int, int]:
    """Reductions of gradients in each micro-batch, and after the last."""
    found = exchanges(partition(micro_batches(), scheme))
    sums = {k: n for k, n in found.items() if k[1] == "backward" and k[2] in ("all_reduce", "reduce_scatter")}
    return sum(n for k, n in sums.items() if k[0]), sum(n for k, n in sums.items() if not k[0])


@pytest.mark.parametrize(
    ("name", "policy", "each", "last"),
    [
        ("Data", "shards", 0, 10),
        ("ZeRO-1", "shards", 0, 10),
        ("ZeRO-2", "shards", 10, 0),
        ("ZeRO-3", "shards", 10, 0),
        ("ZeRO-2", "partial", 0, 10),
        ("ZeRO-3", "partial", 0, 10),
        ("HSDP", "shards", 10, 10),
    ],
)
def test_gradients_are_reduced_once_unless_they_are_added_to_shards(
    name: str, policy: str, each: int, last: int
) -> None:
    assert reductions(replace(SCHEMES[name], accumulated=policy)) == (each, last)


def gathers(policy: str) -> dict[tuple[int, str], int]:
    """All-gathers by the number of loops around them and phase."""
    found = exchanges(partition(micro_batches(), replace(SCHEMES["ZeRO-3"], gathered=policy)))
    return {(depth, phase): n for (depth, phase, action), n in found.items() if action == "all_gather"}


def test_weights_in_shards_are_gathered_in_each_micro_batch_unless_they_are_kept() -> None:
    assert gathers("again") == {(1, "forward"): 2, (2, "forward"): 8, (1, "backward"): 2, (2, "backward"): 8}
    assert gathers("kept") == {(0, "forward"): 10}


@pytest.mark.parametrize("name", sorted(SCHEMES.keys() - WHOLE))
def test_micro_batches_of_a_pipeline_are_not_run_one_after_the_other(name: str) -> None:
    words = "micro_batches would run a pipeline once per iteration; leave its layers uncut"
    with pytest.raises(GraphError, match=words):
        partition(micro_batches(), SCHEMES[name])


def test_only_a_training_graph_can_be_micro_batches() -> None:
    with pytest.raises(GraphError, match="no output 'loss' with gradients to accumulate; differentiate it first"):
        accumulate(forward(Sizes.canonical(), loss=True))
