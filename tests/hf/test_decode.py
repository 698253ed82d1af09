"""Greedy generation with a key-value cache, step by step, against `transformers`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs the extra 'hf'")
pytest.importorskip("transformers", reason="needs the extra 'hf'")

import torch
from transformers import DynamicCache

from derive.evaluate import Setting
from derive.torch_import.strict import strict_flops
from graphs.execute import run
from graphs.models.transformer import Transformer, forward
from tests.hf.cases import ONE_OF_EACH, TINY, TINY_BY_NAME, Case, each
from tests.hf.models import build, double_precision, nothing_hidden, randomised, tokens, weights
from tests.hf.weights import arrays, ours

#: tokens that are generated: past the windows of the tiny models, within the positions that GPT-2's have
NEW = 4


class Written(Transformer):
    """Latent attention as `transformers` decodes with it: keys and values written out, not absorbed."""

    def decoding(self) -> Transformer:
        return self


@dataclass(frozen=True)
class Generated:
    """FLOPs of prefill and of every step, the tokens, and elements in the cache when the last one is chosen."""

    flops: list[int]
    ids: torch.Tensor
    cached: int


def generated(model, prompt, mask=None) -> Generated:
    cache, flops, ids, chosen = DynamicCache(config=model.config), [], prompt, prompt
    for _ in range(NEW):
        with strict_flops() as counter, torch.no_grad():
            hidden = {} if mask is None else {"attention_mask": mask(model, len(ids), chosen.shape[1], ids.shape[1])}
            out = model(chosen, cache=cache, use_cache=True, logits_to_keep=1, **hidden)
        flops.append(counter.get_total_flops())
        chosen = out.logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat((ids, chosen), dim=1)
    cached = sum(t.numel() for layer in cache.layers for t in (layer.keys, layer.values))
    return Generated(flops, ids, cached)


def prompt_of(case: Case):
    return tokens(case.keys, case.B, case.m - 2)


def expected_flops(case: Case) -> list[int]:
    """What each further token adds to the work of generating."""
    model = case.model
    if case.keys["model_type"] == "deepseek_v3":
        model = Written(**{name: getattr(model, name) for name in model.__dataclass_fields__})
    S = case.m - 2
    settings = [Setting(model, B=case.B, S=S, T=T, causal="dense") for T in range(1, NEW + 1)]
    totals = [s.work()["generation"].rank for s in settings]
    return [totals[0] + replace(case, m=S).hidden_pairs(), *np.diff(totals).tolist()]


def written_out_again(case: Case, step: int) -> int:
    """`transformers` caches latents and writes the keys and values of all earlier tokens out again in every step."""
    if case.keys["model_type"] != "deepseek_v3" or step == 0:
        return 0
    n, earlier = case.n, case.m - 2 + step - 1
    return 2 * case.B * earlier * n.L * n.d_kv * n.h * (n.d_h + n.d_v)


def dropped_before_it_must(case: Case) -> int:
    """Of a window of W keys the oldest leaves their cache with the step that read it last; ours holds what it read."""
    n, context = case.n, case.m - 2 + NEW - 1
    widths = [getattr(layer.attention, "window", None) for layer in case.model.layers]
    return sum(2 * case.B * n.h_kv * n.d_h for w in widths if w is not None and int(w) <= context)


@each(TINY_BY_NAME)
def test_every_step_costs_chooses_and_caches_what_theirs_does(case: Case) -> None:
    with double_precision():
        model = randomised(build(case.keys))
        theirs = generated(model, prompt_of(case))
    steps = [flops + written_out_again(case, i) for i, flops in enumerate(expected_flops(case))]
    assert theirs.flops == steps
    held = Setting(case.model, B=case.B, S=case.m - 2, T=NEW).cache()["all"].rank
    assert theirs.cached == held - dropped_before_it_must(case)
    parameters = arrays(weights(model))
    for m in range(case.m - 2, case.m - 2 + NEW):
        graph = forward(case.model.decoding().at(B=case.B, m=m))
        inputs = ours(case.model, case.keys, graph.weights(), parameters)
        logits = run(graph, inputs | {"ids": theirs.ids[:, :m].numpy()}, {})["out"]
        np.testing.assert_array_equal(logits[:, -1].argmax(-1), theirs.ids[:, m])


@each(ONE_OF_EACH)
def test_every_step_of_a_public_model_costs_and_caches_what_theirs_does(case: Case) -> None:
    """On the meta device, within all windows; which tokens are chosen is not known there."""
    case = replace(case, m=8)
    prompt = torch.zeros(case.B, case.m - 2, dtype=torch.long, device="meta")
    theirs = generated(build(case.keys, experts="batched_mm", device="meta"), prompt, nothing_hidden)
    assert theirs.flops == [flops + written_out_again(case, i) for i, flops in enumerate(expected_flops(case))]
    assert theirs.cached == Setting(case.model, B=case.B, S=case.m - 2, T=NEW).cache()["all"].rank


def test_what_differs_is_there() -> None:
    assert written_out_again(TINY["deepseek_v3"][0], 1) > 0
    assert dropped_before_it_must(TINY["mistral"][0]) > 0
