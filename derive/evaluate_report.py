"""The costs of a model at numbers as plain data and as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import prod
from typing import Any

from derive.evaluate import Amount, Setting

View = Callable[[Amount], int]

SECTIONS = {
    "parameters": "parameters",
    "work": "work in FLOPs",
    "depth": "depth in steps",
    "memory": "memory in elements",
    "memory_bytes": "memory in bytes",
    "kv_cache": "key-value cache",
}


def report(s: Setting, limit: int | None = None) -> dict[str, Any]:
    """One object; with degrees also ``per_rank`` and ``global``.  ``limit``: bytes of a device's memory."""
    cache, in_bytes = s.cache(), s.memory(s.widths)
    width = s.cache_width
    found: dict[str, dict[str, Amount]] = {
        "parameters": s.parameters(),
        "work": s.work(),
        "depth": s.depth(),
        "memory": s.memory(),
        "memory_bytes": in_bytes,
        "kv_cache": {
            "elements_per_token": cache["per_token"],
            "bytes_per_token": _times(cache["per_token"], width),
            "elements": cache["all"],
            "bytes": _times(cache["all"], width),
        },
    }

    def seen(view: View) -> dict[str, Any]:
        return {name: {key: view(a) for key, a in group.items()} for name, group in found.items()}

    rank, world = seen(lambda a: a.rank), seen(lambda a: a.world)
    data: dict[str, Any] = {"model": s.model.name, "sizes": {"B": s.B, "S": s.S, "T": s.T}, **world}
    if s.degrees:
        data |= {"degrees": dict(sorted(s.degrees.items())), "ranks": prod(s.degrees.values())}
        data |= {"per_rank": rank, "global": world}
    if limit is not None:
        needed = sum(rank["memory_bytes"].values())
        data["device_memory"] = {"bytes": limit, "needed": needed, "fits": needed <= limit}
    return data | {"conventions": conventions(s)}


def _times(amount: Amount, width: int) -> Amount:
    return Amount(width * amount.rank, width * amount.world)


def conventions(s: Setting) -> dict[str, Any]:
    """How the numbers are to be read."""
    return {
        "causal": s.causal,
        "dot_product": "2k",
        "work": "matrix products; softmax, norms, rotary positions, biases, activations and expert weighting are free",
        "embedding": "lookup",
        "logits": "every token of a forward pass; in generation the last prompt token and each of T-1 decode steps",
        "recompute": s.recompute.value.replace("_", "-"),
        "router": "a dense product, forward and backward",
        "routing": "balanced: a rank serves its share of the active experts",
        "generation": "decode steps count the pairs that they see exactly, whatever is said of causal; latent "
        "attention decodes absorbed; nothing is said where positions are cut (P_c)",
        "depth": "ceil(log2) steps for each reduction of a product and of a parameter's gradient; global: also "
        "collectives that reduce",
        "parameters": "matmul: those that a token is multiplied with, of the active experts; global: without replicas",
        "further_tokens": f"{s.model.ahead} of {s.model.modules} modules that predict them, in training alone",
        "adapters": "none"
        if s.model.shape.rank is None
        else f"rank {s.model.shape.rank} beside every projection of "
        "attention and of gated or plain layers; routers, experts, norms and embeddings are frozen",
        "memory": "a training step between its passes: unfused attention, saved activations with masks and statistics; "
        "elements: Adam's 2 moments; bytes: these and a master copy; global: all ranks, replicas included",
        "kv_cache": "a token in every layer; in all: B(S+T-1) tokens, no more than its window in a windowed layer; "
        "global: a token's entry without replicas, all with them",
        "widths": asdict(s.widths) | {"cache": s.cache_width},
    }


# -- for reading ------------------------------------------------------------------------------------------------------
def to_text(data: Mapping[str, Any]) -> str:
    """A table; per rank and over all ranks where the model is cut."""
    sizes = ", ".join(f"{n}={k}" for n, k in data["sizes"].items())
    lines = [f"{data['model']} at {sizes}"]
    views = [data]
    if "degrees" in data:
        lines[0] += f" on {data['ranks']} ranks, " + ", ".join(f"{n}={k}" for n, k in data["degrees"].items())
        views = [data["per_rank"], data["global"]]
        lines.append(_row("", ["per rank", "global"]))
    for name, title in SECTIONS.items():
        lines += ["", title]
        lines += [_row(key.replace("_", " "), [f"{v[name][key]:,}" for v in views]) for key in data[name]]
    if found := data.get("device_memory"):
        verdict = "fits" if found["fits"] else "does not fit"
        lines += ["", f"{found['needed']:,} bytes on a rank: {verdict} in {found['bytes']:,}"]
    lines += ["", "conventions"]
    lines += [f"  {key}: {_said(value)}" for key, value in data["conventions"].items()]
    return "\n".join(lines) + "\n"


def _row(label: str, cells: list[str]) -> str:
    return f"  {label:<20}" + "".join(f"{cell:>28}" for cell in cells)


def _said(value: object) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
