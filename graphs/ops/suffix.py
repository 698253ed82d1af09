"""Suffix: the last positions along an axis, as where only a response's logits are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import sympy

from graphs.axes import Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.backward import Tape


@dataclass(frozen=True)
class Suffix(Op):
    """The last ``count`` entries along ``axis``, which has that size from here on; at least one, at most all."""

    axis: str
    count: sympy.Expr
    kind: ClassVar[str] = "suffix"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        if any(self.axis in r.axes for r in x.domain):
            raise GraphError(f"the last entries along {self.axis!r} of restricted data are no rectangle; cut it before")
        cut = replace(x.axis(self.axis), size=self.count)
        return (replace(x, axes=tuple(cut if a.name == self.axis else a for a in x.axes)),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        (x,) = arrays
        where, count = types[0].names.index(self.axis), int(place.value(self.count))
        size = x.shape[where]
        if not 1 <= count <= size:
            raise GraphError(f"axis {self.axis!r} has {size} entries, so its last {count} cannot be kept; keep fewer")
        return (x[(slice(None),) * where + (slice(size - count, None),)],)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        raise GraphError(f"{node.name}: a pass over some rows of the head is not differentiated; train on all rows")
