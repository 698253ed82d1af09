"""Every architecture's tiny model: its meaning, its gradients, its exact costs, and its partitions."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import sympy

from derive.costs.model import FULL, PAPER
from derive.forms import total
from derive.work import work_terms
from graphs.architectures import Config, architectures, model_of
from graphs.errors import GraphError
from graphs.execute import run
from graphs.ir import Graph
from graphs.models.transformer import Transformer, forward, periods
from graphs.schemes import Scheme, schemes
from graphs.transforms.backward import training
from graphs.transforms.expand import expand_macros
from graphs.transforms.partition import partition
from graphs.transforms.recompute import Recompute
from tests.architectures.by_hand import Model
from tests.oracle import expand_graph
from tests.strategies import arrays_for

KNOWN = {a.name: a for a in architectures()}
#: further configurations, as changes of a tiny one
ADAPTED = {f"{name}, adapted": name for name in ("llama", "gpt2", "gpt-oss", "deepseek")}
AHEAD = "deepseek, two tokens further on"
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    **{name: (name, {}) for name in KNOWN},
    **{name: (stem, {}) for name, stem in ADAPTED.items()},
    "llama, biases and one head of keys and values": (
        "llama", {"attention_bias": True, "num_key_value_heads": 1, "tie_word_embeddings": True},
    ),
    "qwen2": ("qwen", {"model_type": "qwen2", "head_dim": None}),
    "qwen-moe with dense layers": ("qwen-moe", {"intermediate_size": 5, "mlp_only_layers": [0]}),
    "mistral without a window": ("mistral", {"sliding_window": None}),
    "deepseek, queries without a latent": ("deepseek", {"q_lora_rank": None, "n_shared_experts": None}),
    AHEAD: ("deepseek", {}),
    "gpt2, untied": ("gpt2", {"tie_word_embeddings": False}),
}  # fmt: skip
N = {"V": 7}


def keys_of(name: str) -> dict[str, object]:
    stem, changes = VARIANTS[name]
    return {**KNOWN[stem].tiny, **changes}


def model_named(name: str) -> Transformer:
    model = model_of(Config(keys_of(name), name))
    model = model.predicting() if name == AHEAD else model
    return model.at(rank=2) if name in ADAPTED else model


@cache
def graph_of(name: str, loss: bool = True) -> Graph:
    return forward(model_named(name), loss)


def merged(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a model without adapters: each product of two narrow ones added to the weight that it adapts."""
    out = {n: a for n, a in inputs.items() if not n.endswith((".down", ".up"))}
    for name, weight in out.items():
        if f"{name}.down" in inputs:
            down, up = inputs[f"{name}.down"], inputs[f"{name}.up"]
            out[name] = weight + np.array([np.tensordot(a, b, 1) for a, b in zip(down, up, strict=True)])
    return out


@pytest.mark.parametrize("name", VARIANTS)
def test_a_model_is_what_plain_numpy_says(name: str) -> None:
    graph = graph_of(name)
    inputs = arrays_for(graph, N, seed=1)
    results = run(graph, inputs, N)
    ahead = model_named(name).ahead
    losses = []
    for k, expected in enumerate(Model(keys_of(name), merged(inputs)).logits(ahead)):
        label = f"_{k}" if k else ""
        np.testing.assert_allclose(results[f"out{label}"], expected, rtol=1e-9, atol=1e-11)
        rows = expected - np.log(np.exp(expected).sum(-1, keepdims=True))
        picked = np.take_along_axis(rows, inputs[f"targets{label}"].astype(int)[..., None], axis=-1)
        losses.append(-picked.mean())
    weight = 0.3 / ahead if ahead else 0.0
    np.testing.assert_allclose(results["loss"], losses[0] + weight * sum(losses[1:]), rtol=1e-9)


@pytest.mark.parametrize("name", [n for n in VARIANTS if n.startswith("deepseek")])
def test_absorbed_latent_attention_is_the_same_function_of_the_same_parameters(name: str) -> None:
    model = model_of(Config(keys_of(name), name))
    executed, absorbed = (training(forward(m, loss=True)) for m in (model, model.decoding()))
    assert executed.inputs == absorbed.inputs
    inputs = arrays_for(executed, N, seed=8)
    one, other = run(executed, inputs, N), run(absorbed, inputs, N)
    for output, array in one.items():
        np.testing.assert_allclose(other[output], array, rtol=1e-9, atol=1e-11, err_msg=output)


@pytest.mark.parametrize("name", VARIANTS)
def test_writing_macros_out_changes_nothing(name: str) -> None:
    graph = training(graph_of(name))
    inputs = arrays_for(graph, N, seed=2)
    kept, expanded = run(graph, inputs, N), run(expand_macros(graph), inputs, N)
    for output, array in kept.items():
        np.testing.assert_allclose(expanded[output], array, rtol=1e-9, atol=1e-11, err_msg=output)


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_are_slopes_of_the_loss(name: str) -> None:
    """Each parameter along a random direction of its own; central differences."""
    graph, step = forward(model_named(name).at(B=1, m=4), loss=True), 1e-6
    inputs, rng = arrays_for(graph, N, seed=3), np.random.default_rng(4)
    results = run(training(graph), inputs, N)
    assert {n for n in results if n.startswith("grad:")} == {f"grad:{n}" for n, _ in graph.parameters()}
    for parameter, _ in graph.parameters():
        direction = rng.normal(size=inputs[parameter].shape)
        ends = [run(graph, inputs | {parameter: inputs[parameter] + e * direction}, N)["loss"] for e in (step, -step)]
        found = (results[f"grad:{parameter}"] * direction).sum()
        np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * step), rtol=2e-5, atol=1e-7, err_msg=parameter)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("recompute", [Recompute.SELECTIVE, Recompute.LAYER_BOUNDARY])
def test_computing_again_gives_the_same_gradients(name: str, recompute: Recompute) -> None:
    """Selective recomputation is what fused attention does: scores and probabilities are not kept."""
    inputs = arrays_for(graph_of(name), N, seed=5)
    kept, again = (run(training(graph_of(name), recompute=r), inputs, N) for r in (Recompute.NONE, recompute))
    for output, array in kept.items():
        np.testing.assert_array_equal(again[output], array, err_msg=output)


@pytest.mark.parametrize("name", VARIANTS)
def test_exact_work_of_a_training_step_is_its_scalar_expansion(name: str) -> None:
    model = model_named(name).at(B=1, m=3)
    graph = expand_macros(training(forward(model, loss=True)))
    assert total(t.amount for t in work_terms(graph, FULL)).evaluate({}) == expand_graph(graph, {}).work


TENSOR_DATA = Scheme("tensor and data", schemes()["Tensor"].entries + schemes()["Data"].entries, source="tests")
#: schemes and their degrees; heads of keys and values are what tensor parallelism cuts
MESHES: dict[str, tuple[Scheme, dict[str, int]]] = {
    "data": (schemes()["Data"], {"P_d": 2}),
    "tensor": (schemes()["Tensor"], {"P_t": 2}),
    "both": (TENSOR_DATA, {"P_d": 2, "P_t": 2}),
    "expert": (schemes()["Expert"], {"P_e": 2}),
    "zero-3": (schemes()["ZeRO-3"], {"P_d": 2}),
    "context": (schemes()["Context"], {"P_c": 2}),
    "pipeline": (schemes()["Pipeline"], {"P_p": 2}),
}
#: unlike layers are no stages of a pipeline
PIPELINES = tuple(n for n, a in KNOWN.items() if len(periods(a.example().layers)) == 1)
#: sizes that two ranks can share
EVEN = {"vocab_size": 8, "intermediate_size": 6, "moe_intermediate_size": 4, "n_embd": 8, "hidden_size": 8}


@pytest.mark.parametrize(("name", "mesh"), [(n, m) for n in KNOWN for m in MESHES if m != "pipeline" or n in PIPELINES])
def test_ranks_together_give_what_one_device_gives(name: str, mesh: str) -> None:
    scheme, degrees = MESHES[mesh]
    keys = {k: EVEN.get(k, v) for k, v in KNOWN[name].tiny.items()}
    if name == "gpt-oss":
        keys["intermediate_size"] = 4
    model = model_of(Config(keys, name)).at(B=2, m=4)
    graph = training(forward(model, loss=True))
    inputs = arrays_for(graph, {"V": 8}, seed=6)
    whole, split = run(graph, inputs, {}), run(partition(graph, scheme), inputs, {}, degrees)
    assert whole.keys() == split.keys()
    for output, array in whole.items():
        np.testing.assert_allclose(split[output], array, rtol=1e-9, atol=1e-10, err_msg=output)


def test_layers_become_the_fewest_loops() -> None:
    """A pattern that repeats is one loop, runs of equal layers are one each; all layers are there in order."""
    a, b = KNOWN["gpt-oss"].example().layers[:2]
    for layers, expected in (
        ((a, a, a), [((a,), 3)]),
        ((a, b, a, b), [((a, b), 2)]),
        ((a, b, b), [((a,), 1), ((b,), 2)]),
        ((a, b, a), [((a,), 1), ((b,), 1), ((a,), 1)]),
        ((a,), [((a,), 1)]),
    ):
        assert periods(layers) == expected
        assert [x for pattern, times in periods(layers) for x in pattern * times] == list(layers)


def test_a_query_sees_its_window_and_no_more() -> None:
    """Through one windowed layer of width 2 the logits at a position depend on its token and the one before."""
    keys = {**KNOWN["mistral"].tiny, "num_hidden_layers": 1, "sliding_window": 2}
    graph = forward(model_of(Config(keys, "one window")))
    inputs = arrays_for(graph, N, seed=7)
    before = run(graph, inputs, N)["out"]
    changed = inputs["ids"].copy()
    changed[:, 1] = (changed[:, 1] + 1) % 7
    differs = (run(graph, inputs | {"ids": changed}, N)["out"] != before).any(axis=(0, 2))
    assert differs.tolist() == [False, True, True, False, False]


def test_a_model_of_symbols_has_the_forms_of_its_axes() -> None:
    """Nothing in a block needs numbers: work of a llama of symbols, dense, is that of its matrices."""
    model = KNOWN["llama"].example()
    b, m, d = (sympy.Symbol(n, integer=True, positive=True) for n in ("B", "m", "d"))
    graph = forward(replace(model, layers=model.layers[:1]).at(B=b, m=m, d=d))
    work = total(t.amount for t in work_terms(graph, replace(FULL, gemm_only=True, dot_product="2k", causal="dense")))
    h, h_kv, width, f, v = 4, 2, 2, 6, 7
    matrices = d * (2 * h * width + 2 * h_kv * width + 3 * f + v)
    expected = 2 * b * m * matrices + 4 * b * m**2 * h * width
    from derive.interchange import from_sympy

    assert work == from_sympy(sympy.expand(expected))


def test_adapters_alone_are_trained_and_products_with_frozen_weights_have_one_backward_product() -> None:
    plain, adapted = graph_of("llama"), graph_of("llama, adapted")
    assert {n for n, _ in adapted.weights()} == {n for n, _ in plain.weights()} | {n for n, _ in adapted.parameters()}
    assert all(n.endswith((".down", ".up")) for n, _ in adapted.parameters())
    rows, dense = 10, replace(PAPER, causal="dense")
    work = {
        name: total(t.amount for t in work_terms(training(graph), dense) if t.phase == "backward").evaluate({})
        for name, graph in (("plain", plain), ("adapted", adapted))
    }
    frozen = 2 * (8 * 2 * 8 + 2 * 8 * 4 + 3 * 8 * 6) + 8 * 7  # two layers' projections, the unembedding
    narrow = 2 * 2 * (2 * (8 + 8) + 2 * (8 + 4) + 3 * (8 + 6))
    assert work["adapted"] == work["plain"] - 2 * rows * frozen + 4 * rows * narrow


def test_a_module_for_a_further_token_costs_a_layer_a_join_and_logits() -> None:
    """Forward, over 10 rows; its layer is the model's last, and its table the model's own."""
    plain, ahead = (forward(model_named(n)) for n in ("deepseek", AHEAD))
    work = [total(t.amount for t in work_terms(g, PAPER)).evaluate({}) for g in (plain, ahead)]
    looped = [t for t in work_terms(plain, PAPER) if t.where.startswith("part_2.")]  # two equal layers
    assert work[1] - work[0] == total(t.amount for t in looped).evaluate({}) + 2 * 10 * 2 * (2 * 8 * 8 + 8 * 7)
    assert not [n for n, _ in ahead.parameters() if n.startswith("ahead") and n.endswith(("W_u", "W_e"))]
    with pytest.raises(GraphError, match=r"^llama has no modules that predict further tokens; evaluate it without"):
        KNOWN["llama"].example().predicting()
