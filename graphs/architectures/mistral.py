"""Mistral: Llama with a sliding window in every layer."""

from __future__ import annotations

from graphs.architectures.architecture import Architecture
from graphs.architectures.config import Config
from graphs.architectures.decoder import decoder_of, layers_of, rope_base, shape_of, window_of
from graphs.blocks.gated import Gated
from graphs.blocks.grouped import Grouped
from graphs.models.transformer import Layer, Transformer


def read(config: Config) -> Transformer:
    config.needs("num_key_value_heads", "sliding_window")
    attention = Grouped(rope_base(config), window_of(config))
    config.count("intermediate_size")
    return decoder_of(config, shape_of(config), [Layer(attention, Gated())] * layers_of(config))


ARCHITECTURE = Architecture(
    "mistral",
    ("mistral",),
    read,
    ("grouped-query attention", "sliding window", "rotary positions", "RMS norm", "SwiGLU"),
    {
        "model_type": "mistral",
        "hidden_size": 8,
        "intermediate_size": 6,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "sliding_window": 3,
        "vocab_size": 7,
    },
    "Jiang et al. 2023, Mistral 7B",
)
