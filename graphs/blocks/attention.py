"""Multi-head causal self-attention without biases or positions, on an already normalised input."""

from __future__ import annotations

from fractions import Fraction

import sympy

from graphs.axes import Causal
from graphs.blocks.dropout import NONE, dropped
from graphs.ir import ATTENTION, Builder, Value
from graphs.ops.contraction import Contraction
from graphs.ops.pointwise import Pointwise
from graphs.ops.relabel import Relabel
from graphs.ops.softmax import Softmax
from graphs.sizes import Sizes

PARAMETERS = {"W_q": "c h k", "W_k": "c h k", "W_v": "c h k", "W_o": "h k c"}


def attention(build: Builder, x: Value, sizes: Sizes, dropout: Fraction = NONE) -> Value:
    """x[b,s,c] -> [b,s,c]; keys and values are the projections relabelled from query to key positions.

    Between the projections lies the region ``attention``; ``dropout`` is the rate at which probabilities are dropped.
    """
    per_head = ("b", "s", "h", "k")
    (q,) = build.add(Contraction(per_head), x, Value("W_q"), name="query")
    (k,) = build.add(Contraction(per_head), x, Value("W_k"), name="key")
    (v,) = build.add(Contraction(per_head), x, Value("W_v"), name="value")
    with build.within(ATTENTION):
        (k,) = build.add(Relabel("s", "t"), k, name="key.positions")
        (v,) = build.add(Relabel("s", "t"), v, name="value.positions")
        (scores,) = build.add(Contraction(("b", "h", "s", "t"), (Causal("s", "t"),)), q, k, name="scores")
        (scaled,) = build.add(Pointwise("scale", 1 / sympy.sqrt(sizes.d_h)), scores, name="scale")
        (p,) = build.add(Softmax("t"), scaled, name="probabilities")
        p = dropped(build, p, dropout, "probabilities.dropout")
        (mixed,) = build.add(Contraction(per_head), p, v, name="mix")
    return build.add(Contraction(("b", "s", "c")), mixed, Value("W_o"), name="out_projection")[0]
