"""The models written once more in plain numpy, token by token and head by head, from the keys of a configuration.

Shares no code with the graphs, and reads the parameters under the names that the graphs give them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Array = np.ndarray
Keys = Mapping[str, object]
EPSILON = 1e-5
#: the base of rotary positions where the configuration does not say it, if it is not the usual one
BASES = {"mixtral": 1e6, "gpt_oss": 1.5e5}


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max())
    return e / e.sum()


def rms(x: Array, gain: Array) -> Array:
    return gain * x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON)


def layer_norm(x: Array, gain: Array, bias: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return gain * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON) + bias


def turn(x: Array, position: int, base: float) -> Array:
    """One head's channels as complex numbers, each turned by its own speed."""
    half = len(x) // 2
    z = (x[:half] + 1j * x[half:]) * np.exp(1j * position * base ** (-np.arange(half) / half))
    return np.concatenate((z.real, z.imag))


class Model:
    """A configuration's model over given arrays."""

    def __init__(self, keys: Keys, arrays: Mapping[str, Array]) -> None:
        self.keys, self.arrays, self.kind = keys, arrays, str(keys["model_type"])

    def layers(self) -> list[dict[str, Array]]:
        """The parameters of each layer under their own names, from first to last."""
        out: list[dict[str, Array]] = []
        parts = sorted({n.split(".")[0] for n in self.arrays if n.startswith("part_")}) or [""]
        for part in parts:
            prefix = f"{part}." if part else ""
            mine = {n.removeprefix(prefix): a for n, a in self.arrays.items() if n.startswith(prefix)}
            mine = {n: a for n, a in mine.items() if n not in OUTSIDE and not n.startswith(("ahead", "ids", "targets"))}
            turns = sorted({n.split(".")[0] for n in mine if n[0].isdigit()}) or [""]
            for i in range(len(next(iter(mine.values())))):
                for one in turns:
                    head = f"{one}." if one else ""
                    out.append({n.removeprefix(head): a[i] for n, a in mine.items() if n.startswith(head)})
        return out

    def logits(self, ahead: int = 0) -> list[Array]:
        """[b, s, v] for the next token, and for so many further ones."""
        ids = self.arrays["ids"].astype(int)
        x = self.arrays["W_e"][ids]
        if "W_p" in self.arrays:
            x = x + self.arrays["W_p"][: x.shape[1]]
        for i, w in enumerate(self.layers()):
            x = x + self.attended(self.norm(x, w, "1"), w, i)
            x = x + self.fed(self.norm(x, w, "2"), w)
        table = self.arrays.get("W_u", self.arrays["W_e"])
        out = [self.norm(x, self.arrays, "f") @ table.T]
        for k in range(1, ahead + 1):
            w = {n.removeprefix(f"ahead_{k}."): a for n, a in self.arrays.items() if n.startswith(f"ahead_{k}.")}
            e = self.arrays["W_e"][self.arrays[f"ids_{k}"].astype(int)]
            both = np.concatenate((rms(x, w["gain_h"]), rms(e, w["gain_e"])), axis=-1)
            x = both @ np.concatenate((w["W_h"], w["W_t"]))
            x = x + self.attended(self.norm(x, w, "1"), w, -1)
            x = x + self.fed(self.norm(x, w, "2"), w)
            out.append(self.norm(x, w, "f") @ table.T)
        return out

    def norm(self, x: Array, w: Mapping[str, Array], label: str) -> Array:
        if f"bias_{label}" in w:
            return layer_norm(x, w[f"gain_{label}"], w[f"bias_{label}"])
        return rms(x, w[f"gain_{label}"])

    # -- attention ----------------------------------------------------------------------------------------------------
    def seen(self, i: int, s: int) -> range:
        """The keys that the query at position s of layer i sees."""
        width = self.keys.get("sliding_window")
        if self.kind == "gpt_oss" and i % 2:
            width = None
        return range(0 if width is None else max(0, s - int(width) + 1), s + 1)  # type: ignore[call-overload]

    def attended(self, x: Array, w: Mapping[str, Array], i: int) -> Array:
        per_sequence = self.latent if self.kind == "deepseek_v3" else self.grouped
        return np.array([per_sequence(sequence, w, i) for sequence in x])

    def grouped(self, x: Array, w: Mapping[str, Array], i: int) -> Array:
        base, out = float(self.keys.get("rope_theta", BASES.get(self.kind, 1e4))), np.zeros_like(x)  # type: ignore[arg-type]
        _, heads, group, width = w["W_q"].shape
        for j in range(heads):
            k, v = (x @ w[f"W_{n}"][:, j] + (w[f"b_{n}"][j] if f"b_{n}" in w else 0) for n in "kv")
            if "gain_k" in w:
                k = rms(k, w["gain_k"])
            if self.kind != "gpt2":
                k = np.array([turn(row, s, base) for s, row in enumerate(k)])
            for g in range(group):
                for s in range(len(x)):
                    q = x[s] @ w["W_q"][:, j, g] + (w["b_q"][j, g] if "b_q" in w else 0)
                    q = rms(q, w["gain_q"]) if "gain_q" in w else q
                    q = turn(q, s, base) if self.kind != "gpt2" else q
                    seen = list(self.seen(i, s))
                    scores = k[seen] @ q / np.sqrt(width)
                    sink = [w["sinks"][j, g]] if "sinks" in w else []
                    p = softmax(np.append(scores, sink))[: len(seen)]
                    out[s] += p @ v[seen] @ w["W_o"][j, g]
        return out + w["b_o"] if "b_o" in w else out

    def latent(self, x: Array, w: Mapping[str, Array], i: int) -> Array:
        base, out = float(self.keys.get("rope_theta", BASES.get(self.kind, 1e4))), np.zeros_like(x)  # type: ignore[arg-type]
        source = rms(x @ w["W_dq"], w["gain_q"]) if "W_dq" in w else x
        latent = rms(x @ w["W_dkv"], w["gain_kv"])
        shared = np.array([turn(row, s, base) for s, row in enumerate(x @ w["W_kr"])])
        for j in range(w["W_q"].shape[1]):
            k = np.concatenate((latent @ w["W_k"][:, j], shared), axis=1)
            v = latent @ w["W_v"][:, j]
            for s in range(len(x)):
                q = np.concatenate((source[s] @ w["W_q"][:, j], turn(source[s] @ w["W_qr"][:, j], s, base)))
                out[s] += softmax(k[: s + 1] @ q / np.sqrt(len(q))) @ v[: s + 1] @ w["W_o"][j]
        return out

    # -- feed-forward -------------------------------------------------------------------------------------------------
    def fed(self, x: Array, w: Mapping[str, Array]) -> Array:
        if "W_1" in w:
            return gelu(x @ w["W_1"] + w["b_1"]) @ w["W_2"] + w["b_2"]
        if "W_r" not in w:
            return silu(x @ w["W_gate"]) * (x @ w["W_up"]) @ w["W_down"]
        out = np.zeros_like(x)
        for token in np.ndindex(x.shape[:-1]):
            out[token] = self.expert_mean(x[token], w)
        if "shared.W_up" in w:
            out += silu(x @ w["shared.W_gate"]) * (x @ w["shared.W_up"]) @ w["shared.W_down"]
        return out

    def expert_mean(self, x: Array, w: Mapping[str, Array]) -> Array:
        scores = x @ w["W_r"] + w.get("b_r", 0)
        choice = sigmoid(scores) + w["balance"] if "balance" in w else scores.copy()
        for lost in self.lost_groups(choice):
            choice[lost] = -np.inf
        chosen = np.argsort(choice)[-int(self.keys["num_experts_per_tok"]) :]  # type: ignore[call-overload]
        if self.kind == "deepseek_v3":
            gates = sigmoid(scores[chosen]) / sigmoid(scores[chosen]).sum()
            gates = gates * float(self.keys.get("routed_scaling_factor", 1.0))  # type: ignore[arg-type]
        else:
            gates = softmax(scores[chosen])
        out = np.zeros_like(x)
        for gate, e in zip(gates, chosen, strict=True):
            bias = {n: w[f"b_{n}"][e] if f"b_{n}" in w else 0 for n in ("gate", "up", "down")}
            gated, up = x @ w["W_gate"][e] + bias["gate"], x @ w["W_up"][e] + bias["up"]
            if self.kind == "gpt_oss":
                gated, up = np.minimum(gated, 7), 1 + np.clip(up, -7, 7)
                a = gated * sigmoid(1.702 * gated) * up
            else:
                a = silu(gated) * up
            out += gate * (a @ w["W_down"][e] + bias["down"])
        return out

    def lost_groups(self, choice: Array) -> list[list[int]]:
        """The experts of each group that is not among those whose two best have the largest sums."""
        count, kept = (int(self.keys.get(n, 1)) for n in ("n_group", "topk_group"))  # type: ignore[call-overload]
        groups = np.arange(len(choice)).reshape(count, -1)
        worth = [sum(sorted(choice[list(g)])[-2:]) for g in groups]
        return [list(groups[i]) for i in np.argsort(worth)[: count - kept]]


#: inputs that belong to no layer
OUTSIDE = ("ids", "targets", "W_e", "W_u", "W_p", "gain_f", "bias_f")
