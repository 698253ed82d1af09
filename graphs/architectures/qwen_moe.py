"""Qwen 3 with mixtures of experts, in every layer or in some."""

from __future__ import annotations

from graphs.architectures.architecture import Architecture
from graphs.architectures.config import Config
from graphs.architectures.decoder import decoder_of, experts_of, layers_of, rope_base, shape_of
from graphs.blocks.experts import Experts
from graphs.blocks.gated import Gated
from graphs.blocks.grouped import Grouped
from graphs.errors import shown
from graphs.models.transformer import Layer, Transformer


def read(config: Config) -> Transformer:
    config.needs("num_key_value_heads")
    if not config.flag("norm_topk_prob", default=False):
        config.refuse("norm_topk_prob is false; only gates that are normalised over the kept experts are supported")
    config.must_be("use_sliding_window", only=False)
    bias = config.flag("attention_bias", default=False)
    attention = Grouped(rope_base(config), norm=True, bias=bias, out_bias=bias)
    every, dense, count = config.count("decoder_sparse_step", default=1), _dense_layers(config), layers_of(config)
    layers = [Layer(attention, Gated() if i in dense or (i + 1) % every else Experts()) for i in range(count)]
    if any(isinstance(layer.ffn, Gated) for layer in layers):
        config.count("intermediate_size")
    shape = shape_of(
        config,
        **experts_of(config, "num_experts"),
        d_e=config.count("moe_intermediate_size"),
    )
    return decoder_of(config, shape, layers)


def _dense_layers(config: Config) -> list[object]:
    """The layers that have no experts whatever decoder_sparse_step says."""
    last = layers_of(config) - 1
    named = config.items("mlp_only_layers") if config.has("mlp_only_layers") else []
    for layer in named:
        if type(layer) is not int or not 0 <= layer <= last:
            config.refuse(f"mlp_only_layers has {shown(layer)}; give numbers of layers, 0 to {last}")
    return named


ARCHITECTURE = Architecture(
    "qwen-moe",
    ("qwen3_moe",),
    read,
    ("grouped-query attention", "independent head width", "norms of heads", "mixture of experts", "rotary positions"),
    {
        "model_type": "qwen3_moe",
        "head_dim": 4,
        "hidden_size": 8,
        "moe_intermediate_size": 3,
        "norm_topk_prob": True,
        "num_attention_heads": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "vocab_size": 7,
    },
    "Qwen Team 2025, Qwen3 technical report",
)
