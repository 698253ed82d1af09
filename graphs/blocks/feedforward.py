"""The two-projection GELU feed-forward layer without biases."""

from __future__ import annotations

from graphs.ir import Builder, Value
from graphs.ops.contraction import Contraction
from graphs.ops.pointwise import Pointwise
from graphs.sizes import Sizes

PARAMETERS = {"W_1": "c f", "W_2": "f c"}


def feedforward(build: Builder, x: Value, _sizes: Sizes) -> Value:
    """x[b,s,c] -> [b,s,c]."""
    (u,) = build.add(Contraction(("b", "s", "f")), x, Value("W_1"), name="ffn_up")
    (a,) = build.add(Pointwise("gelu"), u, name="gelu")
    return build.add(Contraction(("b", "s", "c")), a, Value("W_2"), name="ffn_down")[0]
