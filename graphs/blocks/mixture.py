"""The mixture-of-experts feed-forward layer: router, top-k, experts, combination.

Every expert is written over the whole token set, restricted to the E_a experts that the router keeps for a token:
entries outside the restriction are multiplied by a zero gate, so their values never matter and are not counted.
"""

from __future__ import annotations

from graphs.axes import restrictions_on
from graphs.ir import Builder, Value
from graphs.ops.contraction import Contraction
from graphs.ops.pointwise import Pointwise
from graphs.ops.relabel import Relabel
from graphs.ops.route import Route
from graphs.ops.softmax import Softmax
from graphs.sizes import Sizes

PARAMETERS = {"W_r": "c r", "W_1e": "e c g", "W_2e": "e g c"}


def router(build: Builder, x: Value, sizes: Sizes) -> Value:
    """x[b,s,c] -> gates [b,s,r]: the softmax over the kept scores, zero elsewhere."""
    (scores,) = build.add(Contraction(("b", "s", "r")), x, Value("W_r"), name="router")
    (kept,) = build.add(Route("r", sizes.E_a), scores, name="top_k")
    return build.add(Softmax("r"), kept, name="gates")[0]


def mixture(build: Builder, x: Value, sizes: Sizes) -> Value:
    """x[b,s,c] -> [b,s,c]."""
    gates = router(build, x, sizes)
    (gates,) = build.add(Relabel("r", "e"), gates, name="gates.experts")
    domain = restrictions_on(frozenset("bse"), build.type(gates).domain)
    (u,) = build.add(Contraction(("b", "s", "e", "g"), domain), x, Value("W_1e"), name="expert_up")
    (a,) = build.add(Pointwise("gelu"), u, name="expert_gelu")
    (y,) = build.add(Contraction(("b", "s", "e", "c"), domain), a, Value("W_2e"), name="expert_down")
    return build.add(Contraction(("b", "s", "c")), gates, y, name="combine")[0]
