"""Select: the last position along an axis (the reward head).  Pad: its transpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from graphs.axes import Axis, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


def _is_last(axis: Axis, place: Place) -> npt.NDArray[np.bool_]:
    return np.asarray(place.positions(axis) == place.value(axis.size) - 1)


@dataclass(frozen=True)
class Select(Op):
    """The entry at the last global position of ``axis``; a rank that does not hold it contributes zeros."""

    axis: str
    kind: ClassVar[str] = "select"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        x.axis(self.axis)
        return (x.without(self.axis),)

    def contracted(self, *operands: Tensor) -> tuple[Axis, ...]:
        return (operands[0].axis(self.axis),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        (x,), (tensor,) = arrays, types
        where = tensor.names.index(self.axis)
        return (np.compress(_is_last(tensor.axis(self.axis), place), x, axis=where).sum(axis=where),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        tensor = tape.operand_type(node, 0)
        return (None if dy is None else tape.apply(Pad(tensor.axis(self.axis), tensor.names.index(self.axis)), dy),)


@dataclass(frozen=True)
class Pad(Op):
    """Zeros along ``axis`` (inserted at ``position``) except at its last global position."""

    axis: Axis
    position: int
    kind: ClassVar[str] = "pad"

    def with_axes(self, axes: Mapping[str, Axis]) -> Pad:
        return replace(self, axis=axes.get(self.axis.name, self.axis))

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        return (Tensor((*x.axes[: self.position], self.axis, *x.axes[self.position :]), x.role, x.domain),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        last = _is_last(self.axis, place)
        shape = [1] * (arrays[0].ndim + 1)
        shape[self.position] = len(last)
        return (np.where(last.reshape(shape), np.expand_dims(arrays[0], self.position), 0.0),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        raise GraphError(f"{node.name}: pad occurs in backward graphs only and is not differentiated again")
