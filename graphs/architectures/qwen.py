"""Qwen 2 and 3, dense: biases of queries, keys and values (2); heads of independent width with norms (3)."""

from __future__ import annotations

import sympy

from graphs.architectures.architecture import Architecture
from graphs.architectures.config import Config
from graphs.architectures.decoder import decoder_of, layers_of, rope_base, shape_of, windows_of
from graphs.blocks.gated import Gated
from graphs.blocks.grouped import Grouped
from graphs.models.transformer import Layer, Transformer

#: the width of a head where the configuration of a Qwen 3 does not say
HEAD = 128


def read(config: Config) -> Transformer:
    is_third = config.model_type == "qwen3"
    config.needs("num_key_value_heads")
    if is_third:
        config = Config({"head_dim": HEAD, **config.values}, config.place)
        config.count("head_dim")
    windows = _windows(config)
    bias = config.flag("attention_bias", default=False) if is_third else True
    layers = [
        Layer(Grouped(rope_base(config), w, norm=is_third, bias=bias, out_bias=is_third and bias), Gated())
        for w in windows
    ]
    config.count("intermediate_size")
    return decoder_of(config, shape_of(config), layers)


def _windows(config: Config) -> list[sympy.Expr | None]:
    if not config.has("layer_types"):
        config.must_be("use_sliding_window", only=False)
        return [None] * layers_of(config)
    windows = windows_of(config)
    if any(w is not None for w in windows) and not config.flag("use_sliding_window", default=False):
        config.refuse("layer_types has 'sliding_attention' and use_sliding_window is not true; change one")
    return windows


ARCHITECTURE = Architecture(
    "qwen",
    ("qwen2", "qwen3"),
    read,
    ("grouped-query attention", "independent head width", "norms of heads", "rotary positions", "RMS norm", "SwiGLU"),
    {
        "model_type": "qwen3",
        "head_dim": 4,
        "hidden_size": 8,
        "intermediate_size": 6,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        "vocab_size": 7,
    },
    "Qwen Team 2024 and 2025, Qwen2 and Qwen3 technical reports",
)
