"""A partitioned graph, run rank by rank with its collectives, gives what the sequential graph gives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.axes import Role, Split, Tensor
from graphs.blocks.decoder import DENSE, DISPATCHED, EXPERTS, block_parameters, decoder_block
from graphs.errors import GraphError
from graphs.execute import Machine, run
from graphs.ir import Builder, Graph, Node
from graphs.models.roles import ROLES, forward
from graphs.ops.collective import REDUCING, Collective
from graphs.ops.pointwise import Pointwise
from graphs.ops.reduction import Reduction
from graphs.ops.repeat import Repeat
from graphs.schemes import Mapping as Entry
from graphs.schemes import Scheme, schemes
from graphs.sizes import Sizes
from graphs.transforms.backward import training
from graphs.transforms.partition import partition
from graphs.transforms.recompute import Recompute

SCHEMES = schemes()
FFNS = {"dense": DENSE, "experts": EXPERTS, "dispatched": DISPATCHED}
HEADS = ("policy", "value", "reward")
EVEN = {"B": 4, "m": 8, "L": 4, "d": 16, "h": 4, "d_ff": 8, "V": 8, "E": 4, "E_a": 2, "d_e": 4}
MESHES = ("P_d", "P_p", "P_t", "P_c", "P_e", "P_s")


@cache
def model(role: str, ffn: str, recompute: Recompute = Recompute.NONE) -> Graph:
    return training(forward(Sizes.canonical(), ROLES[role], FFNS[ffn], loss=True), recompute=recompute)


@cache
def split(scheme: str, role: str, ffn: str) -> Graph:
    return partition(model(role, ffn), SCHEMES[scheme])


def arrays(graph: Graph, sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    rng, machine, out = np.random.default_rng(seed), Machine(sizes), {}
    for name, tensor in graph.inputs.items():
        shape = tuple(machine.count(a) for a in tensor.axes)
        index = tensor.role is Role.INDEX
        out[name] = rng.integers(0, sizes["V"], shape) if index else rng.normal(size=shape) / 2
    return out


@cache
def even_case(role: str, ffn: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    inputs = arrays(model(role, ffn), EVEN)
    return inputs, run(model(role, ffn), inputs, EVEN)


def same(got: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> bool:
    return set(got) == set(wanted) and all(np.allclose(got[k], wanted[k], rtol=1e-8, atol=1e-11) for k in wanted)


def degrees(scheme: Scheme, degree: int = 2) -> dict[str, int]:
    return dict.fromkeys(scheme.meshes, degree)


def everywhere(graph: Graph) -> Iterator[tuple[Node, bool]]:
    """Every occurrence, and whether it lies in a loop body."""
    for node in graph.nodes:
        yield node, False
        if isinstance(node.op, Repeat):
            yield from ((inner, True) for inner, _ in everywhere(node.op.body))


def collectives(graph: Graph) -> Counter[tuple[str, str, str]]:
    """Exchanges by place (layer or top), phase and action."""
    out = Counter[tuple[str, str, str]]()
    for node, inside in everywhere(graph):
        if isinstance(node.op, Collective) and node.op.action != "shard":
            out["layer" if inside else "top", node.phase, node.op.action] += 1
    return out


@st.composite
def divisible(draw: st.DrawFn, meshes: tuple[str, ...]) -> tuple[dict[str, int], dict[str, int]]:
    """Random small sizes that random degrees divide."""
    small = st.integers(1, 2)
    mesh = {name: draw(st.integers(1, 3 if len(meshes) < 3 else 2)) for name in meshes}
    p = {name: mesh.get(name, 1) for name in MESHES}
    heads, experts = p["P_t"] * p["P_c"] * draw(small), p["P_e"] * draw(small)
    width = p["P_d"] * p["P_s"] * draw(small)
    sizes = {
        "B": p["P_d"] * p["P_s"] * p["P_e"] * draw(small),
        "m": 2 * p["P_c"] * p["P_t"] * draw(small),
        "L": p["P_p"] * draw(small),
        "d": heads * width,
        "h": heads,
        "d_ff": p["P_t"] * draw(st.integers(1, 3)),
        "V": p["P_t"] * draw(st.integers(2, 3)),
        "E": experts,
        "E_a": draw(st.integers(1, experts)),
        "d_e": p["P_t"] * draw(small),
    }
    return sizes, mesh


@pytest.mark.parametrize("name", SCHEMES)
@given(data=st.data())
@settings(max_examples=12)
def test_every_scheme_gives_the_sequential_outputs_and_gradients(name: str, data: st.DataObject) -> None:
    role, ffn = data.draw(st.sampled_from(HEADS)), data.draw(st.sampled_from(sorted(FFNS)))
    sizes, mesh = data.draw(divisible(SCHEMES[name].meshes))
    inputs = arrays(model(role, ffn), sizes, data.draw(st.integers(0, 99)))
    assert same(run(split(name, role, ffn), inputs, sizes, mesh), run(model(role, ffn), inputs, sizes))


@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("role", HEADS)
@pytest.mark.parametrize("name", SCHEMES)
def test_degree_one_gives_back_the_sequential_results(name: str, role: str, ffn: str) -> None:
    inputs, wanted = even_case(role, ffn)
    got = run(split(name, role, ffn), inputs, EVEN, degrees(SCHEMES[name], 1))
    assert all(np.allclose(got[k], wanted[k], rtol=1e-12, atol=1e-14) for k in wanted)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_forward_graph_is_partitioned_too(name: str) -> None:
    graph = forward(Sizes.canonical(), ROLES["policy"], EXPERTS)
    inputs = arrays(graph, EVEN)
    assert same(run(partition(graph, SCHEMES[name]), inputs, EVEN, degrees(SCHEMES[name])), run(graph, inputs, EVEN))


@pytest.mark.parametrize("name", SCHEMES)
def test_recomputed_layers_give_the_same_gradients(name: str) -> None:
    inputs, wanted = even_case("policy", "dense")
    graph = partition(model("policy", "dense", Recompute.LAYER_BOUNDARY), SCHEMES[name])
    assert same(run(graph, inputs, EVEN, degrees(SCHEMES[name])), wanted)


def zigzag(scheme: Scheme) -> Scheme:
    return replace(scheme, entries=tuple(replace(e, layout="zigzag") if e.axis == "s" else e for e in scheme.entries))


@pytest.mark.parametrize("name", ["Context", "Sequence", "5D"])
@pytest.mark.parametrize("ffn", FFNS)
def test_zigzag_positions_give_the_sequential_results(name: str, ffn: str) -> None:
    scheme = zigzag(SCHEMES[name])
    inputs, wanted = even_case("reward", ffn)
    assert same(run(partition(model("reward", ffn), scheme), inputs, EVEN, degrees(scheme)), wanted)


def nested(order: tuple[str, ...]) -> Scheme:
    entries = (*SCHEMES["Sequence"].entries, Entry("s", "P_c"))
    return Scheme("nested", entries, "sequence inside context parallelism", nesting=(("s", order),))


@pytest.mark.parametrize("order", [("P_c", "P_t"), ("P_t", "P_c")])
def test_an_axis_nested_in_two_mesh_dimensions_gives_the_sequential_results(order: tuple[str, ...]) -> None:
    scheme = zigzag(nested(order))
    part = partition(model("policy", "dense"), scheme)
    (loop,) = (n for n in part.nodes if n.name == "blocks")
    assert tuple(s.mesh for s in loop.types[0].axis("s").splits) == order
    sizes = EVEN | {"m": 16}
    graph = model("policy", "dense")
    inputs = arrays(graph, sizes)
    assert same(run(part, inputs, sizes, degrees(scheme)), run(graph, inputs, sizes))


# Who left a partial result.


@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("name", SCHEMES)
def test_every_reducing_collective_names_occurrences_that_reduced_a_cut_axis(name: str, ffn: str) -> None:
    for node, _ in everywhere(split(name, "policy", ffn)):
        reducing = isinstance(node.op, Collective) and node.op.action in REDUCING
        assert bool(node.origins) == reducing
        assert all(hasattr(origin.op, "contracted") for origin in node.origins)


def test_origins_are_seen_through_additions_and_out_of_loops() -> None:
    tensor = [{o.name for o in n.origins} for n, inside in everywhere(split("Tensor", "policy", "dense")) if inside]
    assert {"query.d0'", "key.d0'", "value.d0'"} in tensor
    data = split("Data", "policy", "dense")
    origins = {k: {o.name for o in data.by_name[v.node].origins} for k, v in data.outputs.items()}
    assert origins["grad:W_q"] == {"query.d1'"}
    assert origins["grad:W_e"] == {"unembedding.d1'", "scatter'"}


# Corners that no model reaches.


def test_maxima_are_completed_before_they_are_added() -> None:
    sizes, build = Sizes.canonical(), Builder("maxima")
    x = build.input("x", sizes.tensor("b s c"))
    (top,) = build.add(Reduction("max", ("c",)), x)
    build.output("twice", build.add(Pointwise("add"), top, top)[0])
    graph, inputs = build.graph(), {"x": np.random.default_rng(0).normal(size=(4, 8, 16))}
    for entries in ((Entry("c", "P_t"),), (Entry("c", "P_t", 1), Entry("s", "P_t"))):
        part = partition(graph, Scheme("maxima", entries, "test"))
        assert same(run(part, inputs, EVEN, {"P_t": 2}), run(graph, inputs, EVEN))


def test_a_pipeline_sends_what_another_boundary_stage_reads_and_sends_it_once() -> None:
    """The second loop starts at the first stage again; the last stage reads a value of the first twice."""
    sizes, build = Sizes.canonical(), Builder("two loops")
    (x,) = build.add(Pointwise("gelu"), build.input("x", sizes.tensor("b s c")))
    stacked = [build.input(n, sizes.tensor(f"layer {a}", Role.PARAMETER)) for n, a in block_parameters(DENSE).items()]
    loop = Repeat(decoder_block(sizes), sizes.axes()["layer"], carried=1, stacked=len(stacked))
    (y,) = build.add(loop, build.add(loop, x, *stacked)[0], *stacked)
    (y,) = build.add(Pointwise("multiply"), y, x)
    build.output("y", build.add(Pointwise("multiply"), y, x)[0])
    graph = build.graph()
    part, inputs = partition(graph, SCHEMES["Pipeline"]), arrays(graph, EVEN)
    assert same(run(part, inputs, EVEN, {"P_p": 2}), run(graph, inputs, EVEN))
    assert collectives(part) == {("top", "forward", "send"): 2}


def test_only_the_innermost_cut_of_an_axis_is_gathered() -> None:
    axis = replace(Sizes.canonical().axes()["s"], splits=(Split("P_c"), Split("P_t")))
    with pytest.raises(GraphError, match="not the innermost cut of axis 's'"):
        Collective("all_gather", "P_c", "s").infer(Tensor((axis,)))


# Nothing is silently wrong.


Drawn = tuple[tuple[Entry, ...], tuple[tuple[str, tuple[str, ...]], ...]]
AXES = st.sampled_from(["b", "s", "t", "c", "h", "k", "f", "v", "e", "g", "b", "s", "h", "c", "layer", "r"])


@st.composite
def mappings(draw: st.DrawFn) -> Drawn:
    """Any axes on any mesh dimensions, sensible or not."""
    meshes = draw(st.lists(st.sampled_from(MESHES), min_size=1, max_size=3, unique=True))
    where = st.sampled_from(["everywhere", "everywhere", "blocks", "storage"])
    entry = st.builds(
        Entry, AXES, st.sampled_from(meshes), st.integers(0, 9), st.sampled_from(["contiguous", "zigzag"]), where
    )
    key = lambda e: (e.axis, e.mesh)  # noqa: E731
    entries = tuple(draw(st.lists(entry, min_size=1, max_size=5, unique_by=key)))
    nesting = []
    for names in ("b", "c", "h", "k", "f", "v", "g", "st", "er"):
        used = sorted({e.mesh for e in entries if e.axis in names})
        nesting += [(n, tuple(draw(st.permutations(used)))) for n in names]
    return entries, tuple(nesting)


def outcome(drawn: Drawn, role: str, ffn: str) -> dict[str, np.ndarray] | str:
    """The results of the partitioned graph, or the sentence that refuses it."""
    entries, nesting = drawn
    try:
        scheme = Scheme("random", entries, "random", nesting)
        return run(partition(model(role, ffn), scheme), even_case(role, ffn)[0], EVEN, degrees(scheme))
    except GraphError as error:
        return str(error)


def is_refused_or_equal(data: st.DataObject) -> None:
    role, ffn = data.draw(st.sampled_from(HEADS)), data.draw(st.sampled_from(sorted(FFNS)))
    got = outcome(data.draw(mappings()), role, ffn)
    if isinstance(got, str):
        assert re.match("scheme random: .*; |P_.=2 does not divide", got)
    else:
        assert same(got, even_case(role, ffn)[1])


@given(st.data())
@settings(max_examples=100)
def test_a_random_mapping_is_refused_or_gives_the_sequential_results(data: st.DataObject) -> None:
    is_refused_or_equal(data)


@pytest.mark.soak
@given(st.data())
@settings(max_examples=5000)
def test_thousands_of_random_mappings_are_refused_or_give_the_sequential_results(data: st.DataObject) -> None:
    is_refused_or_equal(data)
