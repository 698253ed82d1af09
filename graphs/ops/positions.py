"""Positions: the global positions along an axis, as index data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Axis, Role, Tensor
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Positions(Op):
    """0, 1, 2, ... along ``axis``."""

    axis: Axis
    kind: ClassVar[str] = "positions"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        return (Tensor((self.axis,), Role.INDEX),)

    def with_axes(self, axes: Mapping[str, Axis]) -> Positions:
        return Positions(axes.get(self.axis.name, self.axis))

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        return (place.positions(self.axis).astype(np.float64),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        return ()
