"""gpt-oss: windowed and full layers by turns, attention sinks, mixtures of experts, biases."""

from __future__ import annotations

import sympy

from graphs.architectures.architecture import Architecture
from graphs.architectures.config import Config
from graphs.architectures.decoder import SCALED, decoder_of, experts_of, layers_of, rope_base, shape_of, windows_of
from graphs.blocks.experts import Experts
from graphs.blocks.grouped import Grouped
from graphs.models.transformer import Layer, Transformer
from graphs.ops.pointwise import LIMIT, SLOPE


def read(config: Config) -> Transformer:
    config.needs("num_key_value_heads", "head_dim")
    count, base = layers_of(config), rope_base(config, default=150000.0)
    if config.has("layer_types"):
        windows = windows_of(config)
    else:
        window = sympy.Integer(config.count("sliding_window"))
        windows = [None if i % 2 else window for i in range(count)]
    config.must_be("swiglu_limit", only=LIMIT)
    config.must_be("swiglu_alpha", only=SLOPE)
    bias = config.flag("attention_bias", default=True)
    layers = [
        Layer(Grouped(base, w, bias=bias, out_bias=bias, sinks=True), Experts(bias=True, clamped=True)) for w in windows
    ]
    shape = shape_of(
        config,
        d_ff=None,
        **experts_of(config, "num_local_experts"),
        d_e=config.count("intermediate_size"),
    )
    return decoder_of(config, shape, layers)


ARCHITECTURE = Architecture(
    "gpt-oss",
    ("gpt_oss",),
    read,
    (
        "grouped-query attention",
        "sliding window in every other layer",
        "attention sinks",
        "mixture of experts",
        "biases",
        "independent head width",
        "rotary positions",
        "RMS norm",
    ),
    {
        "model_type": "gpt_oss",
        "head_dim": 4,
        "hidden_size": 8,
        "intermediate_size": 3,
        "num_attention_heads": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "sliding_window": 2,
        "vocab_size": 7,
    },
    "OpenAI 2025, gpt-oss-120b and gpt-oss-20b model card",
    (SCALED,),
)
