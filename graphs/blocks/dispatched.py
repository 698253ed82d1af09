"""The mixture-of-experts layer as systems run it: tokens are copied to their experts, and answers come back.

The copies lie along the router's axis, which no scheme cuts, until they reach the experts.  So where tokens are cut
over the ranks that hold the experts, copies and answers are each exchanged all-to-all.
"""

from __future__ import annotations

from graphs.blocks.mixture import PARAMETERS, router
from graphs.ir import Builder, Value
from graphs.ops.contraction import Contraction
from graphs.ops.dispatch import Dispatch
from graphs.ops.pointwise import Pointwise
from graphs.ops.relabel import Relabel
from graphs.sizes import Sizes

__all__ = ["PARAMETERS", "dispatched"]


def dispatched(build: Builder, x: Value, sizes: Sizes) -> Value:
    """x[b,s,c] -> [b,s,c]."""
    gates = router(build, x, sizes)
    (copies,) = build.add(Dispatch("r"), x, gates, name="dispatch")
    (copies,) = build.add(Relabel("r", "e"), copies, name="dispatch.experts")
    (u,) = build.add(Contraction(("b", "s", "e", "g")), copies, Value("W_1e"), name="expert_up")
    (a,) = build.add(Pointwise("gelu"), u, name="expert_gelu")
    (y,) = build.add(Contraction(("b", "s", "e", "c")), a, Value("W_2e"), name="expert_down")
    (answers,) = build.add(Relabel("e", "r"), y, name="answers")
    return build.add(Contraction(("b", "s", "c")), gates, answers, name="combine")[0]
