"""Ring attention is attention: block by block on one device, and on ranks that hand keys and values round."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.axes import Axis, Role, Split, Tensor
from graphs.blocks.decoder import DENSE, EXPERTS, RING, decoder_block
from graphs.errors import GraphError
from graphs.execute import run
from graphs.ir import Array, Builder, Graph, Node
from graphs.models.roles import ROLES, forward
from graphs.ops.collective import Collective
from graphs.ops.fold import Blocks, Fold, Unfold
from graphs.ops.pointwise import FUNCTIONS, Pointwise
from graphs.ops.reduction import Reduction
from graphs.ops.repeat import Repeat
from graphs.ops.roll import Roll
from graphs.schemes import Mapping, Scheme, schemes
from graphs.sizes import Sizes
from graphs.symbols import size
from graphs.transforms.backward import saved_values, training
from graphs.transforms.expand import expand_macros
from graphs.transforms.partition import partition
from graphs.transforms.recompute import Recompute
from graphs.transforms.unroll import unroll
from tests.graphs.test_partition import EVEN, arrays, collectives, even_case, model, same

SIZES, SCHEMES = Sizes.canonical(), schemes()
FFNS = {"dense": DENSE, "experts": EXPERTS}


@cache
def ring_model(role: str = "policy", ffn: str = "dense", recompute: Recompute = Recompute.NONE) -> Graph:
    return training(forward(SIZES, ROLES[role], FFNS[ffn], loss=True, attention=RING), recompute=recompute)


@cache
def split_ring(scheme: str = "Ring") -> Graph:
    return partition(ring_model(), {**SCHEMES, **COMBINED}[scheme])


RING_ENTRIES = SCHEMES["Ring"].entries
COMBINED = {
    scheme.name: scheme
    for scheme in (
        Scheme("ring and tensor", RING_ENTRIES + SCHEMES["Tensor"].entries, "test"),
        Scheme("ring tensor data", (*RING_ENTRIES, *SCHEMES["Tensor"].entries, *SCHEMES["Data"].entries), "test"),
        Scheme("ring and sequence", RING_ENTRIES + SCHEMES["Sequence"].entries, "test", (("s", ("P_c", "P_t")),)),
        Scheme("ring and pipeline", RING_ENTRIES + SCHEMES["Pipeline"].entries, "test"),
        Scheme("ring and ZeRO-3", RING_ENTRIES + SCHEMES["ZeRO-3"].entries, "test"),
    )
}


# -- one device -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("role", ["policy", "reward"])
@pytest.mark.parametrize("ffn", FFNS)
@given(blocks=st.integers(1, 5), length=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=6)
def test_any_number_of_blocks_gives_the_outputs_and_gradients_of_attention(
    role: str, ffn: str, blocks: int, length: int, seed: int
) -> None:
    sizes = EVEN | {"m": blocks * length, "P_c": blocks}
    inputs = arrays(model(role, ffn), sizes, seed)
    assert same(run(ring_model(role, ffn), inputs, sizes), run(model(role, ffn), inputs, sizes))


def test_scores_so_large_that_their_exponentials_overflow_do_no_harm() -> None:
    """The shift follows the largest score met so far, whichever block it lies in."""
    sizes = EVEN | {"P_c": 4}
    inputs = arrays(model("policy", "dense"), sizes)
    inputs |= {"W_q": 60 * inputs["W_q"], "W_k": 60 * inputs["W_k"]}
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        got = run(ring_model(), inputs, sizes)
    assert same(got, run(model("policy", "dense"), inputs, sizes))


@pytest.mark.parametrize("blocks", [1, 4])
def test_recomputed_layers_give_the_same_gradients(blocks: int) -> None:
    sizes = EVEN | {"P_c": blocks}
    inputs = arrays(ring_model(), sizes)
    wanted = run(ring_model(), inputs, sizes)
    again = ring_model(recompute=Recompute.LAYER_BOUNDARY)
    assert all(np.array_equal(a, wanted[k]) for k, a in run(again, inputs, sizes).items())
    assert "recompute" in {n.phase for n, _ in deep(again) if isinstance(n.op, Repeat)}


def test_expanded_macros_give_the_same_gradients() -> None:
    sizes = EVEN | {"P_c": 2}
    inputs = arrays(ring_model(), sizes)
    assert same(run(expand_macros(ring_model()), inputs, sizes), run(ring_model(), inputs, sizes))


@pytest.mark.parametrize("blocks", [2, 4])
def test_the_unrolled_ring_is_the_ring(blocks: int) -> None:
    sizes = EVEN | {"P_c": blocks}
    inputs, wanted = arrays(ring_model(), sizes), run(ring_model(), arrays(ring_model(), sizes), sizes)
    unrolled = unroll(ring_model(), {"layer": EVEN["L"], "j": blocks - 1})
    assert not any(isinstance(n.op, Repeat) for n in unrolled.nodes)
    assert all(np.array_equal(a, wanted[k]) for k, a in run(unrolled, inputs, sizes).items())
    assert same(run(partition(unrolled, SCHEMES["Ring"]), inputs, EVEN, {"P_c": blocks}), wanted)


def test_unrolling_asks_how_often_each_loop_runs() -> None:
    with pytest.raises(GraphError, match=r"^ring runs along axis 'j'; say how often it is unrolled$"):
        unroll(ring_model(), {"layer": 2})


def test_an_uneven_number_of_positions_is_refused() -> None:
    sizes = EVEN | {"P_c": 3}
    with pytest.raises(GraphError, match="axis 'u' has size m/P_c = 8/3, not a whole number"):
        run(ring_model(), arrays(ring_model(), EVEN), sizes)


# -- ranks ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("degree", [1, 2, 3, 4])
@pytest.mark.parametrize("ffn", FFNS)
def test_ranks_in_a_ring_give_the_sequential_outputs_and_gradients(ffn: str, degree: int) -> None:
    sizes = EVEN | {"m": 12}
    inputs = arrays(model("policy", ffn), sizes)
    got = run(partition(ring_model("policy", ffn), SCHEMES["Ring"]), inputs, sizes, {"P_c": degree})
    assert same(got, run(model("policy", ffn), inputs, sizes))


@pytest.mark.parametrize("name", COMBINED)
def test_a_ring_goes_together_with_other_schemes(name: str) -> None:
    inputs, wanted = even_case("policy", "dense")
    mesh = dict.fromkeys(COMBINED[name].meshes, 2) | {"P_c": 4 if name == "ring and tensor" else 2}
    assert same(run(split_ring(name), inputs, EVEN, mesh), wanted)
    permutes = Counter(n.phase for n, _ in deep(split_ring(name)) if is_permute(n))
    assert permutes == {"forward": 2, "backward": 4}


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_that_does_not_cut_the_blocks_gives_the_sequential_results_too(name: str) -> None:
    inputs, wanted = even_case("policy", "dense")
    mesh = dict.fromkeys(SCHEMES[name].meshes, 2)
    assert same(run(partition(ring_model(), SCHEMES[name]), inputs, EVEN | {"P_c": 2}, mesh), wanted)


def test_recomputation_goes_round_once_more() -> None:
    inputs, wanted = even_case("policy", "dense")
    graph = partition(ring_model(recompute=Recompute.LAYER_BOUNDARY), SCHEMES["Ring"])
    assert same(run(graph, inputs, EVEN, {"P_c": 4}), wanted)
    assert Counter(n.phase for n, _ in deep(graph) if is_permute(n)) == {"forward": 2, "recompute": 2, "backward": 4}


# -- what goes round --------------------------------------------------------------------------------------------------
def deep(graph: Graph, loops: tuple[str, ...] = ()) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """Every occurrence with the loops around it."""
    for node in graph.nodes:
        yield node, loops
        if isinstance(node.op, Repeat):
            yield from deep(node.op.body, (*loops, node.name))


def is_permute(node: Node) -> bool:
    return isinstance(node.op, Collective) and node.op.action == "permute"


def test_keys_and_values_go_round_forward_and_their_gradients_with_them_backward() -> None:
    found = [(n, loops) for n, loops in deep(split_ring()) if is_permute(n)]
    assert {(n.phase, loops) for n, loops in found} == {
        ("forward", ("blocks", "ring")),
        ("backward", ("blocks'", "ring'")),
    }
    steps = Counter((n.phase, n.types[0].role, n.op.step) for n, _ in found if isinstance(n.op, Collective))
    assert steps == {
        ("forward", Role.ACTIVATION, 1): 2,
        ("backward", Role.ACTIVATION, -1): 2,
        ("backward", Role.GRADIENT, -1): 2,
    }
    (size_of_all,) = {tuple((a.name, a.extent) for a in n.types[0].axes) for n, _ in found}
    axes = SIZES.axes()
    assert dict(size_of_all) == {
        "b": size("B"),
        "a": 1,
        "w": size("m") / size("P_c"),
        "h": axes["h"].size,
        "k": axes["k"].size,
    }


def test_nothing_else_is_exchanged_in_a_layer_and_there_is_one_step_fewer_than_ranks() -> None:
    counts = collectives(split_ring())
    assert {key for key in counts if key[0] == "layer"} == {
        ("layer", "forward", "permute"),
        ("layer", "backward", "permute"),
    }
    trips = {n.op.axis.size for n, _ in deep(split_ring()) if isinstance(n.op, Repeat) and n.op.axis.name == "j"}
    assert trips == {size("P_c") - 1}


def tampered(graph: Graph, victim: int, change: str, at: int = 0) -> tuple[Graph, int]:
    """The graph with its permute number ``victim`` turned round or left out, and the number of those passed."""
    nodes = []
    for node in graph.nodes:
        op = node.op
        if isinstance(op, Repeat):
            body, at = tampered(op.body, victim, change, at)
            op = replace(op, body=body)
        elif is_permute(node) and isinstance(op, Collective):
            if at == victim:
                op = replace(op, step=-op.step) if change == "turned round" else Pointwise("scale")
            at += 1
        nodes.append(replace(node, op=op))
    return Graph(graph.name, graph.inputs, tuple(nodes), graph.outputs), at


@pytest.mark.parametrize("change", ["turned round", "left out"])
def test_any_one_permute_turned_round_or_left_out_is_noticed(change: str) -> None:
    inputs, wanted = even_case("policy", "dense")
    assert tampered(split_ring(), -1, change)[1] == 6
    for victim in range(6):
        got = run(tampered(split_ring(), victim, change)[0], inputs, EVEN, {"P_c": 4})
        assert not same(got, wanted), victim


def test_a_permute_hands_every_ranks_part_to_the_next_and_the_last_to_the_first() -> None:
    axis = Axis("a", size("P_c"), (Split("P_c"),))
    build = Builder("hand on")
    x = build.input("x", Tensor((axis,)))
    for step in (1, -1, 2):
        build.output(str(step), build.add(Collective("permute", "P_c", "a", step=step), x)[0])
    got = run(build.graph(), {"x": np.arange(4.0)}, {}, {"P_c": 4})
    assert {k: a.tolist() for k, a in got.items()} == {"1": [3, 0, 1, 2], "-1": [1, 2, 3, 0], "2": [2, 3, 0, 1]}


def test_rank_r_of_p_sees_r_plus_1_blocks_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own, and those that the masks of the steps leave it; the others are hidden altogether."""
    p, visible, calls = 4, [1] * 4, itertools.count()
    arity, meaning = FUNCTIONS["where_less"]

    def watched(x: Array, key: Array, query: Array) -> Array:
        shown = np.isfinite(out := meaning(x, key, query))
        assert shown.all() or not shown.any()
        visible[next(calls) % p] += bool(shown.all())  # ranks take turns in every step
        return out

    monkeypatch.setitem(FUNCTIONS, "where_less", (arity, watched))
    block = partition(decoder_block(SIZES, attention=RING), SCHEMES["Ring"])
    run(block, arrays(block, EVEN | {"P_c": p}), EVEN, {"P_c": p})
    assert next(calls) == p * (p - 1)
    assert visible == [1, 2, 3, 4]


# -- loops inside loops -----------------------------------------------------------------------------------------------
def test_no_running_result_and_no_travelling_keys_are_kept_for_each_step() -> None:
    (layers,) = (n for n in split_ring().nodes if n.name == "blocks")
    assert isinstance(layers.op, Repeat)
    (ring,) = (n for n in layers.op.body.nodes if n.name == "ring")
    assert isinstance(ring.op, Repeat)
    kept = list(ring.op.body.outputs)[ring.op.carried :]
    assert sorted(kept) == ["saved:exponentials[0]", "saved:rescale[0]"]
    names = list(layers.op.body.outputs)
    read = [names[v.index] for v in saved_values(split_ring()) if v.node == "blocks" and v.index >= 1]
    travelled = [n for n in read if n in ("saved:ring[3]", "saved:ring[4]")]
    assert len(travelled) == 2
    assert not any(n.startswith(("saved:key", "saved:value")) for n in read)


def test_a_value_shared_by_all_iterations_gets_the_sum_of_their_gradients() -> None:
    """x <- x w, n times, of one w: the gradient of w is that of x w^n."""
    vector = Tensor((SIZES.axes()["c"],), Role.PARAMETER)
    body = Builder("body")
    x, w = body.input("x", vector.with_role(Role.ACTIVATION)), body.input("w", vector)
    body.output("x", body.add(Pointwise("multiply"), x, w)[0])
    build = Builder("powers")
    x, w = build.input("x", vector.with_role(Role.INPUT)), build.input("w", vector)
    (y,) = build.add(Repeat(body.graph(), SIZES.axes()["layer"], 1, 0), x, w)
    build.output("y", y)
    (loss,) = build.add(Pointwise("multiply"), y, y)
    build.output("loss", build.add(Reduction("sum", ("c",)), loss)[0])
    rng = np.random.default_rng(0)
    inputs = {"x": rng.normal(size=3), "w": rng.normal(size=3)}
    for n in (1, 2, 5):
        got = run(training(build.graph()), inputs, {"d": 3, "L": n})["grad:w"]
        np.testing.assert_allclose(got, 2 * n * inputs["x"] ** 2 * inputs["w"] ** (2 * n - 1))


# -- nothing is silently wrong ----------------------------------------------------------------------------------------
def test_blocks_that_are_no_ranks_are_refused() -> None:
    scheme = Scheme("too coarse", (Mapping("a", "P_d"),), "test")
    with pytest.raises(GraphError, match=r"^scheme too coarse: keys.next rolls axis 'a', of which a rank has not one"):
        partition(ring_model(), scheme)


def test_only_the_loop_over_layers_is_cut() -> None:
    with pytest.raises(GraphError, match="the iterations of ring follow each other on every rank; leave 'j' unmapped"):
        partition(ring_model(), Scheme("steps", (Mapping("j", "P_d"),), "test"))


def test_blocks_that_do_not_make_up_the_axis_are_refused() -> None:
    axes = SIZES.axes()
    with pytest.raises(GraphError, match="P_c blocks of d/h are not the m positions of axis 's'"):
        Blocks(axes["s"], axes["a"], axes["k"])
    with pytest.raises(GraphError, match="axis 's' is not cut like its blocks 'a'; cut it alike"):
        Blocks(replace(axes["s"], splits=(Split("P_c"),)), axes["a"], axes["u"])
    blocks = Blocks(axes["s"], axes["a"], axes["u"])
    for op in (Unfold(blocks), Fold(blocks)):
        with pytest.raises(GraphError, match=r"the operand over \(c\) has no "):
            op.infer(Tensor((axes["c"],)))


AXES = st.sampled_from([*"bsacuhkfvwj", "s", "a", "a", "layer"])
PLACES = st.sampled_from(["everywhere", "everywhere", "blocks", "attention", "storage"])


@st.composite
def random_schemes(draw: st.DrawFn) -> Scheme:
    """Any axes on any mesh dimensions, blocks above all; GraphError where the mapping itself is refused."""
    meshes = draw(st.lists(st.sampled_from(["P_c", "P_d", "P_t"]), min_size=1, max_size=3, unique=True))
    entry = st.builds(Mapping, AXES, st.sampled_from(meshes), st.integers(0, 9), where=PLACES)
    entries = draw(st.lists(entry, min_size=1, max_size=5, unique_by=lambda e: (e.axis, e.mesh)))
    if draw(st.booleans()):
        entries = [*(e for e in entries if (e.axis, e.mesh) not in (("s", "P_c"), ("a", "P_c"))), *RING_ENTRIES]
    nesting = []
    for names in ("b", "s", "a", "c", "h", "k", "f", "v", "uw"):
        used = sorted({e.mesh for e in entries if e.axis in names})
        nesting += [(n, tuple(draw(st.permutations(used)))) for n in names]
    return Scheme("random", tuple(entries), "random", tuple(nesting), draw(st.sampled_from(["again", "kept"])))


@given(st.data())
@settings(max_examples=40)
def test_a_random_mapping_of_a_ring_is_refused_or_gives_the_sequential_results(data: st.DataObject) -> None:
    inputs, wanted = even_case("policy", "dense")
    try:
        scheme = data.draw(random_schemes())
        mesh = dict.fromkeys(scheme.meshes, 2)
        got = run(partition(ring_model(), scheme), inputs, EVEN | {"P_c": 2}, mesh)
    except GraphError as error:
        if not str(error).startswith(("scheme random: ", "P_c=2 does not divide")):
            raise
    else:
        assert same(got, wanted)


def test_a_block_of_a_decoder_runs_alone() -> None:
    sizes = EVEN | {"P_c": 4}
    inputs = arrays(decoder_block(SIZES), sizes)
    block = decoder_block(SIZES, attention=RING)
    assert same(run(block, inputs, sizes), run(decoder_block(SIZES), inputs, sizes))
    assert any(isinstance(n.op, Roll) for n, _ in deep(block))
