"""Generation with a key-value cache is what running the whole model on the growing sequence gives."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.axes import Axis, Prefix, Role, Tensor
from graphs.blocks.decoder import DENSE, EXPERTS
from graphs.errors import GraphError
from graphs.execute import run
from graphs.ir import Array, Builder, Graph
from graphs.models.generation import POSITIONS, STEPS, decode_step, generation
from graphs.models.roles import forward
from graphs.ops.constant import Broadcast, Constant
from graphs.ops.pointwise import Pointwise
from graphs.ops.reduction import Reduction
from graphs.ops.scan import Scan
from graphs.ops.write import Write
from graphs.schemes import schemes
from graphs.sizes import Sizes
from graphs.symbols import index, size
from graphs.transforms.backward import training
from graphs.transforms.partition import partition
from graphs.transforms.unroll import unroll
from tests.graphs.test_partition import degrees, same
from tests.strategies import arrays_for

SIZES = Sizes.canonical()
FFNS = {"dense": DENSE, "experts": EXPERTS}
N = {"B": 2, "S": 3, "T": 4, "L": 2, "d": 6, "h": 2, "d_ff": 5, "V": 7, "E": 4, "E_a": 2, "d_e": 3}
lengths = st.tuples(st.integers(1, 5), st.integers(1, 5))


@cache
def graph_of(ffn: str, draw: bool = False) -> Graph:
    return generation(SIZES, FFNS[ffn], draw)


@cache
def whole(ffn: str) -> Graph:
    return forward(SIZES, ffn=FFNS[ffn])


def inputs_for(ffn: str, sizes: dict[str, int], seed: int, draw: bool = False) -> dict[str, Array]:
    inputs = arrays_for(graph_of(ffn, draw), sizes, seed)
    uniform = np.random.default_rng(seed + 1).random((sizes["T"], sizes["B"]))
    return inputs | {"uniform": uniform[0], "uniforms": uniform[1:]} if draw else inputs


def rerun(ffn: str, inputs: dict[str, Array], sizes: dict[str, int], uniform: Array | None) -> tuple[Array, Array]:
    """Tokens and log-probabilities [T,b]: the whole forward pass for every token, its last logits alone looked at."""
    ids, tokens, logs = inputs["ids"], [], []
    for i in range(sizes["T"]):
        logits = run(whole(ffn), inputs | {"ids": ids}, sizes | {"m": sizes["S"] + i})["out"][:, -1]
        p = np.exp(logits - logits.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        if uniform is None:
            chosen = logits.argmax(-1)
        else:
            pairs = zip(p, uniform[i], strict=True)
            chosen = np.array([np.searchsorted(np.cumsum(row), u, side="right") for row, u in pairs])
        tokens.append(chosen)
        logs.append(np.log(np.take_along_axis(p, chosen[:, None], -1)[:, 0]))
        ids = np.concatenate([ids, chosen[:, None]], axis=1)
    return np.array(tokens), np.array(logs)


def response(out: dict[str, Array], name: str) -> Array:
    first, rest = {"tokens": ("first", "rest"), "logs": ("log_first", "log_rest")}[name]
    return np.concatenate([out[first][None], out[rest]])


@pytest.mark.parametrize("draw", [False, True], ids=["greedy", "drawn"])
@pytest.mark.parametrize("ffn", FFNS)
@settings(max_examples=8)
@given(length=lengths, seed=st.integers(0, 999))
def test_tokens_and_their_log_probabilities_are_those_of_the_whole_model_run_for_every_token(
    ffn: str, draw: bool, length: tuple[int, int], seed: int
) -> None:
    sizes = N | dict(zip("ST", length, strict=True))
    inputs = inputs_for(ffn, sizes, seed, draw)
    uniform = np.concatenate([inputs["uniform"][None], inputs["uniforms"]]) if draw else None
    out = run(graph_of(ffn, draw), inputs, sizes)
    tokens, logs = rerun(ffn, inputs, sizes, uniform)
    np.testing.assert_array_equal(response(out, "tokens"), tokens)
    np.testing.assert_allclose(response(out, "logs"), logs, rtol=1e-9)


def test_draws_differ_from_greedy_choice() -> None:
    sizes = N | {"B": 8}
    inputs = inputs_for("dense", sizes, 0, draw=True)
    drawn, greedy = run(graph_of("dense", True), inputs, sizes), run(graph_of("dense"), inputs, sizes)
    assert np.any(response(drawn, "tokens") != response(greedy, "tokens"))


def test_the_cache_holds_the_first_layers_keys_of_every_token_but_the_last() -> None:
    inputs = inputs_for("dense", N, 3)
    out = run(graph_of("dense"), inputs, N)
    ids = np.concatenate([inputs["ids"], response(out, "tokens").T], axis=1).astype(int)[:, :-1]
    x = inputs["W_e"][ids]
    centred = x - x.mean(-1, keepdims=True)
    normed = inputs["gain_1"][0] * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    assert out["keys"].shape == (N["L"], N["B"], N["S"] + N["T"] - 1, N["h"], N["d"] // N["h"])
    for name, w in (("keys", "W_k"), ("values", "W_v")):
        np.testing.assert_allclose(out[name][0], np.einsum("btc,chk->bthk", normed, inputs[w][0]), rtol=1e-9)


@pytest.mark.parametrize("ffn", FFNS)
def test_one_set_of_weights_serves_generation_and_the_forward_pass(ffn: str) -> None:
    assert dict(graph_of(ffn).parameters()) == dict(whole(ffn).parameters())


@pytest.mark.parametrize("ffn", FFNS)
def test_an_unrolled_generation_gives_the_same_outputs(ffn: str) -> None:
    inputs = inputs_for(ffn, N, 5, draw=True)
    unrolled = unroll(graph_of(ffn, True), {"layer": N["L"], "step": N["T"] - 1})
    assert not any(isinstance(n.op, Scan) for n in unrolled.nodes)
    got, wanted = run(unrolled, inputs, N), run(graph_of(ffn, True), inputs, N)
    assert got.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_array_equal(got[name], wanted[name])


@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("name", ["None", "Data", "Tensor", "Expert"])
def test_a_partitioned_generation_gives_the_same_outputs(name: str, ffn: str) -> None:
    sizes, scheme = N | {"B": 4, "d_ff": 6, "V": 8, "d_e": 4}, schemes()[name]
    inputs = inputs_for(ffn, sizes, 6, draw=True)
    got = run(partition(graph_of(ffn, True), scheme), inputs, sizes, degrees(scheme))
    assert same(got, run(graph_of(ffn, True), inputs, sizes))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Pipeline", "scheme Pipeline: decode would run a pipeline once per iteration; leave its layers uncut"),
        ("Context", "scheme Context: keys.write .write. needs axis 's' whole"),
    ],
)
def test_what_generation_cannot_be_split_over_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        partition(graph_of("dense"), schemes()[name])


def test_generation_is_not_differentiated() -> None:
    build = Builder("loss of a generation")
    step = decode_step(SIZES)
    operands = [build.input(n, t.at(index("t"), sympy.Integer(1))) for n, t in step.inputs.items()]
    logs = build.add(Scan(step, STEPS, 3, 0), *operands, name="decode")[4]
    build.output("loss", build.add(Reduction("sum", ("step", "b")), logs)[0])
    with pytest.raises(GraphError, match="decode: generation is not differentiated; train on a forward pass"):
        training(build.graph())


# -- scans and caches by themselves -----------------------------------------------------------------------------------
T, TIMES = index("t"), Axis("step", size("T"))


def counter(step: int, start: int = 0, given: int = 0) -> Graph:
    """Writes 10, 10, ... into a cache, one entry an iteration."""
    line = Tensor((Axis("t", size("S")),), Role.CACHE, (Prefix("t", start + step * (T - 1)),))
    body = Builder("body")
    cache = body.input("cache", line)
    (ten,) = body.add(Broadcast((Axis("q", sympy.Integer(1)),)), body.add(Constant(10.0))[0])
    (held,) = body.add(Write("t", "q", start + step * (T - 1)), cache, ten)
    body.output("cache", held)
    body.output("total", body.add(Reduction("sum", ("t",)), held)[0])
    build = Builder("counter")
    empty = build.input("cache", Tensor(line.axes, Role.CACHE, (Prefix("t", sympy.Integer(given)),)))
    for name, value in zip(("cache", "totals"), build.add(Scan(body.graph(), TIMES, 1, 0), empty), strict=True):
        build.output(name, value)
    return build.graph()


def test_a_reduction_in_a_scan_sees_what_the_cache_holds_in_that_iteration() -> None:
    graph, junk = counter(step=1), np.full(4, 99.0)
    out = run(graph, {"cache": junk}, {"S": 4, "T": 3})
    np.testing.assert_array_equal(out["totals"], [10, 20, 30])
    np.testing.assert_array_equal(out["cache"], [10, 10, 10, 99])
    assert graph.type(graph.outputs["cache"]).domain == (Prefix("t", size("T")),)


def test_a_scan_of_no_iteration_hands_on_what_it_was_given() -> None:
    out = run(counter(step=1), {"cache": np.arange(4.0)}, {"S": 4, "T": 0})
    np.testing.assert_array_equal(out["cache"], np.arange(4.0))
    assert out["totals"].shape == (0,)


def test_a_cache_that_is_too_short_is_refused_when_it_runs() -> None:
    with pytest.raises(GraphError, match="a cache of 2 entries cannot hold 3; give axis 't' more"):
        run(counter(step=1), {"cache": np.zeros(2)}, {"S": 2, "T": 3})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"step": 2}, "carried value 'cache' leaves an iteration with other restrictions than the next"),
        ({"step": 1, "given": 1}, "carried value 'cache' enters the loop with other restrictions"),
    ],
)
def test_a_prefix_must_follow_the_index(change: dict[str, int], sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        counter(**change)


def test_entries_must_follow_those_that_a_cache_holds() -> None:
    held = Tensor((POSITIONS,), Role.CACHE, (Prefix("t", sympy.Integer(2)),))
    one = Tensor((Axis("q", sympy.Integer(1)),))
    with pytest.raises(GraphError, match="entries written from 3 on do not follow the 2 that the cache holds"):
        Write("t", "q", sympy.Integer(3)).infer(held, one)
    with pytest.raises(GraphError, match=r"entries over \(q, x\) do not fit a cache over \(t\)"):
        Write("t", "q", sympy.Integer(2)).infer(held, Tensor((*one.axes, Axis("x", size("d")))))


def test_a_scan_runs_forward_and_stacks_whole_values() -> None:
    body = Builder("body")
    x = body.input("x", Tensor((TIMES,), domain=(Prefix("step", T),)))
    body.output("y", body.add(Pointwise("exp"), x)[0])
    x_type = Tensor((TIMES,))
    with pytest.raises(GraphError, match="a stacked result is restricted by the index t; stack whole values"):
        Scan(body.graph(), Axis("n", size("L")), 0, 0).infer(x_type)
    with pytest.raises(GraphError, match="a scan runs forward; use a repeat"):
        Scan(body.graph(), Axis("n", size("L")), 0, 0, reverse=True).infer(x_type)


def test_loops_over_different_axes_are_unrolled_by_a_count_for_each() -> None:
    with pytest.raises(GraphError, match="decode: how often to unroll the axis 'step' is not said; give its count"):
        unroll(graph_of("dense"), {"layer": 2})
