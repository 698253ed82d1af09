"""Write: new entries put into a cache, behind those it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import sympy

from graphs.axes import Prefix, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Write(Op):
    """Operands cache and entries: the entries along ``source`` come to lie along ``axis`` from ``start`` on.

    ``start`` is 0 or what the cache holds; the result holds ``start`` and the new entries, the rest has no meaning yet.
    """

    axis: str
    source: str
    start: sympy.Expr
    kind: ClassVar[str] = "write"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis, self.source)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        cache, entries = operands
        cache.axis(self.axis)
        source = entries.axis(self.source)
        if entries.axes != tuple(source if a.name == self.axis else a for a in cache.axes):
            raise GraphError(
                f"entries over ({', '.join(entries.names)}) do not fit a cache over ({', '.join(cache.names)}); "
                f"give them its axes, with {self.source!r} for {self.axis!r}"
            )
        held = next((r.length for r in cache.domain if isinstance(r, Prefix) and r.axis == self.axis), sympy.Integer(0))
        if self.start not in (0, held):
            raise GraphError(f"entries written from {self.start} on do not follow the {held} that the cache holds")
        kept = tuple(r for r in cache.domain if self.axis not in r.axes)
        return (replace(cache, domain=(*kept, Prefix(self.axis, self.start + source.size))),)

    def at(self, index: sympy.Symbol, value: sympy.Expr) -> Write:
        return replace(self, start=self.start.subs(index, value))

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        cache, entries = arrays
        where = types[0].names.index(self.axis)
        first = int(place.value(self.start))
        last = first + entries.shape[where]
        if last > cache.shape[where]:
            raise GraphError(
                f"a cache of {cache.shape[where]} entries cannot hold {last}; give axis {self.axis!r} more"
            )
        out = cache.copy()
        out[(slice(None),) * where + (slice(first, last),)] = entries
        return (out,)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        raise GraphError(f"{node.name}: generation is not differentiated; train on a forward pass over its tokens")
