"""GPT-2: multi-head attention, learned positions, layer norms, biases, tied embedding."""

from __future__ import annotations

from graphs.architectures.architecture import Architecture
from graphs.architectures.config import Config
from graphs.architectures.decoder import TINY_BATCH, TINY_LENGTH, layers_of
from graphs.blocks.gated import Plain
from graphs.blocks.grouped import Grouped
from graphs.models.transformer import LAYER_NORM, Layer, Transformer
from graphs.sizes import Shape


def read(config: Config) -> Transformer:
    config.must_be("activation_function", only="gelu_new")
    config.must_be("add_cross_attention", only=False)
    d, h, count = config.count("n_embd"), config.count("n_head"), layers_of(config, "n_layer")
    if d % h:
        config.refuse(f"n_head {h} does not divide n_embd {d}; change one")
    shape = Shape.of(
        B=TINY_BATCH,
        m=TINY_LENGTH,
        L=count,
        d=d,
        h=h,
        d_h=d // h,
        d_ff=config.count("n_inner", default=4 * d),
        V=config.count("vocab_size"),
        positions=config.count("n_positions"),
    )
    layer = Layer(Grouped(bias=True, out_bias=True), Plain(bias=True))
    tied = config.flag("tie_word_embeddings", default=True)
    return Transformer(config.model_type, shape, (layer,) * count, LAYER_NORM, tied)


ARCHITECTURE = Architecture(
    "gpt2",
    ("gpt2",),
    read,
    ("multi-head attention", "learned positions", "layer norm", "biases", "GELU", "tied embedding"),
    {
        "model_type": "gpt2",
        "n_embd": 6,
        "n_head": 2,
        "n_inner": 8,
        "n_layer": 2,
        "n_positions": 6,
        "vocab_size": 7,
    },
    "Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
)
