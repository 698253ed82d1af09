"""Dispatch: every token is copied to each of the members of a routed axis that serve it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Role, Tensor, TopK
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value
from graphs.ops.pointwise import align

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Dispatch(Op):
    """Operands: tokens, and the gates over ``axis`` of which a restriction says which are kept.

    The result has the tokens' axes and ``axis`` under that restriction: a copy where the gate is kept, zero elsewhere.
    The gates are read for where they are zero only, so they get no gradient.
    """

    axis: str
    kind: ClassVar[str] = "dispatch"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        tokens, gates = operands
        routing = tuple(r for r in gates.domain if isinstance(r, TopK) and r.axis == self.axis)
        if not routing or not set(gates.names) - {self.axis} <= set(tokens.names) or self.axis in tokens.names:
            raise GraphError(f"dispatch over {self.axis!r} needs gates that a route restricts; route the scores first")
        where = len(gates.names) - 1
        axes = (*tokens.axes[:where], gates.axis(self.axis), *tokens.axes[where:])
        return (Tensor(axes, Role.ACTIVATION, routing),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        out = self.infer(*types)[0]
        tokens, gates = (align(x, t, out) for x, t in zip(arrays, types, strict=True))
        return (np.where(gates != 0, tokens, 0.0),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        return (None if dy is None else tape.sum_to(dy, tape.operand_type(node, 0)), None)
