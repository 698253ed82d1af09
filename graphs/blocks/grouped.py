"""Grouped-query attention: query heads share heads of keys and values; with rotary positions, windows and sinks.

One head of keys and values for all queries is multi-query attention, one for each is multi-head attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from graphs.axes import Causal, Window
from graphs.blocks.scope import Scope
from graphs.ir import ATTENTION, Value
from graphs.ops.relabel import Relabel
from graphs.ops.rotary import Rotary
from graphs.ops.sink_softmax import SinkSoftmax
from graphs.ops.softmax import Softmax


@dataclass(frozen=True)
class Grouped:
    """One kind of it.

    ``base`` is that of rotary positions (None: there are none); ``window`` how many keys a query sees (None: all before
    it); ``norm`` normalises each head's queries and keys; ``bias`` is that of the first three projections.
    """

    base: float | None = None
    window: sympy.Expr | None = None
    norm: bool = False
    bias: bool = False
    out_bias: bool = False
    sinks: bool = False

    def decoding(self) -> Grouped:
        return self

    def build(self, at: Scope, x: Value) -> Value:
        """x[b,s,c] -> [b,s,c]; between the projections lies the region ``attention``."""
        q = at.project(x, "W_q", "c", "h q k", "query", self.bias)
        k = at.project(x, "W_k", "c", "h k", "key", self.bias)
        v = at.project(x, "W_v", "c", "h k", "value", self.bias)
        if self.norm:
            q, k = at.rms_norm(q, "gain_q", "k", "query.norm"), at.rms_norm(k, "gain_k", "k", "key.norm")
        if self.base is not None:
            turn = Rotary("k", "s", self.base)
            q, k = (at.build.add(turn, y, name=f"{y.node}.rotary")[0] for y in (q, k))
        with at.build.within(ATTENTION):
            mixed = self._mixed(at, q, k, v)
        return at.project(mixed, "W_o", "h q k", "c", "out_projection", self.out_bias)

    def _mixed(self, at: Scope, q: Value, k: Value, v: Value) -> Value:
        k, v = (at.build.add(Relabel("s", "t"), y, name=f"{y.node}.positions")[0] for y in (k, v))
        seen = Causal("s", "t") if self.window is None else Window("s", "t", self.window)
        scores = at.contract(q, k, "b h q s t", "scores", (seen,))
        scores = at.apply("scale", scores, factor=1 / sympy.sqrt(at.shape.d_h), name="scale")
        name = f"{at.prefix}probabilities"
        if self.sinks:
            p = at.build.add(SinkSoftmax("t"), scores, at.parameter("sinks", "h q"), name=name)[0]
        else:
            (p,) = at.build.add(Softmax("t"), scores, name=name)
        return at.contract(p, v, "b s h q k", "mix")
