"""What the configurations of most decoders have in common."""

from __future__ import annotations

import sympy

from graphs.architectures.config import Config
from graphs.errors import shown
from graphs.models.transformer import Layer, Transformer
from graphs.sizes import Shape

#: how long the sequences of a tiny example are, and how many of them there are
TINY_BATCH, TINY_LENGTH = 2, 5
MOST_LAYERS = 10_000
#: what is left out of models with rotary positions that are made for long contexts
SCALED = "the scaling of rotary positions for long contexts"


def shape_of(config: Config, **further: int | None) -> Shape:
    """Sizes under the keys that most decoders share; batch and length are those of a tiny example."""
    h, h_kv, width = heads_of(config)
    sizes: dict[str, int | None] = {
        "B": TINY_BATCH,
        "m": TINY_LENGTH,
        "L": layers_of(config),
        "d": config.count("hidden_size"),
        "h": h,
        "h_kv": h_kv,
        "d_h": width,
        "d_ff": config.optional("intermediate_size"),
        "V": config.count("vocab_size"),
    }
    return Shape.of(**(sizes | further))


def layers_of(config: Config, key: str = "num_hidden_layers") -> int:
    count = config.count(key)
    if count > MOST_LAYERS:
        config.refuse(f"{key} is {count}; a model has at most {MOST_LAYERS} layers here")
    return count


def experts_of(config: Config, key: str) -> dict[str, int]:
    """How many experts there are, under that key, and how many of them serve a token."""
    every, active = config.count(key), config.count("num_experts_per_tok")
    if active > every:
        config.refuse(f"num_experts_per_tok {active} is more than {key} {every}; change one")
    return {"E": every, "E_a": active}


def heads_of(config: Config) -> tuple[int, int, int]:
    """Query heads, heads of keys and values, and the width of a head."""
    h = config.count("num_attention_heads")
    h_kv = config.count("num_key_value_heads", default=h)
    if h % h_kv:
        config.refuse(f"num_key_value_heads {h_kv} does not divide num_attention_heads {h}; change one")
    if config.has("head_dim"):
        return h, h_kv, turned(config, "head_dim")
    d = config.count("hidden_size")
    if d % h:
        config.refuse(f"num_attention_heads {h} does not divide hidden_size {d}; change one, or give head_dim")
    if d // h % 2:
        config.refuse(
            f"hidden_size {d} over num_attention_heads {h} is {d // h} channels of a head, which form no pairs for "
            "rotary positions; change one, or give an even head_dim"
        )
    return h, h_kv, d // h


def turned(config: Config, key: str) -> int:
    """The number of channels that rotary positions turn in pairs."""
    width = config.count(key)
    if width % 2:
        config.refuse(f"{key} is {width}; rotary positions turn channels in pairs, make it even")
    return width


def rope_base(config: Config, default: float = 10000.0) -> float:
    """Of the rotary positions; scaling them for long contexts changes angles alone."""
    scaled = config.values.get("rope_parameters")
    if scaled is None:
        return config.number("rope_theta", default)
    if not isinstance(scaled, dict):
        config.refuse(f"rope_parameters is {shown(scaled)}; give it an object with rope_theta")
    inside = Config(scaled, f"{config.place}: rope_parameters")
    return inside.number("rope_theta", config.number("rope_theta", default))


def window_of(config: Config) -> sympy.Expr | None:
    """The window of all layers, or None where they see all keys."""
    width = config.optional("sliding_window")
    return None if width is None else sympy.Integer(width)


def windows_of(config: Config) -> list[sympy.Expr | None]:
    """For each layer its window, or None where it sees all keys, as ``layer_types`` says."""
    kinds = config.items("layer_types")
    if len(kinds) != layers_of(config):
        config.refuse(f"layer_types names {len(kinds)} layers, num_hidden_layers is {layers_of(config)}; change one")
    known = {"full_attention": None, "sliding_attention": sympy.Integer(config.count("sliding_window", default=1))}
    for kind in kinds:
        if not isinstance(kind, str) or kind not in known:
            config.refuse(f"layer_types has {shown(kind)}, of which nothing is known here; use {' or '.join(known)}")
        if kind == "sliding_attention":
            config.count("sliding_window")
    return [known[str(kind)] for kind in kinds]


def decoder_of(config: Config, shape: Shape, layers: list[Layer], tied: bool = False) -> Transformer:
    """RMS norms, and an embedding that is tied or not as ``tie_word_embeddings`` says."""
    config.must_be("hidden_act", only="silu")
    return Transformer(config.model_type, shape, tuple(layers), tied=config.flag("tie_word_embeddings", default=tied))
