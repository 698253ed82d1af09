"""Slice: one entry along an axis.  Stack: its inverse.  In an unrolled graph they stand for a loop's stacked values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Axis, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Slice(Op):
    """The entry at global position ``index`` of ``axis``, which a rank must hold whole."""

    axis: str
    index: int
    kind: ClassVar[str] = "slice"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        x.axis(self.axis)
        return (x.without(self.axis),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        where = types[0].names.index(self.axis)
        if self.index >= arrays[0].shape[where]:
            raise GraphError(f"axis {self.axis!r} has no entry {self.index}; unroll as many times as the axis is long")
        return (np.take(arrays[0], self.index, axis=where),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        raise GraphError(f"{node.name}: differentiate the loop first and unroll the training graph")


@dataclass(frozen=True)
class Stack(Op):
    """All entries along a new leading ``axis``, in order of position."""

    axis: Axis
    kind: ClassVar[str] = "stack"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis.name,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        first, *rest = operands
        if any(t.axes != first.axes for t in rest):
            raise GraphError(f"entries stacked along {self.axis.name!r} have different axes; relabel them")
        return (first.prepend(self.axis),)

    def with_axes(self, axes: Mapping[str, Axis]) -> Stack:
        return replace(self, axis=axes.get(self.axis.name, self.axis))

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        if len(arrays) != place.value(self.axis.size):
            raise GraphError(
                f"axis {self.axis.name!r} has size {place.value(self.axis.size):g} but {len(arrays)} entries; "
                "unroll as many times as the axis is long"
            )
        return (np.stack(arrays),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        raise GraphError(f"{node.name}: differentiate the loop first and unroll the training graph")
