"""Sample: choose one entry along an axis, the largest or one drawn by its probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Role, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Sample(Op):
    """The position along ``axis`` (index data) of the largest score: greedy choice, the first of equals.

    With a second operand, uniform numbers in [0, 1) over the other axes, the first one's entries are weights, and the
    choice is the first at which their partial sums exceed that share of the whole: a draw that can be repeated.
    """

    axis: str
    kind: ClassVar[str] = "sample"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        scores, *uniform = operands
        scores.axis(self.axis)
        rest = scores.without(self.axis)
        if len(uniform) > 1 or any(u.axes != rest.axes for u in uniform):
            raise GraphError(
                f"sampling along {self.axis!r} needs one uniform number for each setting of the other axes"
            )
        return (rest.with_role(Role.INDEX),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        where = types[0].names.index(self.axis)
        if len(arrays) == 1:
            return (np.argmax(arrays[0], axis=where).astype(np.float64),)
        sums = np.cumsum(arrays[0], axis=where)
        last = arrays[0].shape[where] - 1
        below = sums <= np.expand_dims(arrays[1], where) * np.take(sums, [last], axis=where)
        return (np.minimum(below.sum(axis=where), last).astype(np.float64),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        return tuple(None for _ in node.operands)
