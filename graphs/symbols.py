"""The one registry of size symbols: positive integers, known by name.

Every extent, degree and per-model size in the project is a symbol from here, so that two parts of the code that say
``d`` mean the same sympy object, and a misspelt name is an error instead of a new variable.
"""

from __future__ import annotations

import re
from functools import cache

import sympy

from graphs.errors import GraphError

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
    "alpha": "time per message step",
    "beta": "time per element sent",
}
DEGREE = re.compile(r"P_[a-z][a-z0-9]{0,15}")
#: bound by a loop that knows its iterations, never free in a cost
INDICES: dict[str, str] = {"t": "decode step"}
MODELS = ("pi", "R", "V", "SH", "M")
PER_MODEL = ("L", "d", "d_h", "d_ff", "h")


def is_size(name: str) -> bool:
    """True for a registered size and for its per-model forms such as ``d_ff_pi``."""
    if name in SIZES:
        return True
    stem, _, model = name.rpartition("_")
    return stem in PER_MODEL and model in MODELS


def register_degree(name: str, meaning: str) -> None:
    """Make ``name`` the degree of a further mesh dimension; saying the same again changes nothing."""
    if not DEGREE.fullmatch(name):
        raise GraphError(f"mesh dimension {name!r} is no name of a degree; call it P_ and lowercase letters, like P_x")
    if SIZES.setdefault(name, meaning) != meaning:
        raise GraphError(f"mesh dimension {name} already means {SIZES[name]!r}; choose another name")


@cache
def size(name: str) -> sympy.Symbol:
    """The symbol of a registered size; KeyError names an unknown one."""
    if not is_size(name):
        raise KeyError(f"unknown size {name!r}: register it in graphs/symbols.py (known: {', '.join(SIZES)})")
    return sympy.Symbol(name, integer=True, positive=True)


@cache
def index(name: str) -> sympy.Symbol:
    """The symbol of a registered loop index, which counts from 1."""
    if name not in INDICES:
        raise KeyError(f"unknown index {name!r}: register it in graphs/symbols.py (known: {', '.join(INDICES)})")
    return sympy.Symbol(name, integer=True, positive=True)
