"""Root-mean-square normalisation along one axis with a gain (Zhang and Sennrich 2019): a macro that keeps its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Role, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Builder, Node, Op, Place, Value
from graphs.ops.pointwise import EPSILON, Pointwise
from graphs.ops.reduction import Reduction

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class RMSNorm(Op):
    """Operands x and gain; results y = gain * x * r and r, the reciprocal root of the mean square of x."""

    axis: str
    kind: ClassVar[str] = "rms_norm"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        x, gain = operands
        if gain.axes != (x.axis(self.axis),):
            raise GraphError(
                f"norm over {self.axis!r} needs a gain over that axis alone, not ({', '.join(gain.names)})"
            )
        return (x.with_role(Role.ACTIVATION), x.without(self.axis).with_role(Role.STATISTIC))

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        x, gain = arrays
        where = types[0].names.index(self.axis)
        r = 1 / np.sqrt((x**2).mean(axis=where, keepdims=True) + EPSILON)
        shape = [-1 if n == self.axis else 1 for n in types[0].names]
        return (x * r * gain.reshape(shape), r.squeeze(where))

    def expand(self, build: Builder, operands: Sequence[Value]) -> Sequence[Value]:
        x, gain = operands
        share = 1 / build.type(x).axis(self.axis).size
        (square,) = build.add(Pointwise("square"), x, name="rms.square")
        (total,) = build.add(Reduction("sum", (self.axis,)), square, name="rms.sum")
        (mean,) = build.add(Pointwise("scale", share), total, name="rms.mean")
        (r,) = build.add(Pointwise("rsqrt"), mean, name="rms.rsqrt", role=Role.STATISTIC)
        (unit,) = build.add(Pointwise("multiply"), x, r, name="rms.scale")
        return (build.add(Pointwise("multiply"), unit, gain, name="rms.gain")[0], r)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        dy = cotangents[0]
        if dy is None or cotangents[1] is not None:
            raise GraphError(f"{node.name}: only the normalised result may be differentiated")
        x, gain, r = tape.operand(node, 0), tape.operand(node, 1), tape.output(node, 1)
        share = 1 / tape.operand_type(node, 0).axis(self.axis).size
        unit = tape.pointwise("multiply", x, r)
        dgain = tape.sum_to(tape.pointwise("multiply", dy, unit), tape.operand_type(node, 1))
        g = tape.pointwise("multiply", dy, gain)
        slope = tape.apply(Reduction("sum", (self.axis,)), tape.pointwise("multiply", g, unit))
        along = tape.pointwise("multiply", unit, tape.pointwise("scale", slope, factor=share))
        return (tape.pointwise("multiply", tape.pointwise("subtract", g, along), r), dgain)
