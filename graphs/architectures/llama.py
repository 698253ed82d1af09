"""Llama 2 and 3: grouped-query heads, rotary positions, RMS norms, gated feed-forward layers."""

from __future__ import annotations

from graphs.architectures.architecture import Architecture
from graphs.architectures.config import Config
from graphs.architectures.decoder import SCALED, decoder_of, layers_of, rope_base, shape_of
from graphs.blocks.gated import Gated
from graphs.blocks.grouped import Grouped
from graphs.models.transformer import Layer, Transformer


def read(config: Config) -> Transformer:
    bias = config.flag("attention_bias", default=False)
    attention = Grouped(rope_base(config), bias=bias, out_bias=bias)
    layer = Layer(attention, Gated(config.flag("mlp_bias", default=False)))
    config.count("intermediate_size")
    return decoder_of(config, shape_of(config), [layer] * layers_of(config))


ARCHITECTURE = Architecture(
    "llama",
    ("llama",),
    read,
    ("grouped-query attention", "rotary positions", "RMS norm", "SwiGLU"),
    {
        "model_type": "llama",
        "hidden_size": 8,
        "intermediate_size": 6,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "vocab_size": 7,
    },
    "Touvron et al. 2023; Llama Team 2024, The Llama 3 Herd of Models",
    (SCALED,),
)
