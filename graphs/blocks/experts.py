"""Mixtures of gated experts: softmax or sigmoid router, top-k, shared experts.

Every expert is written over the whole token set, restricted to those that the router keeps (`graphs.blocks.mixture`).
Their results are weighted and summed point by point, which is no matrix product; the router is a dense one, backward
too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from graphs.axes import restrictions_on
from graphs.blocks.gated import Gated
from graphs.blocks.scope import Scope
from graphs.ir import Value
from graphs.ops.groups import Groups
from graphs.ops.reduction import Reduction
from graphs.ops.relabel import Relabel
from graphs.ops.route import Route
from graphs.ops.softmax import Softmax

SOFTMAX, SIGMOID = "softmax", "sigmoid"


@dataclass(frozen=True)
class Experts:
    """One kind of it.

    Gates are normalised over the kept experts: the softmax of their scores, or each one's sigmoid over the sum of them.
    ``scale`` multiplies what the experts give; ``bias`` is that of the router and of the experts; ``shared`` experts
    serve every token, as one gated layer that is as wide as all of them.  ``clamped``: gates and up projections are
    kept within limits and one is added to the latter, as in gpt-oss.

    ``balanced``: experts are chosen by their sigmoids plus a bias, which is adjusted and not trained, so that all serve
    equally many tokens; where there are ``groups``, they are those of ``kept_groups`` of them.
    """

    gates: str = SOFTMAX
    scale: sympy.Expr = sympy.Integer(1)  # noqa: RUF009 - a number is a value
    bias: bool = False
    shared: bool = False
    clamped: bool = False
    balanced: bool = False
    groups: int = 1
    kept_groups: int = 1

    def build(self, at: Scope, x: Value) -> Value:
        """x[b,s,c] -> [b,s,c]."""
        routed = self._routed(at, x)
        if not self.shared:
            return routed
        shape = replace(at.shape, d_ff=at.shape.d_s)
        beside = Gated().build(replace(at.within("shared."), shape=shape), x)
        return at.apply("add", routed, beside, name="experts.sum")

    def _routed(self, at: Scope, x: Value) -> Value:
        gates = self._gates(at, x)
        domain = restrictions_on(frozenset("bse"), at.build.type(gates).domain)

        def product(y: Value, weight: str, axes: str, out: str, name: str) -> Value:
            z = at.contract(y, at.parameter(weight, axes), out, name, domain)
            bias = f"b{weight.removeprefix('W')}"
            own = f"e {out.rsplit(maxsplit=1)[-1]}"
            return at.apply("add", z, at.parameter(bias, own), name=f"{name}.bias") if self.bias else z

        gate = product(x, "W_gate", "e c g", "b s e g", "expert_gate")
        up = product(x, "W_up", "e c g", "b s e g", "expert_up")
        if self.clamped:
            up = at.apply("clamped_next", up, name="expert_clamped")
        gate = at.apply("clamped_swish" if self.clamped else "silu", gate, name="expert_silu")
        a = at.apply("multiply", gate, up, name="expert_gated")
        y = product(a, "W_down", "e g c", "b s e c", "expert_down")
        weighted = at.apply("multiply", y, gates, name="expert_weighted")
        return at.build.add(Reduction("sum", ("e",)), weighted, name=f"{at.prefix}combine")[0]

    def _gates(self, at: Scope, x: Value) -> Value:
        """x[b,s,c] -> [b,s,e]: zero for experts that are not kept."""
        scores = at.contract(x, at.parameter("W_r", "c r"), "b s r", "router")
        if self.bias:
            scores = at.apply("add", scores, at.parameter("b_r", "r"), name="router.bias")
        if self.gates == SIGMOID:  # sigmoids over their sum are the softmax of their logs
            scores = at.apply("log_sigmoid", scores, name="router.log_sigmoid")
        choice = [self._choice(at, scores)] if self.balanced else []
        (kept,) = at.build.add(Route("r", at.shape.E_a, dense=True), scores, *choice, name=f"{at.prefix}top_k")
        (gates,) = at.build.add(Softmax("r"), kept, name=f"{at.prefix}gates")
        if self.scale != 1:
            gates = at.apply("scale", gates, factor=self.scale, name="gates.scale")
        return at.build.add(Relabel("r", "e"), gates, name=f"{at.prefix}gates.experts")[0]

    def _choice(self, at: Scope, logs: Value) -> Value:
        """What experts are chosen by [b,s,r], from the logs of their sigmoids."""
        choice = at.apply("exp", logs, name="router.sigmoid")
        choice = at.apply("add", choice, at.fixed("balance", "r"), name="router.balanced")
        if self.kept_groups == self.groups:
            return choice
        return at.build.add(Groups("r", self.groups, self.kept_groups), choice, name=f"{at.prefix}groups")[0]
