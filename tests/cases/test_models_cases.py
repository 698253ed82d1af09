"""Cases A02, A06, A08 and A13: whole models, their parameters and their caches.

Counted: products of matrices, 2 FLOPs for each multiplication and addition, forward and twice as much backward; logits
of every token; k of E experts.  Not counted: embedding lookups, norms, softmax, rotary positions, biases, and the
weighting of experts' results.  Each test names its causal counting, and whether it counts the router.
"""

from __future__ import annotations

import pytest

from graphs.architectures import Config, model_of
from graphs.models.transformer import Transformer
from tests.cases.models import cache_bytes, core, llama, parameters, public, step, without_router


def experts(head: int) -> Transformer:
    """The small model of A02."""
    keys = {
        "model_type": "qwen3_moe", "head_dim": head, "hidden_size": 32, "moe_intermediate_size": 24,
        "norm_topk_prob": True, "num_attention_heads": 4, "num_experts": 4, "num_experts_per_tok": 2,
        "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 100,
    }  # fmt: skip
    return model_of(Config(keys, "case"))


def test_a02_heads_have_a_width_of_their_own_exactly_causal_without_router() -> None:
    """The wrong count took hidden size / heads = 8 for the width of a head."""
    assert step(experts(head=16), 16, "exact", keep=without_router) == 2_580_480
    assert step(experts(head=8), 16, "exact", keep=without_router) == 1_886_208


def test_a02_qwen3_235b_over_196608_tokens() -> None:
    """Half causal without the router, and exactly causal with its 128 experts."""
    model = public("qwen3-235b-a22b")
    assert step(model, 196_608, "half", keep=without_router) == 203_979_954_075_992_064
    assert step(model, 196_608, "exact") == 204_038_999_138_893_824


def test_a06_tying_the_embedding_changes_parameters_and_no_work() -> None:
    """Exactly causal; a lookup is no product.  Charging the table once more would add 6 V h for each token."""
    tied, untied = (llama(hidden_size=64, vocab_size=1000, tie_word_embeddings=t) for t in (True, False))
    assert step(tied, 4, "exact") == step(untied, 4, "exact")
    assert parameters(untied)["total"] - parameters(tied)["total"] == 64_000
    assert parameters(untied)["matmul"] == parameters(tied)["matmul"]
    assert 6 * 64_000 == 384_000


def test_a06_llama_3_8b() -> None:
    """6 N per token is 7.0% too much with all parameters for N, 5.4% with dense attention at 8192 tokens added."""
    model = public("llama-3-8b")
    found = parameters(model)
    assert (found["total"], found["matmul"]) == (8_030_261_248, 7_504_658_432)
    assert (6 * found["total"], 6 * found["matmul"]) == (48_181_567_488, 45_027_950_592)
    over = 6 * (found["total"] - found["matmul"])
    attention, rest = divmod(core(model, 8192, "dense"), 8192)
    assert rest == 0
    assert round(100 * over / (6 * found["matmul"]), 1) == 7.0
    assert round(100 * over / (6 * found["matmul"] + attention), 1) == 5.4
    assert step(model, 8192, "dense") == 8192 * (6 * found["matmul"] + attention)


def test_a08_llama_2_7b_dense() -> None:
    """4 sequences of 256 tokens: weights 40.593883398144 and attention 0.412316860416 TFLOP."""
    model = public("llama-2-7b")
    assert core(model, 256, "dense", B=4) == 412_316_860_416
    assert step(model, 256, "dense", B=4) - core(model, 256, "dense", B=4) == 40_593_883_398_144
    assert step(model, 256, "dense", B=4) == 41_006_200_258_560
    assert core(model, 256, "exact", B=4) == 206_963_736_576


def test_a08_mixtral_dense_with_router() -> None:
    """1024 tokens in one sequence, 2 of 8 experts; the wrong count took all 8."""
    model = public("mixtral-8x7b")
    assert step(model, 1024, "dense") == 79_976_586_018_816
    assert step(model.at(E_a=8), 1024, "dense") == 287_784_283_668_480


A13 = {"deepseek-v3": 70_272, "qwen3-4b": 147_456, "qwen2.5-72b": 327_680, "llama-3.1-405b": 516_096}


@pytest.mark.parametrize("name", A13)
def test_a13_bytes_of_the_cache_for_a_token_of_two_bytes_an_element(name: str) -> None:
    """All layers; latent attention keeps one latent and one shared key that carries the position, once."""
    assert cache_bytes(public(name)) == A13[name]
