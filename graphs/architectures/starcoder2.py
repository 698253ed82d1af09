"""StarCoder 2: grouped-query heads and rotary positions as in Mistral, layer norms, biases and GELU as in GPT-2."""

from __future__ import annotations

from graphs.architectures.architecture import Architecture
from graphs.architectures.config import Config
from graphs.architectures.decoder import layers_of, rope_base, shape_of, window_of
from graphs.blocks.gated import Plain
from graphs.blocks.grouped import Grouped
from graphs.models.transformer import LAYER_NORM, Layer, Transformer


def read(config: Config) -> Transformer:
    config.must_be("hidden_act", only="gelu_pytorch_tanh")
    config.needs("num_key_value_heads")
    bias = config.flag("use_bias", default=True)
    layer = Layer(Grouped(rope_base(config), window_of(config), bias=bias, out_bias=bias), Plain(bias))
    config.count("intermediate_size")
    count, tied = layers_of(config), config.flag("tie_word_embeddings", default=True)
    return Transformer(config.model_type, shape_of(config), (layer,) * count, LAYER_NORM, tied)


ARCHITECTURE = Architecture(
    "starcoder2",
    ("starcoder2",),
    read,
    ("grouped-query attention", "sliding window", "rotary positions", "layer norm", "biases", "GELU"),
    {
        "model_type": "starcoder2",
        "hidden_size": 8,
        "intermediate_size": 6,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "sliding_window": 3,
        "vocab_size": 7,
    },
    "Lozhkov et al. 2024, StarCoder 2 and The Stack v2",
)
