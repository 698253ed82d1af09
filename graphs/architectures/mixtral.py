"""Mixtral: Mistral with a mixture of experts in every layer."""

from __future__ import annotations

from graphs.architectures.architecture import Architecture
from graphs.architectures.config import Config
from graphs.architectures.decoder import decoder_of, experts_of, layers_of, rope_base, shape_of, window_of
from graphs.blocks.experts import Experts
from graphs.blocks.grouped import Grouped
from graphs.models.transformer import Layer, Transformer


def read(config: Config) -> Transformer:
    config.needs("num_key_value_heads")
    attention = Grouped(rope_base(config, default=1e6), window_of(config))
    shape = shape_of(
        config,
        d_ff=None,
        **experts_of(config, "num_local_experts"),
        d_e=config.count("intermediate_size"),
    )
    return decoder_of(config, shape, [Layer(attention, Experts())] * layers_of(config))


ARCHITECTURE = Architecture(
    "mixtral",
    ("mixtral",),
    read,
    ("grouped-query attention", "mixture of experts", "rotary positions", "RMS norm"),
    {
        "model_type": "mixtral",
        "hidden_size": 8,
        "intermediate_size": 6,
        "num_attention_heads": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "vocab_size": 7,
    },
    "Jiang et al. 2024, Mixtral of Experts",
)
