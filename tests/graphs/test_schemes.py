"""Each scheme exchanges what it is known to exchange, shares out the work evenly, and bad schemes are refused."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
import sympy

from graphs.axes import Role, TopK
from graphs.errors import GraphError
from graphs.execute import Machine, run
from graphs.ir import Graph
from graphs.ops.collective import Collective
from graphs.ops.repeat import Repeat
from graphs.schemes import Declaration, Mapping, Scheme, schemes
from graphs.schemes.scheme import GATHERED
from graphs.sizes import Sizes
from graphs.transforms.partition import partition
from tests.graphs.test_partition import (
    EVEN,
    FFNS,
    MESHES,
    SCHEMES,
    collectives,
    degrees,
    even_case,
    everywhere,
    model,
    same,
    split,
)

AR, RS, AG, A2A = "all_reduce", "reduce_scatter", "all_gather", "all_to_all"
SIZES = Sizes.canonical()


def test_parameters_cut_in_storage_are_gathered_for_use_and_their_gradients_scattered() -> None:
    scheme = Scheme(
        "ZeRO-3", (Mapping("b", "P_d", 1), Mapping("c", "P_d", 0, where="storage")), "Rajbhandari et al. 2020"
    )
    inputs, wanted = even_case("policy", "dense")
    graph = partition(model("policy", "dense"), scheme)
    assert same(run(graph, inputs, EVEN, degrees(scheme)), wanted)
    counts = collectives(graph)
    assert counts["top", "backward", "reduce_scatter"] == 2
    assert counts["layer", "backward", "reduce_scatter"] == len(wanted) - 4
    assert counts["layer", "forward", "all_gather"] == len(list(model("policy", "dense").parameters())) - 2


def test_sequences_and_experts_may_share_a_mesh_dimension() -> None:
    """Tokens are gathered for the experts and their sums scattered back; the gates change from one cut to the other."""
    scheme = Scheme("experts on data ranks", (Mapping("b", "P_e"), Mapping("e", "P_e", priority=1)), "GShard")
    inputs, wanted = even_case("policy", "experts")
    graph = partition(model("policy", "experts"), scheme)
    assert same(run(graph, inputs, EVEN, degrees(scheme)), wanted)
    counts = collectives(graph)
    assert [counts["layer", "forward", action] for action in (AG, RS, "all_to_all")] == [1, 1, 1]


# What is exchanged, per layer, is what Megatron exchanges.

PER_LAYER = {
    ("Data", "dense"): {},
    ("Pipeline", "dense"): {},
    ("Tensor", "dense"): {("forward", AR): 2, ("backward", AR): 2},
    ("Tensor", "experts"): {("forward", AR): 2, ("backward", AR): 2},
    ("Sequence", "dense"): {("forward", AG): 2, ("forward", RS): 2, ("backward", AG): 4, ("backward", RS): 2},
    ("Context", "dense"): {("forward", AG): 2, ("backward", AG): 2, ("backward", RS): 2},
    ("Expert", "dense"): {},
    ("Expert", "experts"): {("forward", AR): 1, ("backward", AR): 1, ("backward", AG): 1},
    ("3D", "dense"): {("forward", AR): 2, ("backward", AR): 2},
    ("Ulysses", "dense"): {("forward", A2A): 4, ("backward", A2A): 4},
    ("Expert-A2A", "dispatched"): {("forward", A2A): 2, ("backward", A2A): 2},
    ("ZeRO-1", "dense"): {},
    ("ZeRO-2", "dense"): {("backward", RS): 8},
    ("ZeRO-3", "dense"): {("forward", AG): 8, ("backward", AG): 8, ("backward", RS): 8},
    ("HSDP", "dense"): {("forward", AG): 8, ("backward", AG): 8, ("backward", RS): 8},
}
#: where what was gathered is kept until the backward pass
PER_LAYER_KEPT = {
    "Tensor": {("forward", AR): 2, ("backward", AR): 2},
    "Sequence": {("forward", AG): 2, ("forward", RS): 2, ("backward", AG): 2, ("backward", RS): 2},
    "Context": {("forward", AG): 2, ("backward", RS): 2},
    "Ulysses": {("forward", A2A): 4, ("backward", A2A): 4},
    "ZeRO-3": {("backward", RS): 8},
}


def in_a_layer(graph: Graph) -> dict[tuple[str, str], int]:
    return {key[1:]: n for key, n in collectives(graph).items() if key[0] == "layer"}


@pytest.mark.parametrize(("name", "ffn"), PER_LAYER)
def test_collectives_of_a_layer(name: str, ffn: str) -> None:
    assert in_a_layer(split(name, "policy", ffn)) == PER_LAYER[name, ffn]


@pytest.mark.parametrize("name", PER_LAYER_KEPT)
def test_collectives_of_a_layer_where_gathered_values_are_kept(name: str) -> None:
    scheme = replace(SCHEMES[name], gathered="kept")
    inputs, wanted = even_case("policy", "dense")
    graph = partition(model("policy", "dense"), scheme)
    assert in_a_layer(graph) == PER_LAYER_KEPT[name]
    assert same(run(graph, inputs, EVEN, degrees(scheme)), wanted)


def test_sharded_weights_that_are_kept_are_gathered_once_before_the_layers() -> None:
    again, kept = (partition(model("policy", "dense"), replace(SCHEMES["ZeRO-3"], gathered=g)) for g in GATHERED)
    weights = len(list(model("policy", "dense").parameters()))
    assert collectives(kept)["top", "forward", AG] == weights
    assert collectives(again)["top", "forward", AG] == weights - 8


def test_what_is_exchanged_over_experts_is_one_copy_of_a_token_for_each_of_its_experts() -> None:
    for node, inside in everywhere(split("Expert-A2A", "policy", "dispatched")):
        if inside and isinstance(node.op, Collective):
            (tensor,) = node.types
            assert set(tensor.names) in ({"b", "s", "r", "c"}, {"b", "s", "e", "c"})
            assert [r.active for r in tensor.domain if isinstance(r, TopK)] == [SIZES.E_a]


@pytest.mark.parametrize("name", ["Tensor", "Sequence"])
def test_what_tensor_parallelism_exchanges_in_a_layer_is_one_activation(name: str) -> None:
    for node, inside in everywhere(split(name, "policy", "dense")):
        if inside and isinstance(node.op, Collective):
            assert set(node.types[0].names) == {"b", "s", "c"}


@pytest.mark.parametrize("ffn", FFNS)
def test_data_parallelism_reduces_each_gradient_once_and_outside_the_loop(ffn: str) -> None:
    graph = split("Data", "policy", ffn)
    gradients = [name for name in graph.outputs if name.startswith("grad:")]
    assert collectives(graph) == {("top", "forward", AR): 1, ("top", "backward", AR): len(gradients)}
    for name in gradients:
        node = graph.by_name[graph.outputs[name].node]
        assert isinstance(node.op, Collective)
        assert node.op.action == AR


def test_the_tied_embedding_costs_a_pipeline_one_send_to_its_first_stage() -> None:
    sends = [n for n, _ in everywhere(split("Pipeline", "policy", "dense")) if n.op == Collective("send", "P_p")]
    assert [(n.operands[0].node, n.stage) for n in sends] == [("unembedding.d1'", "first")]
    assert sum(collectives(split("Pipeline", "policy", "dense")).values()) == 1


@pytest.mark.parametrize("name", ["Pipeline", "3D"])
def test_occurrences_outside_the_loops_of_a_pipeline_are_bound_to_a_boundary_stage(name: str) -> None:
    graph = split(name, "policy", "dense")
    stages = {n.name: n.stage for n in graph.nodes}
    assert stages["embedding"] == stages["scatter'"] == "first"
    assert stages["unembedding"] == stages["norm_f"] == stages["unembedding.d1'"] == "last"
    assert stages["blocks"] is stages["blocks'"] is None


def test_an_occurrence_bound_to_the_wrong_pipeline_stage_is_noticed() -> None:
    inputs, _ = even_case("policy", "dense")
    graph = split("Pipeline", "policy", "dense")
    nodes = tuple(replace(n, stage="last") if n.name == "embedding" else n for n in graph.nodes)
    with pytest.raises(GraphError, match="does not hold its input 'x'; send it there"):
        run(Graph(graph.name, graph.inputs, nodes, graph.outputs), inputs, EVEN, {"P_p": 2})


def test_saved_values_leave_the_loop_as_shards() -> None:
    for name, mesh in (("Sequence", "P_t"), ("Context", "P_c")):
        (loop,) = (n for n in split(name, "policy", "dense").nodes if n.name == "blocks")
        for tensor in loop.types:
            assert any(s.mesh == mesh for a in tensor.axes for s in a.splits)


def test_the_backward_pass_gathers_again_what_the_forward_pass_gathered() -> None:
    """Once for the final norm (its input left the loop cut) and once for the embedding's gradient."""
    counts = collectives(split("Sequence", "policy", "dense"))
    assert (counts["top", "forward", AG], counts["top", "backward", AG]) == (1, 2)


def test_index_data_is_never_exchanged() -> None:
    entries = tuple(replace(e, where="everywhere") for e in SCHEMES["Sequence"].entries)
    for node, _ in everywhere(partition(model("policy", "dense"), Scheme("everywhere", entries, "test"))):
        if isinstance(node.op, Collective) and node.types[0].role is Role.INDEX:
            assert node.op.action == "shard"


@pytest.mark.parametrize(("layout", "fair"), [("contiguous", False), ("zigzag", True)])
def test_zigzag_positions_give_every_rank_as_many_causal_pairs(layout: str, fair: bool) -> None:
    scheme = Scheme("context", (Mapping("s", "P_c", layout=layout),), "test")
    graph, machine = partition(model("policy", "dense"), scheme), Machine(EVEN, {"P_c": 4})
    axis = graph.by_name["embedding"].types[0].axis("s")
    pairs = {int((machine.positions(axis, {"P_c": rank}) + 1).sum()) for rank in range(4)}
    assert (len(pairs) == 1) == fair


def work(graph: Graph) -> Counter[str]:
    """Multiplications of every contraction of the graph, in numbers at the even sizes and degree 2."""
    machine, out = Machine(EVEN, dict.fromkeys(MESHES, 2)), Counter[str]()
    for node in graph.nodes:
        if isinstance(node.op, Repeat):
            times = int(machine.number(node.op.axis.extent))
            out.update({f"{node.name}/{name}": times * n for name, n in work(node.op.body).items()})
        elif node.op.kind == "contraction":
            axes = {a.name: a for v in node.operands for a in graph.type(v).axes}
            out[node.name] = int(machine.number(sympy.prod(a.extent for a in axes.values())))
    return out


@pytest.mark.parametrize(
    ("name", "shared"), [("Data", 2), ("Tensor", 2), ("Sequence", 2), ("Context", 2), ("Pipeline", 2), ("3D", 8)]
)
def test_ranks_share_the_work_of_every_contraction_evenly(name: str, shared: int) -> None:
    whole, part = work(model("policy", "dense")), work(split(name, "policy", "dense"))
    assert set(part) == set(whole)
    for node in whole:
        at_boundary = "/" not in node and name in ("Pipeline", "3D")
        assert whole[node] == part[node] * (shared // 2 if at_boundary else shared)


# What a user may get wrong.


def test_schemes_are_discovered_in_sorted_order_of_their_files() -> None:
    known = "Context Data Expert Expert-A2A 5D HSDP None Pipeline Ring Sequence Tensor 3D Ulysses ZeRO-1 ZeRO-2 ZeRO-3"
    assert " ".join(schemes()) == known
    assert all(scheme.source for scheme in schemes().values())
    assert not schemes()["None"].entries


M = Mapping
BAD = {
    "an unknown mesh dimension": ((M("b", "P_z"),), "unknown mesh 'P_z'"),
    "an unknown axis": ((M("q", "P_d"),), "unknown axis 'q'"),
    "an unknown layout": ((M("s", "P_c", layout="striped"),), "unknown layout 'striped'"),
    "an unknown place": ((M("h", "P_t", where="nowhere"),), "unknown where 'nowhere'"),
    "an entry twice": ((M("b", "P_d"), M("b", "P_d", 1)), "'b' is mapped to P_d twice"),
    "two axes of one priority on one mesh dimension": ((M("b", "P_d"), M("s", "P_d")), "b and s, both mapped to P_d"),
    "an axis on two mesh dimensions without nesting": ((M("b", "P_d"), M("b", "P_e")), "'b' is mapped to P_d and P_e"),
    "the same under another name": ((M("s", "P_c"), M("t", "P_t")), "s and t name one axis"),
    "the axis of the router": ((M("r", "P_e"),), "needs axis 'r' whole"),
    "layers and another axis": ((M("layer", "P_p"), M("b", "P_p", 1)), "P_p carries the layer axis and another"),
    "a mesh dimension of a strange name": ((M("b", "Q"),), "unknown mesh 'Q'"),
    "layers in zigzag": ((M("layer", "P_p", layout="zigzag"),), "contiguous stages"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_scheme_gets_one_sentence_with_its_name_and_the_mend(case: str) -> None:
    entries, words = BAD[case]
    with pytest.raises(GraphError, match=re.escape(words)) as caught:
        partition(model("policy", "experts"), Scheme("mine", entries, "test"))
    assert re.fullmatch(r"scheme mine: [^\n]+; [^\n.]+", str(caught.value))


def test_a_degree_that_does_not_divide_is_named_with_its_axis() -> None:
    inputs = even_case("policy", "dense")[0]
    with pytest.raises(GraphError, match="P_t=3 does not divide axis 'v' of size 8"):
        run(split("Tensor", "policy", "dense"), inputs, EVEN, {"P_t": 3})


def test_two_scheme_files_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = tuple(Declaration(SCHEMES["Data"], place=place) for place in ("data.py", "other.py"))
    monkeypatch.setattr("graphs.schemes._discovered", lambda: twice)
    with pytest.raises(GraphError, match=r"other.py: a scheme is called 'Data' already \(in data.py\)"):
        schemes()
