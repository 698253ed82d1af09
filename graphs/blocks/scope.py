"""A place in a graph under construction at which parts of a model declare the parameters that they use."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from graphs.axes import Restriction, Role
from graphs.ir import Builder, Value
from graphs.ops.contraction import Contraction
from graphs.ops.pointwise import ONE, Pointwise
from graphs.ops.rms_norm import RMSNorm
from graphs.sizes import Shape


@dataclass(frozen=True)
class Scope:
    """``prefix`` keeps apart the parameters and occurrences of several layers in one graph."""

    build: Builder
    shape: Shape
    prefix: str = ""

    def within(self, prefix: str) -> Scope:
        return replace(self, prefix=f"{self.prefix}{prefix}")

    def parameter(self, name: str, axes: str) -> Value:
        """A parameter over the axes, declared where it is first used; frozen where the model is adapted."""
        return self._declared(name, axes, Role.PARAMETER if self.shape.rank is None else Role.FROZEN)

    def fixed(self, name: str, axes: str) -> Value:
        """A parameter that is not trained."""
        return self._declared(name, axes, Role.FROZEN)

    def _declared(self, name: str, axes: str, role: Role) -> Value:
        label = f"{self.prefix}{name}"
        if label not in self.build.inputs:
            self.build.input(label, self.shape.tensor(axes, role))
        return Value(label)

    def contract(self, x: Value, y: Value, out: str, name: str, domain: tuple[Restriction, ...] = ()) -> Value:
        return self.build.add(Contraction(tuple(out.split()), domain), x, y, name=f"{self.prefix}{name}")[0]

    def apply(self, fn: str, *values: Value, name: str, factor: sympy.Expr = ONE) -> Value:
        return self.build.add(Pointwise(fn, factor), *values, name=f"{self.prefix}{name}")[0]

    def project(self, x: Value, weight: str, over: str, onto: str, name: str, bias: bool = False) -> Value:
        """x times the parameter ``weight`` [over, onto]: the axes ``over`` give way to ``onto``; and a bias over these.

        The bias of ``W_q`` is ``b_q``.  Where the model is adapted (LoRA, Hu et al. 2021), the product of two narrow
        parameters, ``W_q.down`` and ``W_q.up``, is added to the weight.
        """
        kept = [n for n in self.build.type(x).names if n not in over.split()]
        out = f"{' '.join(kept)} {onto}"
        y = self.contract(x, self.parameter(weight, f"{over} {onto}"), out, name)
        if self.shape.rank is not None:
            down = self._declared(f"{weight}.down", f"{over} rank", Role.PARAMETER)
            up = self._declared(f"{weight}.up", f"rank {onto}", Role.PARAMETER)
            low = self.contract(x, down, f"{' '.join(kept)} rank", f"{name}.down")
            y = self.apply("add", y, self.contract(low, up, out, f"{name}.up"), name=f"{name}.adapted")
        if not bias:
            return y
        return self.apply("add", y, self.parameter(f"b{weight.removeprefix('W')}", onto), name=f"{name}.bias")

    def rms_norm(self, x: Value, gain: str, axis: str, name: str) -> Value:
        """x over the root of its mean square along the axis, times a gain."""
        return self.build.add(RMSNorm(axis), x, self.parameter(gain, axis), name=f"{self.prefix}{name}")[0]
