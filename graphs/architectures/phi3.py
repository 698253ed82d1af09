"""Phi-3: Mistral, whose projections of one input are stored as one matrix."""

from __future__ import annotations

from graphs.architectures.architecture import Architecture
from graphs.architectures.config import Config
from graphs.architectures.decoder import decoder_of, layers_of, rope_base, shape_of, window_of
from graphs.blocks.gated import Gated
from graphs.blocks.grouped import Grouped
from graphs.models.transformer import Layer, Transformer


def read(config: Config) -> Transformer:
    config.must_be("partial_rotary_factor", only=1.0)
    attention = Grouped(rope_base(config), window_of(config))
    config.count("intermediate_size")
    return decoder_of(config, shape_of(config), [Layer(attention, Gated())] * layers_of(config))


ARCHITECTURE = Architecture(
    "phi3",
    ("phi3",),
    read,
    ("grouped-query attention", "sliding window", "rotary positions", "RMS norm", "SwiGLU"),
    {
        "model_type": "phi3",
        "hidden_size": 8,
        "intermediate_size": 6,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "sliding_window": 3,
        "vocab_size": 7,
    },
    "Microsoft 2024, Phi-3 technical report",
)
