"""Layer normalisation along one axis with a gain: a macro that keeps its input, mean and reciprocal deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import sympy

from graphs.axes import Role, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Builder, Node, Op, Place, Value
from graphs.ops.pointwise import EPSILON, Pointwise
from graphs.ops.reduction import Reduction

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class LayerNorm(Op):
    """Operands x and gain; results y = gain * (x - mean) * rstd, mean and rstd."""

    axis: str
    kind: ClassVar[str] = "norm"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        x, gain = operands
        if gain.axes != (x.axis(self.axis),):
            raise GraphError(
                f"norm over {self.axis!r} needs a gain over that axis alone, not ({', '.join(gain.names)})"
            )
        stat = x.without(self.axis).with_role(Role.STATISTIC)
        return (x.with_role(Role.ACTIVATION), stat, stat)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        x, gain = arrays
        where = types[0].names.index(self.axis)
        mean = x.mean(axis=where, keepdims=True)
        rstd = 1 / np.sqrt(((x - mean) ** 2).mean(axis=where, keepdims=True) + EPSILON)
        shape = [-1 if n == self.axis else 1 for n in types[0].names]
        return ((x - mean) * rstd * gain.reshape(shape), mean.squeeze(where), rstd.squeeze(where))

    def expand(self, build: Builder, operands: Sequence[Value]) -> Sequence[Value]:
        x, gain = operands
        share = 1 / build.type(x).axis(self.axis).size
        mean = self._mean(build, x, share)
        (centred,) = build.add(Pointwise("subtract"), x, mean, name="norm.centre")
        (square,) = build.add(Pointwise("square"), centred, name="norm.square")
        (rstd,) = build.add(
            Pointwise("rsqrt"), self._mean(build, square, share), name="norm.rsqrt", role=Role.STATISTIC
        )
        (unit,) = build.add(Pointwise("multiply"), centred, rstd, name="norm.scale")
        (y,) = build.add(Pointwise("multiply"), unit, gain, name="norm.gain")
        return (y, mean, rstd)

    def _mean(self, build: Builder, x: Value, share: sympy.Expr) -> Value:
        (total,) = build.add(Reduction("sum", (self.axis,)), x, name="norm.sum")
        return build.add(Pointwise("scale", share), total, name="norm.mean", role=Role.STATISTIC)[0]

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        dy = cotangents[0]
        if dy is None or any(c is not None for c in cotangents[1:]):
            raise GraphError(f"{node.name}: only the normalised result may be differentiated")
        x, gain, mean, rstd = (*(tape.operand(node, i) for i in (0, 1)), *(tape.output(node, i) for i in (1, 2)))
        share = 1 / tape.operand_type(node, 0).axis(self.axis).size
        unit = tape.pointwise("multiply", tape.pointwise("subtract", x, mean), rstd)
        dgain = tape.sum_to(tape.pointwise("multiply", dy, unit), tape.operand_type(node, 1))
        g = tape.pointwise("multiply", dy, gain)
        over = Reduction("sum", (self.axis,))
        bias = tape.pointwise("scale", tape.apply(over, g), factor=share)
        slope = tape.pointwise("scale", tape.apply(over, tape.pointwise("multiply", g, unit)), factor=share)
        inner = tape.pointwise("subtract", g, bias)
        inner = tape.pointwise("subtract", inner, tape.pointwise("multiply", unit, slope))
        return (tape.pointwise("multiply", inner, rstd), dgain)
