"""Constant: one number everywhere.  Broadcast: a value repeated along axes it does not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Axis, Role, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value
from graphs.ops.pointwise import align

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Constant(Op):
    """A scalar."""

    number: float
    kind: ClassVar[str] = "constant"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        return (Tensor(()),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        return (np.asarray(self.number),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        return ()


@dataclass(frozen=True)
class Broadcast(Op):
    """The operand along ``axes``, which contain its own."""

    axes: tuple[Axis, ...]
    kind: ClassVar[str] = "broadcast"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        if not set(x.axes) <= set(self.axes):
            raise GraphError(f"broadcast to ({', '.join(a.name for a in self.axes)}) loses an axis of its operand")
        return (Tensor(self.axes, Role.ACTIVATION, x.domain),)

    def with_axes(self, axes: Mapping[str, Axis]) -> Broadcast:
        return replace(self, axes=tuple(axes.get(a.name, a) for a in self.axes))

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        shape = [len(place.positions(a)) for a in self.axes]
        return (np.broadcast_to(align(arrays[0], types[0], Tensor(self.axes)), shape).copy(),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        return (None if dy is None else tape.sum_to(dy, tape.operand_type(node, 0)),)
