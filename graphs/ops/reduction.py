"""Reduction: sum or maximum of one tensor over named axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Axis, Role, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value
from graphs.ops.constant import Broadcast
from graphs.ops.contraction import meaningful

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Reduction(Op):
    """``fn`` is sum or max; entries that its type declares meaningless are left out."""

    fn: str
    over: tuple[str, ...]
    kind: ClassVar[str] = "reduction"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        if self.fn not in ("sum", "max"):
            raise GraphError(f"unknown reduction {self.fn!r}; use sum or max")
        for name in self.over:
            x.axis(name)
        return (x.without(*self.over).with_role(Role.ACTIVATION),)

    def contracted(self, operand: Tensor) -> tuple[Axis, ...]:
        return tuple(operand.axis(n) for n in self.over)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        (x,), (tensor,) = arrays, types
        where = tuple(tensor.names.index(n) for n in self.over)
        if self.fn == "sum":
            return (np.sum(meaningful(x, tensor, place, 0.0), axis=where),)
        return (np.max(meaningful(x, tensor, place, -np.inf), axis=where),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        if self.fn != "sum":
            raise GraphError(f"{node.name}: a maximum has no backward rule of its own; use the softmax macro")
        return (None if dy is None else tape.apply(Broadcast(tape.operand_type(node, 0).axes), dy),)
