"""Cases A01, A03, A04 and A05: the products of queries, keys and values.

Counted: both products, 2 FLOPs for each multiplication and addition, for every query head; forward, or forward and
backward without recomputation.  Not counted: softmax, scaling, rotary positions.  Each test names its causal counting:
``exact`` m(m+1)/2 pairs, ``half`` m^2/2, ``dense`` m^2.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from graphs.architectures import Config, model_of
from graphs.models.transformer import Transformer
from tests.cases.models import core, llama, public


def latent(heads: int, plain: int, rope: int, value: int) -> Transformer:
    """Latent attention with q/k heads of plain + rope channels and value heads of another width."""
    keys = {
        "model_type": "deepseek_v3", "first_k_dense_replace": 1, "hidden_size": 8, "intermediate_size": 8,
        "kv_lora_rank": 8, "moe_intermediate_size": 8, "n_routed_experts": 2, "n_shared_experts": None,
        "num_attention_heads": heads, "num_experts_per_tok": 1, "num_hidden_layers": 1, "q_lora_rank": None,
        "qk_nope_head_dim": plain, "qk_rope_head_dim": rope,
        "v_head_dim": value, "vocab_size": 8,
    }  # fmt: skip
    return model_of(Config(keys, "case"))


A01 = {
    "a": (lambda: llama(num_attention_heads=4, head_dim=16, num_hidden_layers=2), 64, 3_145_728, 3_194_880),
    "b": (lambda: latent(2, 8, 4, 8), 32, 122_880, 126_720),
    "c": (lambda: public("deepseek-v3"), 4096, 125_756_642_426_880, 125_787_344_732_160),
}


@pytest.mark.parametrize("part", A01)
def test_a01_training_work_of_attention_half_and_exactly_causal(part: str) -> None:
    build, m, half, exact = A01[part]
    assert (core(build(), m, "half"), core(build(), m, "exact")) == (half, exact)
    assert exact == Fraction(half) * (m + 1) / m


def test_a01_the_reverted_counts_were_dense_and_took_the_width_of_keys_for_that_of_values() -> None:
    assert core(llama(num_attention_heads=4, head_dim=16, num_hidden_layers=2), 64, "dense") == 6_291_456
    assert core(latent(2, 8, 4, 12), 32, "dense") == 294_912
    assert core(latent(128, 128, 64, 192), 4096, "dense") * 61 == 301_815_941_824_512


def test_a03_forward_dense_work_follows_the_query_heads_whatever_the_heads_of_keys_and_values() -> None:
    """PyTorch's counter saw none of (b); xformers' saw 33,554,432 of (a): the work of the 2 key-value heads."""
    assert core(llama(num_attention_heads=8, num_key_value_heads=2, head_dim=64), 256, "dense", False) == 134_217_728
    assert core(llama(num_attention_heads=8, num_key_value_heads=8, head_dim=64), 256, "dense", False) == 134_217_728
    assert core(llama(num_attention_heads=2, num_key_value_heads=2, head_dim=64), 256, "dense", False) == 33_554_432
    assert core(llama(num_attention_heads=12, head_dim=64), 64, "dense", False) == 12_582_912


def windowed(width: int | None) -> Transformer:
    """One head of one channel in one layer: 4 FLOPs for each visible pair in a forward pass."""
    keys = {
        "model_type": "mistral", "head_dim": 1, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1,
        "num_hidden_layers": 1, "num_key_value_heads": 1, "sliding_window": width, "vocab_size": 8,
    }  # fmt: skip
    return model_of(Config(keys | {"head_dim": 2}, "case"))


def pairs(m: int, width: int | None) -> int:
    """Visible pairs, exactly causal, read off the forward work of heads of two channels."""
    return core(windowed(width), m, "exact", False) // 8


def test_a04_visible_pairs_of_a_sliding_window_exactly_causal() -> None:
    """``width`` keys including the query's own; a window that has one key more sees m - W pairs more."""
    assert pairs(32_768, 1024) == 33_030_656
    assert pairs(32_768, None) == 536_887_296
    assert pairs(32, 8) == 228
    assert pairs(32, 9) - pairs(32, 8) == 32 - 8
    for m, width in ((7, 8), (8, 8), (9, 8)):
        assert pairs(m, width) == sum(min(s, width) for s in range(1, m + 1))


A05 = {"gpt-oss-20b": (2_491_416_576, 2_340_421_632), "gpt-oss-120b": (3_737_124_864, 3_510_632_448)}


@pytest.mark.parametrize("name", A05)
def test_a05_half_of_the_layers_are_windowed_dense_training_work_per_token(name: str) -> None:
    """Dense: m keys for every query, W of them in a windowed layer; S = 4096, W = 128."""
    m, (right, delta) = 4096, A05[name]
    keys = {"gpt-oss-20b": 24, "gpt-oss-120b": 36}[name]
    found = core(public(name), m, "dense")
    assert found == right * m
    full = core(llama(num_attention_heads=64, head_dim=64, num_hidden_layers=keys), m, "dense")
    assert full - found == delta * m


def test_a05_with_the_masks_counted_exactly() -> None:
    assert core(public("gpt-oss-20b"), 4096, "exact") == 1_282_581_504 * 4096
