"""Route: keep the top-k scores along an axis for each setting of the others; the rest become minus infinity.

A second operand, other scores over the same axes, is what they are chosen by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import sympy

from graphs.axes import Tensor, TopK
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value
from graphs.ops.fill import Fill

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Route(Op):
    """The result is restricted to ``active`` entries along ``axis``; nothing flows back to what they are chosen by.

    The cotangent of the scores is zero for the rest; ``dense``: these zeros are written out, as a dense matrix product
    with the scores' operands wants them.
    """

    axis: str
    active: sympy.Expr
    dense: bool = False
    kind: ClassVar[str] = "route"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        scores, *choice = operands
        scores.axis(self.axis)
        if len(choice) > 1 or any(c.axes != scores.axes for c in choice):
            raise GraphError(f"routing along {self.axis!r} chooses by scores over the same axes; bring them to these")
        per = tuple(n for n in scores.names if n != self.axis)
        return (replace(scores, domain=(*scores.domain, TopK(self.axis, per, self.active))),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        where = types[0].names.index(self.axis)
        ranks = np.argsort(np.argsort(-arrays[-1], axis=where, kind="stable"), axis=where, kind="stable")
        return (np.where(ranks < int(place.value(self.active)), arrays[0], -np.inf),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        if dy is None:
            return tuple(None for _ in node.operands)
        kept = tape.pointwise("keep_finite", dy, tape.output(node, 0))
        slope = tape.apply(Fill(self.axis), kept) if self.dense else kept
        return (slope, *(None for _ in node.operands[1:]))
