"""Roll: every entry along an axis moves on by some places, the last to the front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Tensor
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Roll(Op):
    """Entry i of the result is entry i - ``step`` of the operand; over a cut axis it is a permute among ranks."""

    axis: str
    step: int = 1
    kind: ClassVar[str] = "roll"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        x.axis(self.axis)
        return (x,)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        return (np.roll(arrays[0], self.step, axis=types[0].names.index(self.axis)),)

    def inverse(self) -> Roll:
        return Roll(self.axis, -self.step)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        return (None if dy is None else tape.apply(self.inverse(), dy),)
