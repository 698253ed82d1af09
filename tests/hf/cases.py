"""The configurations that are compared: two tiny ones of each model type, and a public one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

import pytest

from derive.config import load, shipped
from derive.evaluate import Setting
from graphs.architectures import Config, model_of
from graphs.models.transformer import Transformer
from graphs.sizes import Shape

#: grouped heads, and as many heads of keys and values as of queries
GROUPED = {"hidden_size": 12, "intermediate_size": 10, "num_attention_heads": 6, "num_key_value_heads": 3}
MULTI = {"hidden_size": 8, "intermediate_size": 14, "num_attention_heads": 4, "num_key_value_heads": 4}
LAYERS, MORE = {"num_hidden_layers": 2, "vocab_size": 11}, {"num_hidden_layers": 3, "vocab_size": 17}
WIDE, TIED = {"head_dim": 6}, {"tie_word_embeddings": True}
MIXTURE = {"num_experts_per_tok": 2, "norm_topk_prob": True, "moe_intermediate_size": 5, "num_experts": 5}
MIXTRAL = {"num_experts_per_tok": 2, "num_local_experts": 5}
OSS = {**MIXTRAL, "head_dim": 4, "sliding_window": 3, "num_hidden_layers": 4}
LATENT = {
    "hidden_size": 12, "intermediate_size": 7, "moe_intermediate_size": 3, "num_attention_heads": 3,
    "num_key_value_heads": 3, "kv_lora_rank": 5, "q_lora_rank": 7, "qk_nope_head_dim": 3, "qk_rope_head_dim": 4,
    "v_head_dim": 5, "n_routed_experts": 6, "n_shared_experts": 2, "num_experts_per_tok": 2, "num_hidden_layers": 4,
    "first_k_dense_replace": 1, "routed_scaling_factor": 2.5, "n_group": 3, "topk_group": 2, "vocab_size": 11,
}  # fmt: skip
SHORTER = {
    "num_hidden_layers": 3, "q_lora_rank": None, "first_k_dense_replace": 2, "n_shared_experts": 1, "n_group": 1,
    "topk_group": 1,
}  # fmt: skip
GELU = {"hidden_act": "gelu_pytorch_tanh"}
GPT2 = {"n_embd": 12, "n_head": 3, "n_inner": 10, "n_layer": 2, "n_positions": 9, "vocab_size": 11}


@dataclass(frozen=True)
class Case:
    """A configuration with the sizes of what runs through it: B sequences of m tokens."""

    keys: Mapping[str, Any]
    B: int
    m: int

    @property
    def n(self) -> SimpleNamespace:
        """Sizes as integers, those that the model has; without grouped heads all have keys and values of their own."""
        sizes = {f.name: getattr(self.model.shape, f.name) for f in fields(Shape)}
        found = {name: int(size) for name, size in sizes.items() if size is not None}
        return SimpleNamespace(**{"h_kv": found["h"], **found, "rows": self.B * self.m})

    @property
    def setting(self) -> Setting:
        """What is said of it; PyTorch counts every pair of a query and a key, also those that a mask hides."""
        return Setting(self.model, B=self.B, S=self.m - 1, T=1, causal="dense")

    def hidden_pairs(self) -> int:
        """FLOPs, forward, of pairs outside of windows: `transformers` computes them, and we do not even densely."""
        widths = [getattr(layer.attention, "window", None) for layer in self.model.layers]
        hidden = sum(self.m * max(self.m - int(w), 0) for w in widths if w is not None)
        return 4 * self.B * self.n.h * self.n.d_h * hidden

    @property
    def model(self) -> Transformer:
        return model_of(Config(self.keys, str(self.keys["model_type"])))


def both(kind: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Case]:
    base = {"model_type": kind, "tie_word_embeddings": False}
    return [Case({**base, **LAYERS, **first}, B=2, m=7), Case({**base, **MORE, **second}, B=3, m=5)]


TINY: dict[str, list[Case]] = {
    "deepseek_v3": both("deepseek_v3", LATENT, {**LATENT, **SHORTER}),
    "gpt2": both("gpt2", {**GPT2, **TIED}, {**GPT2, "n_embd": 8, "n_head": 4, "n_inner": None, "n_layer": 3}),
    "gpt_oss": both("gpt_oss", {**GROUPED, **OSS}, {**MULTI, **OSS, "num_local_experts": 4}),
    "llama": both("llama", GROUPED, {**MULTI, "attention_bias": True, "mlp_bias": True, "rope_theta": 5e5}),
    "mistral": both("mistral", {**GROUPED, "sliding_window": 3}, {**MULTI, "sliding_window": None}),
    "phi3": both("phi3", {**GROUPED, "sliding_window": 3}, MULTI),
    "mixtral": both("mixtral", {**GROUPED, **MIXTRAL}, {**MULTI, **MIXTRAL, "num_local_experts": 4}),
    "starcoder2": both(
        "starcoder2",
        {**GROUPED, **GELU, **TIED, "sliding_window": 3},
        {**MULTI, **GELU, "use_bias": False},
    ),
    "qwen2": both("qwen2", {**GROUPED, **TIED}, MULTI),
    "qwen3": both("qwen3", {**GROUPED, **WIDE, **TIED}, {**MULTI, "head_dim": 2, "attention_bias": True}),
    "qwen3_moe": both(
        "qwen3_moe", {**GROUPED, **WIDE, **MIXTURE}, {**MULTI, **WIDE, **MIXTURE, "mlp_only_layers": [1]}
    ),
}
TINY_BY_NAME = {f"{name}-{i}": case for name, cases in TINY.items() for i, case in enumerate(cases)}
#: longer than gpt-oss's window
PUBLIC = {name: Case(load(name).values, B=2, m=130) for name in shipped()}
#: of each model type the smallest
SMALLEST = {
    min(names, key=lambda name: PUBLIC[name].setting.parameters()["total"].rank)
    for kind in TINY
    if (names := [name for name, case in PUBLIC.items() if case.keys["model_type"] == kind])
}
ONE_OF_EACH = {name: case for name, case in PUBLIC.items() if name in SMALLEST}


def each(cases: Mapping[str, Case]) -> pytest.MarkDecorator:
    """A test of every one of them."""
    return pytest.mark.parametrize("case", cases.values(), ids=list(cases))
