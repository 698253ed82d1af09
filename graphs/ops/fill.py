"""Fill: a routed tensor written out whole, with the zeros of what is not kept, as a dense matrix product wants it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from graphs.axes import Tensor, TopK
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Fill(Op):
    """The operand, which is zero where a route along ``axis`` keeps nothing, without that restriction."""

    axis: str
    kind: ClassVar[str] = "fill"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        x.axis(self.axis)
        kept = tuple(r for r in x.domain if not (isinstance(r, TopK) and r.axis == self.axis))
        return (replace(x, domain=kept),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        return (arrays[0],)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        return (cotangents[0],)
