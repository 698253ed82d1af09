"""Which parameters of `transformers` our parameters are: one table for each architecture.

An entry reads the weights of one layer, under the names that they have in it, and gives our parameter up to the shape
of its heads.  Entries only select, transpose and reorder, so that they read gradients as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from graphs.axes import Tensor
from graphs.models.transformer import Transformer, periods

Array = np.ndarray
Read = Callable[[Mapping[str, Array]], Array]
Table = Mapping[str, Read]
Keys = Mapping[str, Any]


def same(name: str) -> Read:
    return lambda w: w[name]


def turned(name: str) -> Read:
    """A linear layer's weight has its outputs first; those of a stack of experts have them second."""
    return lambda w: w[name].swapaxes(-1, -2)


def part(whole: Read, axis: int, start: int, stop: int, step: int = 1) -> Read:
    """Entries of an axis of a packed weight."""
    return lambda w: whole(w).take(range(start, stop, step), axis=axis)


NORMS: Table = {"gain_1": same("input_layernorm.weight"), "gain_2": same("post_attention_layernorm.weight")}
ATTENTION: Table = {
    "W_q": turned("self_attn.q_proj.weight"), "b_q": same("self_attn.q_proj.bias"),
    "W_k": turned("self_attn.k_proj.weight"), "b_k": same("self_attn.k_proj.bias"),
    "W_v": turned("self_attn.v_proj.weight"), "b_v": same("self_attn.v_proj.bias"),
    "W_o": turned("self_attn.o_proj.weight"), "b_o": same("self_attn.o_proj.bias"),
    "gain_q": same("self_attn.q_norm.weight"), "gain_k": same("self_attn.k_norm.weight"),
    "sinks": same("self_attn.sinks"),
}  # fmt: skip
GATED: Table = {
    "W_gate": turned("mlp.gate_proj.weight"), "b_gate": same("mlp.gate_proj.bias"),
    "W_up": turned("mlp.up_proj.weight"), "b_up": same("mlp.up_proj.bias"),
    "W_down": turned("mlp.down_proj.weight"), "b_down": same("mlp.down_proj.bias"),
}  # fmt: skip
OUTSIDE: Table = {
    "W_e": same("model.embed_tokens.weight"), "W_u": same("lm_head.weight"), "gain_f": same("model.norm.weight"),
}  # fmt: skip


def experts(width: int) -> Table:
    """The first half of the packed weight is the gate's."""
    packed = turned("mlp.experts.gate_up_proj")
    return {
        "W_r": turned("mlp.gate.weight"),
        "W_gate": part(packed, 2, 0, width),
        "W_up": part(packed, 2, width, 2 * width),
        "W_down": turned("mlp.experts.down_proj"),
    }


def dense(_keys: Keys, _layer: int) -> Table:
    return {**NORMS, **ATTENTION, **GATED}


def mixtral(keys: Keys, _layer: int) -> Table:
    return {**NORMS, **ATTENTION, **experts(keys["intermediate_size"])}


def qwen3_moe(keys: Keys, layer: int) -> Table:
    is_dense = layer in keys.get("mlp_only_layers", ())
    return {**NORMS, **ATTENTION, **(GATED if is_dense else experts(keys["moe_intermediate_size"]))}


def gpt_oss(keys: Keys, _layer: int) -> Table:
    """Gates and up projections by turns, with outputs last."""
    ends = 2 * keys["intermediate_size"]
    packed, bias = same("mlp.experts.gate_up_proj"), same("mlp.experts.gate_up_proj_bias")
    mixture: Table = {
        "W_r": turned("mlp.router.weight"), "b_r": same("mlp.router.bias"),
        "W_gate": part(packed, 2, 0, ends, 2), "b_gate": part(bias, 1, 0, ends, 2),
        "W_up": part(packed, 2, 1, ends, 2), "b_up": part(bias, 1, 1, ends, 2),
        "W_down": same("mlp.experts.down_proj"), "b_down": same("mlp.experts.down_proj_bias"),
    }  # fmt: skip
    return {**NORMS, **ATTENTION, **mixture}


def gpt2(keys: Keys, _layer: int) -> Table:
    """Weights with their inputs first; queries, keys and values in one."""
    d = keys["n_embd"]
    packed, bias = same("attn.c_attn.weight"), same("attn.c_attn.bias")
    table: dict[str, Read] = {
        "gain_1": same("ln_1.weight"), "bias_1": same("ln_1.bias"),
        "gain_2": same("ln_2.weight"), "bias_2": same("ln_2.bias"),
        "W_o": same("attn.c_proj.weight"), "b_o": same("attn.c_proj.bias"),
        "W_1": same("mlp.c_fc.weight"), "b_1": same("mlp.c_fc.bias"),
        "W_2": same("mlp.c_proj.weight"), "b_2": same("mlp.c_proj.bias"),
    }  # fmt: skip
    for i, name in enumerate("qkv"):
        table |= {f"W_{name}": part(packed, 1, i * d, i * d + d), f"b_{name}": part(bias, 0, i * d, i * d + d)}
    return table


def starcoder2(_keys: Keys, _layer: int) -> Table:
    return {
        **NORMS, **ATTENTION,
        "bias_1": same("input_layernorm.bias"), "bias_2": same("post_attention_layernorm.bias"),
        "W_1": turned("mlp.c_fc.weight"), "b_1": same("mlp.c_fc.bias"),
        "W_2": turned("mlp.c_proj.weight"), "b_2": same("mlp.c_proj.bias"),
    }  # fmt: skip


def phi3(keys: Keys, _layer: int) -> Table:
    """Queries, keys and values in one, gates and up projections in another."""
    d, h, f = keys["hidden_size"], keys["num_attention_heads"], keys["intermediate_size"]
    q, kv = d, keys["num_key_value_heads"] * (d // h)
    packed, gates = turned("self_attn.qkv_proj.weight"), turned("mlp.gate_up_proj.weight")
    return {
        **NORMS, **ATTENTION, **GATED,
        "W_q": part(packed, 1, 0, q), "W_k": part(packed, 1, q, q + kv), "W_v": part(packed, 1, q + kv, q + 2 * kv),
        "W_gate": part(gates, 1, 0, f), "W_up": part(gates, 1, f, 2 * f),
    }  # fmt: skip


def deepseek(keys: Keys, layer: int) -> Table:
    """Heads of packed weights are cut; channels that are turned in pairs of neighbours have the first ones first."""
    h, k, r, v, latent = (keys[n] for n in (
        "num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank",
    ))  # fmt: skip
    pairs = [*range(0, r, 2), *range(1, r, 2)]

    def of_heads(whole: Read, width: int, chosen: list[int]) -> Read:
        return lambda w: whole(w).reshape(-1, h, width)[..., chosen]

    has_latent = keys.get("q_lora_rank") is not None
    q = turned(f"self_attn.{'q_b_proj' if has_latent else 'q_proj'}.weight")
    down, up = turned("self_attn.kv_a_proj_with_mqa.weight"), turned("self_attn.kv_b_proj.weight")
    attention: Table = {
        "W_dq": turned("self_attn.q_a_proj.weight"), "gain_q": same("self_attn.q_a_layernorm.weight"),
        "W_q": of_heads(q, k + r, list(range(k))), "W_qr": of_heads(q, k + r, [k + i for i in pairs]),
        "W_dkv": part(down, 1, 0, latent), "W_kr": lambda w: down(w)[:, [latent + i for i in pairs]],
        "gain_kv": same("self_attn.kv_a_layernorm.weight"),
        "W_k": of_heads(up, k + v, list(range(k))), "W_v": of_heads(up, k + v, list(range(k, k + v))),
        "W_o": turned("self_attn.o_proj.weight"),
    }  # fmt: skip
    shared = {f"shared.W_{n}": turned(f"mlp.shared_experts.{n}_proj.weight") for n in ("gate", "up", "down")}
    mixture = {**experts(keys["moe_intermediate_size"]), **shared, "balance": same("mlp.gate.e_score_correction_bias")}
    return {**NORMS, **attention, **(GATED if layer < keys["first_k_dense_replace"] else mixture)}


TABLES: Mapping[str, Callable[[Keys, int], Table]] = {
    "deepseek_v3": deepseek,
    "gpt2": gpt2,
    "gpt_oss": gpt_oss,
    "llama": dense,
    "mistral": dense,
    "mixtral": mixtral,
    "phi3": phi3,
    "qwen2": dense,
    "qwen3": dense,
    "qwen3_moe": qwen3_moe,
    "starcoder2": starcoder2,
}
#: where the layers are, and what lies outside of them, where it is not as in most
LAYERS = {"gpt2": "transformer.h."}
OUTSIDE_OF: Mapping[str, Table] = {
    "gpt2": {
        "W_e": same("transformer.wte.weight"), "W_p": same("transformer.wpe.weight"), "W_u": same("lm_head.weight"),
        "gain_f": same("transformer.ln_f.weight"), "bias_f": same("transformer.ln_f.bias"),
    },
    "starcoder2": {**OUTSIDE, "bias_f": same("model.norm.bias")},
}  # fmt: skip


def arrays(tensors: Mapping[str, Any]) -> dict[str, Array]:
    return {name: t.detach().numpy() for name, t in tensors.items()}


def ours(
    model: Transformer, keys: Keys, tensors: Iterable[tuple[str, Tensor]], theirs: Mapping[str, Array]
) -> dict[str, Array]:
    """Our weights of these names and types, read from theirs; layers are stacked as our loops have them."""
    outside, out = OUTSIDE_OF.get(model.name, OUTSIDE), dict[str, Array]()
    places = {**{name: [(outside, name, theirs)] for name in outside}, **_layers(model, keys, theirs)}
    for name, tensor in tensors:
        shape = [int(a.size) for a in tensor.axes]
        arrays = [table[own](weights) for table, own, weights in places[name]]
        out[name] = np.stack(arrays).reshape(shape)
    return out


def _layers(model: Transformer, keys: Keys, theirs: Mapping[str, Array]) -> dict[str, list[Any]]:
    """Our stacked parameters -> for each layer its table, the parameter's own name, and the layer's weights."""
    loops, out, first = periods(model.layers), dict[str, list[Any]](), 0
    for i, (pattern, times) in enumerate(loops):
        head = f"part_{i + 1}." if len(loops) > 1 else ""
        for j in range(len(pattern)):
            inside = f"{head}{j + 1}." if len(pattern) > 1 else head
            for layer in range(first + j, first + times * len(pattern), len(pattern)):
                start = f"{LAYERS.get(model.name, 'model.layers.')}{layer}."
                weights = {n.removeprefix(start): a for n, a in theirs.items() if n.startswith(start)}
                table = TABLES[model.name](keys, layer)
                for own in table:
                    out.setdefault(f"{inside}{own}", []).append((table, own, weights))
        first += times * len(pattern)
    return out
