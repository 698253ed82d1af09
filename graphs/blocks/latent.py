"""Multi-head latent attention (DeepSeek-V2, V3): keys and values of all heads are projections of one narrow latent.

Besides, all heads share one narrow key that carries the position.  The latent and that key are what later tokens read
of a token, so they are all that a cache has to hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from graphs.axes import Causal
from graphs.blocks.scope import Scope
from graphs.ir import ATTENTION, Value
from graphs.ops.relabel import Relabel
from graphs.ops.rotary import Rotary
from graphs.ops.softmax import Softmax

SEEN = (Causal("s", "t"),)


@dataclass(frozen=True)
class Latent:
    """One kind of it.

    ``q_latent``: queries go through a latent of their own.  As executed over a whole sequence, keys and values are
    written out head by head; ``absorbed``, their projections are moved to the side of the queries, which then match
    and mix the latents themselves: the same function of the same parameters, of less work for one query.
    """

    base: float
    q_latent: bool = True
    absorbed: bool = False

    def decoding(self) -> Latent:
        return replace(self, absorbed=True)

    def build(self, at: Scope, x: Value) -> Value:
        """x[b,s,c] -> [b,s,c]; between the projections lies the region ``attention``."""
        q, turned = self._queries(at, x)
        latent = at.project(x, "W_dkv", "c", "latent", "latent")
        latent = at.rms_norm(latent, "gain_kv", "latent", "latent.norm")
        key = self._turned(at, at.project(x, "W_kr", "c", "rope", "key.rope"))
        latent, key = (at.build.add(Relabel("s", "t"), y, name=f"{y.node}.positions")[0] for y in (latent, key))
        mixed = (self._absorbed if self.absorbed else self._written_out)(at, q, latent, turned, key)
        return at.project(mixed, "W_o", "h value", "c", "out_projection")

    def _queries(self, at: Scope, x: Value) -> tuple[Value, Value]:
        """The channels without a position [b,s,h,k] and those with one [b,s,h,rope]."""
        axis = "c"
        if self.q_latent:
            x = at.project(x, "W_dq", "c", "q_latent", "query.latent")
            x, axis = at.rms_norm(x, "gain_q", "q_latent", "query.norm"), "q_latent"
        q = at.project(x, "W_q", axis, "h k", "query")
        return q, self._turned(at, at.project(x, "W_qr", axis, "h rope", "query.rope"))

    def _written_out(self, at: Scope, q: Value, latent: Value, turned: Value, key: Value) -> Value:
        k = at.project(latent, "W_k", "latent", "h k", "key")
        v = at.project(latent, "W_v", "latent", "h value", "value")
        with at.build.within(ATTENTION):
            p = self._probabilities(at, at.contract(q, k, "b h s t", "scores", SEEN), turned, key)
            return at.contract(p, v, "b s h value", "mix")

    def _absorbed(self, at: Scope, q: Value, latent: Value, turned: Value, key: Value) -> Value:
        q = at.contract(q, at.parameter("W_k", "latent h k"), "b s h latent", "query.absorbed")
        with at.build.within(ATTENTION):
            p = self._probabilities(at, at.contract(q, latent, "b h s t", "scores", SEEN), turned, key)
            mixed = at.contract(p, latent, "b s h latent", "mix")
        return at.contract(mixed, at.parameter("W_v", "latent h value"), "b s h value", "value.absorbed")

    def _probabilities(self, at: Scope, scores: Value, turned: Value, key: Value) -> Value:
        """[b,h,s,t]: the two parts of the scores together."""
        scores = at.apply("add", scores, at.contract(turned, key, "b h s t", "scores.rope", SEEN), name="scores.sum")
        axes = at.shape.axes()
        width = axes["k"].size + axes["rope"].size
        scores = at.apply("scale", scores, factor=1 / sympy.sqrt(width), name="scale")
        return at.build.add(Softmax("t"), scores, name=f"{at.prefix}probabilities")[0]

    def _turned(self, at: Scope, x: Value) -> Value:
        return at.build.add(Rotary("rope", "s", self.base), x, name=f"{x.node}.rotary")[0]
