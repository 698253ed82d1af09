"""The costs of a model at numbers as plain data and as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import prod
from typing import Any

from derive.evaluate import Amount, Amounts, Setting
from derive.iteration import Iteration

#: what is said only where a model is cut over the mesh dimension
OF_MESHES = {
    "P_p": "stages of equally many layers in their order, embedding on the first and logits on the last; per rank: the "
    "most of each that any stage has (device memory: of all together), with one batch under way",
    "P_e": "these ranks share experts, not tokens: each has all tokens of its batch, does all else for all of them, "
    "attention and cache included, and works on those that its experts serve; their results are summed (all-reduce)",
}

View = Callable[[Amount], int]

SECTIONS = {
    "parameters": "parameters",
    "work": "work in FLOPs",
    "depth": "depth in steps",
    "memory": "memory in elements",
    "memory_bytes": "memory in bytes",
    "kv_cache": "key-value cache",
}


ITERATION = (
    "B prompts with K rollouts each (dpo: B pairs) on the baseline placement; policy, reference, reward and critic are "
    "all built like this model, with its head; one epoch, one update; log-probabilities of sampling on the fly"
)


def report(s: Setting, limit: int | None = None, iteration: Iteration | None = None) -> dict[str, Any]:
    """One object; with degrees also ``per_rank`` and ``global``.  ``limit``: bytes of a device's memory."""
    found = {
        "parameters": s.parameters(),
        "work": s.work(),
        "depth": s.depth(),
        "memory": s.memory(),
        "memory_bytes": s.memory(s.widths),
        "kv_cache": _cached(s),
    }

    def seen(view: View) -> dict[str, Any]:
        return {name: {key: view(a) for key, a in group.items()} for name, group in found.items()}

    rank, world = seen(lambda a: a.rank), seen(lambda a: a.world)
    data: dict[str, Any] = {"model": s.model.name, "sizes": {"B": s.B, "S": s.S, "T": s.T}, **world}
    if s.degrees:
        data |= {"degrees": dict(sorted(s.degrees.items())), "ranks": prod(s.degrees.values())}
        data |= {"per_rank": rank, "global": world}
    if limit is not None:
        needed = s.held()
        data["device_memory"] = {"bytes": limit, "needed": needed, "fits": needed <= limit}
    said = conventions(s)
    if iteration is not None:
        costs = {"work": iteration.work(), "depth": iteration.depth()}
        data["iteration"] = {"algorithm": iteration.algorithm, "K": iteration.rollouts, **costs}
        said["iteration"] = ITERATION
    return data | {"conventions": said}


def _cached(s: Setting) -> Amounts:
    """The cache in elements and in bytes."""
    out: Amounts = {}
    for name, amount in s.cache().items():
        suffix = "" if name == "all" else f"_{name}"
        out[f"elements{suffix}"] = amount
        out[f"bytes{suffix}"] = Amount(s.cache_width * amount.rank, s.cache_width * amount.world)
    return out


def conventions(s: Setting) -> dict[str, Any]:
    """How the numbers are to be read; of experts' ranks and of stages where there are any."""
    said = {
        "causal": s.causal,
        "dot_product": "2k",
        "work": "matrix products; softmax, norms, rotary positions, biases, activations and expert weighting are free",
        "embedding": "lookup",
        "logits": "every token of a forward pass; in generation the last prompt token and each of T-1 decode steps",
        "recompute": s.recompute.value.replace("_", "-"),
        "router": "a dense product, forward and backward",
        "routing": "balanced: a rank serves its share of the active experts",
        "generation": "decode steps count the pairs that they see exactly, whatever is said of causal; latent "
        "attention decodes absorbed; nothing is said of it, nor of the whole cache, where positions are cut (P_c)",
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
    return said | {mesh: sentence for mesh, sentence in OF_MESHES.items() if s.degrees.get(mesh, 1) > 1}


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
    if found := data.get("iteration"):
        lines += ["", f"an iteration of {found['algorithm']}, K={found['K']}, over all ranks"]
        lines += [
            _row(f"{measure} of {stage}" if stage != "iteration" else f"{measure} in all", [f"{number:,}"])
            for measure in ("work", "depth")
            for stage, number in found[measure].items()
        ]
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
