"""DeepSeek-V3: multi-head latent attention; dense first layers, then routed and shared experts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import sympy

from graphs.architectures.architecture import Architecture
from graphs.architectures.config import Config
from graphs.architectures.decoder import (
    MOST_LAYERS,
    SCALED,
    TINY_BATCH,
    TINY_LENGTH,
    decoder_of,
    experts_of,
    layers_of,
    rope_base,
    turned,
)
from graphs.blocks.experts import SIGMOID, Experts
from graphs.blocks.gated import Gated
from graphs.blocks.latent import Latent
from graphs.errors import shown
from graphs.models.transformer import Layer, Transformer
from graphs.ops.groups import SPOKESMEN
from graphs.sizes import Shape


def read(config: Config) -> Transformer:
    config.must_be("moe_layer_freq", only=1)
    config.must_be("attention_bias", only=False)
    config.must_be("scoring_func", only="sigmoid")
    if not config.flag("norm_topk_prob", default=True):
        config.refuse("norm_topk_prob is false; only gates that are normalised over the kept experts are supported")
    config.needs("first_k_dense_replace", "n_shared_experts", "q_lora_rank")
    count, dense = layers_of(config), config.values["first_k_dense_replace"]
    if type(dense) is not int or not 0 <= dense <= count:
        config.refuse(f"first_k_dense_replace is {shown(dense)}; give it a number of layers, 0 to {count}")
    scale = Fraction(str(config.number("routed_scaling_factor", default=2.5)))
    shared = config.optional("n_shared_experts")
    groups, kept = _groups(config)
    factor = sympy.Rational(scale.numerator, scale.denominator)
    experts = Experts(SIGMOID, factor, shared=shared is not None, balanced=True, groups=groups, kept_groups=kept)
    attention = Latent(rope_base(config), q_latent=config.has("q_lora_rank"))
    layers = [Layer(attention, Gated() if i < dense else experts) for i in range(count)]
    modules = config.values.get("num_nextn_predict_layers")
    modules = 0 if modules is None else modules
    if type(modules) is not int or not 0 <= modules <= MOST_LAYERS:
        config.refuse(f"num_nextn_predict_layers is {shown(modules)}; give it a number of modules, 0 for none")
    return replace(decoder_of(config, _shape(config, shared), layers), modules=modules)


def _groups(config: Config) -> tuple[int, int]:
    """How many groups of experts there are, and how many of them a token's experts come from."""
    groups, kept = config.count("n_group", default=1), config.count("topk_group", default=1)
    every, active = config.count("n_routed_experts"), config.count("num_experts_per_tok")
    if kept > groups:
        config.refuse(f"topk_group {kept} is more than n_group {groups}; change one")
    if kept < groups and (every % groups or every // groups < SPOKESMEN):
        config.refuse(f"n_routed_experts {every} are not {groups} groups of at least {SPOKESMEN}; change n_group")
    if active > every * kept // groups:
        config.refuse(f"num_experts_per_tok {active} is more than {kept} of {groups} groups have; change one")
    return groups, kept


def _shape(config: Config, shared: int | None) -> Shape:
    width = config.count("moe_intermediate_size")
    return Shape.of(
        B=TINY_BATCH,
        m=TINY_LENGTH,
        L=layers_of(config),
        d=config.count("hidden_size"),
        h=config.count("num_attention_heads"),
        d_h=config.count("qk_nope_head_dim"),
        d_r=turned(config, "qk_rope_head_dim"),
        d_v=config.count("v_head_dim"),
        d_kv=config.count("kv_lora_rank"),
        d_q=config.optional("q_lora_rank"),
        d_ff=config.count("intermediate_size"),
        d_e=width,
        d_s=None if shared is None else shared * width,
        **experts_of(config, "n_routed_experts"),
        V=config.count("vocab_size"),
    )


ARCHITECTURE = Architecture(
    "deepseek",
    ("deepseek_v3",),
    read,
    (
        "multi-head latent attention",
        "dense first layers",
        "mixture of experts chosen by groups and balanced",
        "shared experts",
        "multi-token prediction (on demand)",
        "rotary positions",
        "RMS norm",
    ),
    {
        "model_type": "deepseek_v3",
        "first_k_dense_replace": 1,
        "hidden_size": 8,
        "intermediate_size": 6,
        "kv_lora_rank": 6,
        "moe_intermediate_size": 2,
        "n_group": 3,
        "n_routed_experts": 6,
        "n_shared_experts": 2,
        "num_attention_heads": 2,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 3,
        "num_nextn_predict_layers": 2,
        "q_lora_rank": 5,
        "qk_nope_head_dim": 3,
        "qk_rope_head_dim": 2,
        "routed_scaling_factor": 2.5,
        "topk_group": 2,
        "v_head_dim": 4,
        "vocab_size": 7,
    },
    "DeepSeek-AI 2024, DeepSeek-V3 technical report",
    (SCALED,),
)
