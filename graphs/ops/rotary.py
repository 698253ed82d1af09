"""Rotary positions (Su et al. 2021): channels i and i + n/2 of n are turned by an angle that the position says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Rotary(Op):
    """The pair of channel i of ``axis`` is turned by position * base^(-2i/n), or ``back`` by as much.

    Positions are those along ``along``; their sines and cosines are tables, not arithmetic on data.
    """

    axis: str
    along: str
    base: float
    back: bool = False
    kind: ClassVar[str] = "rotary"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        x.axis(self.along)
        if x.axis(self.axis).size.is_odd:
            raise GraphError(f"axis {self.axis!r} has an odd number of channels, which form no pairs; make it even")
        return (x,)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        (x,), (tensor,) = arrays, types
        channel, position = tensor.names.index(self.axis), tensor.names.index(self.along)
        first, second = np.split(x, 2, axis=channel)
        shape = [1] * x.ndim
        at_channel, at_position = list(shape), list(shape)
        at_channel[channel], at_position[position] = first.shape[channel], x.shape[position]
        speed = self.base ** (-np.arange(first.shape[channel]) / first.shape[channel])
        angle = place.positions(tensor.axis(self.along)).reshape(at_position) * speed.reshape(at_channel)
        cos, sin = np.cos(angle), np.sin(angle) * (-1 if self.back else 1)
        return (np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=channel),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        return (None if dy is None else tape.apply(replace(self, back=not self.back), dy),)
