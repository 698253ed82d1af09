"""Softmax along one axis: a macro of primitives with one vector-Jacobian rule for the whole (it keeps its result)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Role, Tensor
from graphs.ir import Array, Builder, Node, Op, Place, Value
from graphs.ops.contraction import meaningful
from graphs.ops.pointwise import Pointwise
from graphs.ops.reduction import Reduction

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Softmax(Op):
    """Entries outside the operand's restrictions get probability zero."""

    axis: str
    kind: ClassVar[str] = "softmax"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        x.axis(self.axis)
        return (x.with_role(Role.ACTIVATION),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        (x,), (tensor,) = arrays, types
        where = tensor.names.index(self.axis)
        x = meaningful(x, tensor, place, -np.inf)
        e = np.exp(x - x.max(axis=where, keepdims=True))
        return (e / e.sum(axis=where, keepdims=True),)

    def expand(self, build: Builder, operands: Sequence[Value]) -> Sequence[Value]:
        (x,) = operands
        (top,) = build.add(Reduction("max", (self.axis,)), x, name="softmax.max")
        (shifted,) = build.add(Pointwise("subtract"), x, top, name="softmax.shift")
        (e,) = build.add(MaskedExp(), shifted, name="softmax.exp")
        (z,) = build.add(Reduction("sum", (self.axis,)), e, name="softmax.sum")
        return build.add(Pointwise("divide"), e, z, name="softmax.divide")

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        if dy is None:
            return (None,)
        y = tape.output(node, 0)
        inner = tape.apply(Reduction("sum", (self.axis,)), tape.pointwise("multiply", dy, y))
        return (tape.pointwise("multiply", y, tape.pointwise("subtract", dy, inner)),)


@dataclass(frozen=True)
class MaskedExp(Op):
    """exp inside the operand's restrictions, zero outside."""

    kind: ClassVar[str] = "masked_exp"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        return (operands[0].with_role(Role.ACTIVATION),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        (x,), (tensor,) = arrays, types
        x = meaningful(x, tensor, place, -np.inf)
        return (np.exp(x),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        return (None if dy is None else tape.pointwise("multiply", dy, tape.output(node, 0)),)
