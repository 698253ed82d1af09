"""Relabel: the same data under another axis name, e.g. positions as queries ``s`` and as keys ``t``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from graphs.axes import Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Relabel(Op):
    """Axis ``old`` is called ``new`` from here on."""

    old: str
    new: str
    kind: ClassVar[str] = "relabel"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        x.axis(self.old)
        if self.new in x.names:
            raise GraphError(
                f"relabel {self.old} -> {self.new}: the operand already has {self.new!r}; choose another name"
            )
        axes = tuple(a.renamed(self.new) if a.name == self.old else a for a in x.axes)
        return (replace(x, axes=axes, domain=tuple(r.renamed(self.old, self.new) for r in x.domain)),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        return (arrays[0],)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        return (None if dy is None else tape.apply(Relabel(self.new, self.old), dy),)
