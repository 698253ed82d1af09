"""Multi-head latent attention (DeepSeek-V2, V3): keys and values of all heads are projections of one narrow latent.

Besides, all heads share one narrow key that carries the position.  The latent and that key are what later tokens read
of a token, so they are all that a cache has to hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from graphs.axes import Causal
from graphs.blocks.scope import Scope
from graphs.ir import ATTENTION, Value
from graphs.ops.relabel import Relabel
from graphs.ops.rotary import Rotary
from graphs.ops.softmax import Softmax


@dataclass(frozen=True)
class Latent:
    """``q_latent``: queries go through a latent of their own."""

    base: float
    q_latent: bool = True

    def build(self, at: Scope, x: Value) -> Value:
        """x[b,s,c] -> [b,s,c], as executed over a whole sequence: keys and values are written out head by head."""
        source, axis = x, "c"
        if self.q_latent:
            source = at.project(x, "W_dq", "c", "q_latent", "query.latent")
            source, axis = at.rms_norm(source, "gain_q", "q_latent", "query.norm"), "q_latent"
        plain = at.project(source, "W_q", axis, "h k", "query")
        turned = self._turned(at, at.project(source, "W_qr", axis, "h rope", "query.rope"))
        latent = at.project(x, "W_dkv", "c", "latent", "latent")
        latent = at.rms_norm(latent, "gain_kv", "latent", "latent.norm")
        key = self._turned(at, at.project(x, "W_kr", "c", "rope", "key.rope"))
        latent, key = (at.build.add(Relabel("s", "t"), y, name=f"{y.node}.positions")[0] for y in (latent, key))
        k = at.project(latent, "W_k", "latent", "h k", "key")
        v = at.project(latent, "W_v", "latent", "h value", "value")
        with at.build.within(ATTENTION):
            seen = (Causal("s", "t"),)
            scores = at.contract(plain, k, "b h s t", "scores", seen)
            scores = at.apply(
                "add", scores, at.contract(turned, key, "b h s t", "scores.rope", seen), name="scores.sum"
            )
            width = at.build.type(plain).axis("k").size + at.build.type(key).axis("rope").size
            scores = at.apply("scale", scores, factor=1 / sympy.sqrt(width), name="scale")
            (p,) = at.build.add(Softmax("t"), scores, name=f"{at.prefix}probabilities")
            mixed = at.contract(p, v, "b s h value", "mix")
        return at.project(mixed, "W_o", "h value", "c", "out_projection")

    def _turned(self, at: Scope, x: Value) -> Value:
        return at.build.add(Rotary("rope", "s", self.base), x, name=f"{x.node}.rotary")[0]
