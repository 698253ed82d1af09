"""The one registry of size symbols: positive integers, known by name.

Every extent, degree and per-model size in the project is a symbol from here, so that two parts of the code that say
``d`` mean the same sympy object, and a misspelt name is an error instead of a new variable.
"""

from __future__ import annotations

from functools import cache

import sympy

SIZES: dict[str, str] = {
    "B": "sequences in a batch",
    "B_pairs": "preference pairs in a batch",
    "K": "samples per prompt",
    "S": "prompt length",
    "T": "response length",
    "m": "sequence length S + T",
    "L": "decoder blocks",
    "d": "model width",
    "d_h": "width of a head",
    "d_ff": "width of the feed-forward layer",
    "h": "attention heads",
    "h_kv": "key-value heads",
    "V": "vocabulary",
    "E": "experts",
    "E_a": "active experts per token",
    "d_e": "width of an expert",
    "N": "devices",
    "n_mb": "micro-batches",
    "n_vs": "virtual stages per rank",
    "n_ep": "epochs over a rollout batch",
    "n_up": "mini-batch updates per epoch",
    "P_d": "degree of data parallelism",
    "P_p": "degree of pipeline parallelism",
    "P_t": "degree of tensor parallelism",
    "P_c": "degree of context parallelism",
    "P_e": "degree of expert parallelism",
}
MODELS = ("pi", "R", "V", "SH", "M")
PER_MODEL = ("L", "d", "d_h", "d_ff", "h")


def is_size(name: str) -> bool:
    """True for a registered size and for its per-model forms such as ``d_ff_pi``."""
    if name in SIZES:
        return True
    stem, _, model = name.rpartition("_")
    return stem in PER_MODEL and model in MODELS


@cache
def size(name: str) -> sympy.Symbol:
    """The symbol of a registered size; KeyError names an unknown one."""
    if not is_size(name):
        raise KeyError(f"unknown size {name!r}: register it in graphs/symbols.py (known: {', '.join(SIZES)})")
    return sympy.Symbol(name, integer=True, positive=True)
