"""A model on several ranks: stages of a pipeline run and add up to the model, shares are those counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from derive.depth import DepthRule, depth
from derive.evaluate import MESHES, Amount, Setting
from derive.memory import Widths, saved_terms, state_terms
from derive.work import Term, work_terms
from graphs.architectures import Config, architectures, model_of
from graphs.execute import run
from graphs.models.transformer import Transformer, forward, periods, step
from graphs.schemes import Scheme, schemes
from graphs.transforms.backward import training
from graphs.transforms.partition import partition
from graphs.transforms.recompute import Recompute
from tests.architectures.by_hand import OUTSIDE
from tests.strategies import arrays_for

KNOWN = {a.name: a for a in architectures()}
N = {"V": 7}
Arrays = dict[str, np.ndarray]


def tiny(name: str, **changes: object) -> Transformer:
    return model_of(Config({**KNOWN[name].tiny, **changes}, name))


#: models and numbers of stages; several have stages of unlike layers
PIPELINES: dict[str, tuple[Transformer, int]] = {
    "llama": (tiny("llama"), 2),
    "llama, equal stages between the ends": (tiny("llama", num_hidden_layers=4), 4),
    "llama, tied": (tiny("llama", tie_word_embeddings=True), 2),
    "llama, adapted": (tiny("llama").at(rank=2), 2),
    "gpt2": (tiny("gpt2"), 2),
    "gpt-oss, both kinds of layer on a stage": (tiny("gpt-oss"), 2),
    "gpt-oss, one layer on a stage": (tiny("gpt-oss"), 4),
    "deepseek": (tiny("deepseek"), 3),
    "deepseek, unlike layers on a stage": (tiny("deepseek", num_hidden_layers=4), 2),
    "deepseek, ahead": (tiny("deepseek").predicting(), 3),
    "qwen-moe": (tiny("qwen-moe", intermediate_size=5, mlp_only_layers=[0, 2], num_hidden_layers=6), 3),
}


# -- stages run -------------------------------------------------------------------------------------------------------
def places(model: Transformer) -> list[tuple[str, int]]:
    """For each layer the prefix of its parameters, and its place among those that are stacked."""
    loops, out = periods(model.layers), []
    for i, (pattern, times) in enumerate(loops):
        part = f"part_{i + 1}." if len(loops) > 1 else ""
        turns = [f"{part}{j + 1}." if len(pattern) > 1 else part for j in range(len(pattern))]
        out += [(turn, k) for k in range(times) for turn in turns]
    return out


def of_layers(model: Transformer, arrays: Arrays) -> list[Arrays]:
    """What is stacked, layer by layer; a name that has no prefix belongs to a layer if nothing outside is called so."""
    inside = {n: a for n, a in arrays.items() if n not in OUTSIDE and not n.startswith(("ahead", "ids", "targets"))}
    out = []
    for prefix, k in places(model):
        out.append({n.removeprefix(prefix): a[k] for n, a in inside.items() if n.startswith(prefix)})
    return out


def stacked(model: Transformer, layers: list[Arrays]) -> Arrays:
    """The other way round."""
    found: dict[str, list[np.ndarray]] = {}
    for (prefix, _), arrays in zip(places(model), layers, strict=True):
        for name, array in arrays.items():
            found.setdefault(f"{prefix}{name}", []).append(array)
    return {name: np.array(rows) for name, rows in found.items()}


def gradients(results: Arrays) -> Arrays:
    return {n.removeprefix("grad:"): a for n, a in results.items() if n.startswith("grad:")}


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.LAYER_BOUNDARY])
def test_stages_one_after_the_other_compute_what_the_model_computes(name: str, recompute: Recompute) -> None:
    """Forward from the first to the last, backward from the last to the first; a table of both ends has two parts."""
    model, count = PIPELINES[name]
    whole = training(forward(model, loss=True), recompute=recompute)
    inputs = arrays_for(whole, N, seed=11)
    expected, stages = run(whole, inputs, N), model.stages(count)
    each, given, x = len(model.layers) // count, [], inputs["ids"]
    for i, stage in enumerate(stages):
        layers = of_layers(model, inputs)[i * each : (i + 1) * each]
        own = {n: a for n, a in inputs.items() if n in forward(stage, loss=stage.last).inputs} | stacked(stage, layers)
        given.append(own if i == 0 else own | {"x": x})
        x = run(forward(stage), given[-1], N)["out"]
    np.testing.assert_allclose(x, expected["out"], rtol=1e-9, atol=1e-11)
    found: list[Arrays] = []
    outside: Arrays = {}
    handed: Arrays = {}
    for stage, own in reversed(list(zip(stages, given, strict=True))):
        results = run(step(stage, recompute), own | handed, N)
        handed = {} if stage.first else {"d:out": results["d:x"]}
        mine = gradients(results)
        found = of_layers(stage, mine) + found
        for parameter in mine.keys() - stacked(stage, of_layers(stage, mine)).keys():
            outside[parameter] = outside.get(parameter, 0) + mine[parameter]
    together = outside | stacked(model, found)
    assert together.keys() == gradients(expected).keys()
    for parameter, array in gradients(expected).items():
        np.testing.assert_allclose(together[parameter], array, rtol=1e-9, atol=1e-11, err_msg=parameter)


# -- stages add up ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PIPELINES)
def test_stages_together_do_and_hold_what_one_device_does(name: str) -> None:
    """Their longest chains follow each other; only a table of both ends is held twice."""
    model, count = PIPELINES[name]
    alone, split = (Setting(model, B=2, S=3, T=3, degrees=d) for d in ({}, {"P_p": count}))
    twice = 7 * int(model.shape.d) if model.tied or model.ahead else 0
    for key, amount in (alone.work() | alone.depth() | alone.parameters() | alone.cache()).items():
        assert (split.work() | split.depth() | split.parameters() | split.cache())[key].world == amount.rank, key
    adapted = model.shape.rank is not None
    copies = {"weights": 1, "gradients": 1, "optimizer": 2, "activations": 0}
    for key, amount in alone.memory().items():
        assert split.memory()[key].world == amount.rank + copies[key] * (0 if adapted else twice), key


@pytest.mark.parametrize(("name", "mesh"), [(n, m) for n in ("llama", "llama, tied", "gpt2") for m in (None, "P_d")])
def test_equal_stages_cost_what_the_graph_of_one_that_all_of_them_run_costs(name: str, mesh: str | None) -> None:
    """That graph is the model's with its layers cut over P_p; what is outside of them is the first's or the last's."""
    model, degrees = PIPELINES[name][0], {"P_p": 2} | ({mesh: 2} if mesh else {})
    setting, both = Setting(model, B=2, S=3, T=3, degrees=degrees), ["Pipeline", *(["Data"] if mesh else [])]
    scheme = Scheme("both", tuple(e for n in both for e in schemes()[n].entries), source="tests")
    graph = partition(training(forward(model.at(B=2, m=6), loss=True)), scheme)

    def most(terms: list[Term]) -> int:
        sums = [sum(t.amount.evaluate(degrees) for t in terms if t.stage in (None, end)) for end in ("first", "last")]
        return int(max(sums))

    work = list(work_terms(graph, setting.chain.costs))
    assert setting.work()["forward"].rank == most([t for t in work if t.phase == "forward"])
    assert setting.work()["training_step"].rank == most(work)
    assert setting.memory()["weights"].rank == most(list(state_terms(graph, scheme, copies=1)))
    assert setting.memory()["activations"].rank == most(list(saved_terms(graph, setting.chain.costs)))


def test_the_stage_that_has_most_may_be_of_either_kind_of_layer() -> None:
    """By hand: one dense and two sparse layers of latent attention on three stages, over 6 tokens."""
    m, d, h, k, r, v, latent, q, f, e, w, shared, V = 6, 8, 2, 3, 2, 4, 6, 5, 6, 6, 2, 4, 7
    attention = d * q + q * h * (k + r) + d * (latent + r) + latent * h * (k + v) + h * v * d
    pairs = m * (m + 1) // 2 * 2 * h * (k + r + v)
    models = {width: tiny("deepseek", intermediate_size=width) for width in (f, 60)}
    for width, model in models.items():  # the dense layer does less or more than another and the logits
        dense = 2 * m * (attention + 3 * d * width) + pairs
        sparse = 2 * m * (attention + d * e + 2 * 3 * d * w + 3 * d * shared) + pairs
        logits = 2 * m * d * V
        found = Setting(model, S=3, T=3, degrees={"P_p": 3}).work()["forward"]
        assert found == Amount(max(dense, sparse + logits), dense + 2 * sparse + logits)
    norms = 2 * d + q + latent
    held = [norms + attention + 3 * d * 60 + V * d, norms + attention + (d + 1) * e + e * 3 * d * w + 3 * d * shared]
    found = Setting(models[60], S=3, T=3, degrees={"P_p": 3}).parameters()["total"]
    assert found == Amount(held[0], held[0] + 2 * held[1] + V * d + d)


@pytest.mark.parametrize("tied", [False, True])
def test_on_a_rank_there_is_the_larger_of_the_first_and_the_last_stage(tied: bool) -> None:
    """By hand, for GPT-2: the first has positions and a table, the last a norm, a table and the logits."""
    m, d, f, V, rows = 6, 6, 8, 7, 6
    layer = 4 * (d * d + d) + 2 * d * f + f + d + 4 * d
    first, last = layer + V * d + rows * d, layer + V * d + 2 * d
    setting = Setting(tiny("gpt2", tie_word_embeddings=tied), S=4, T=2, degrees={"P_p": 2})
    assert setting.parameters()["total"] == Amount(max(first, last), first + last - tied * V * d)
    assert setting.memory()["weights"] == Amount(max(first, last), first + last)
    work = 2 * m * (4 * d * d + 2 * d * f) + m * (m + 1) // 2 * 4 * d
    assert setting.work()["forward"] == Amount(work + 2 * m * d * V, 2 * work + 2 * m * d * V)
    alone, split = (Setting(setting.model, S=4, T=2, degrees=x).memory(Widths()) for x in ({}, {"P_p": 2}))
    of_layer = alone["activations"].rank - split["activations"].rank  # two layers and the logits, less one and these
    logits = alone["activations"].rank - 2 * of_layer
    bytes_each = 2 + 2 + 4 * 3
    assert setting.held() == of_layer + max(bytes_each * first, bytes_each * last + logits)


@pytest.mark.parametrize("name", ["llama", "gpt-oss, one layer on a stage", "deepseek"])
def test_a_stage_goes_back_only_after_it_went_forward(name: str) -> None:
    """What a stage is handed back depends on what it handed on, so its chain is its two passes one after the other."""
    model, count = PIPELINES[name]
    for rank, _ in Setting(model, B=2, S=3, T=3, degrees={"P_p": count}).stages[:-1]:
        rule = DepthRule(rank.costs, counted=lambda graph, node: node.phase != "forward")
        (back,) = {a.form for a in depth(rank.training, rule)}
        found = rank.depth()
        assert found["training_step"] == found["forward"] + back.evaluate({}) > found["forward"]


# -- other degrees ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", KNOWN)
def test_degrees_of_one_change_nothing(name: str) -> None:
    alone, ones = (Setting(tiny(name), B=2, S=3, T=3, degrees=d) for d in ({}, dict.fromkeys(MESHES, 1)))
    for measure in (Setting.work, Setting.depth, Setting.parameters, Setting.memory, Setting.cache, Setting.held):
        assert measure(alone) == measure(ones), measure


def test_ranks_that_share_experts_each_hold_the_whole_cache() -> None:
    """By hand: 2 layers, keys and values of 2 heads of 2 channels; 4 sequences of 6 + 2 - 1 tokens; on 4 ranks."""
    found = Setting(tiny("mixtral"), B=4, S=6, T=2, degrees={"P_e": 4}).cache()
    rank = 2 * 2 * 2 * 2 * 4 * (6 + 2 - 1)
    assert found == {"per_token": Amount(2 * 2 * 2 * 2, 2 * 2 * 2 * 2), "all": Amount(rank, 4 * rank)}
    assert found["all"] == Amount(448, 1792)


def test_ranks_that_share_experts_do_all_but_the_experts_for_every_token() -> None:
    """By hand: of a token's two experts a rank has the work of a half, of 4 ranks; all else it does for all tokens."""
    m, d, width, f, V, ranks = 8, 8, 2, 6, 7, 4
    rest = 2 * m * (d * width * (2 * 4 + 2 * 2) + d * 4) + m * (m + 1) // 2 * 4 * 4 * width
    expert = 2 * m * 3 * d * f
    found = Setting(tiny("mixtral"), S=6, T=2, degrees={"P_e": ranks}).work()["forward"]
    rank = 2 * (rest + 2 * expert // ranks) + 2 * m * d * V
    assert found == Amount(rank, ranks * rank)
