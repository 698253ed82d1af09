"""Excerpt: consecutive entries along an axis, as an axis of their own.  Insert: its transpose, zeros around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import sympy

from graphs.axes import Axis, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Excerpt(Op):
    """The entries along ``source`` from position ``start`` on, as many as ``axis`` is long, lie along ``axis``."""

    source: str
    axis: Axis
    start: sympy.Expr
    kind: ClassVar[str] = "excerpt"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.source, self.axis.name)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        return (exchanged(operands[0], self.source, self.axis),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        (x,), where = arrays, types[0].names.index(self.source)
        return (x[along(where, inside(self.start, self.axis, types[0].axis(self.source), place))],)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        source = tape.operand_type(node, 0).axis(self.source)
        return (None if dy is None else tape.apply(Insert(self.axis.name, source, self.start), dy),)


@dataclass(frozen=True)
class Insert(Op):
    """The entries along ``source`` come to lie along ``axis`` from position ``start`` on; zeros elsewhere."""

    source: str
    axis: Axis
    start: sympy.Expr
    kind: ClassVar[str] = "insert"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.source, self.axis.name)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        return (exchanged(operands[0], self.source, self.axis),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        (x,), where = arrays, types[0].names.index(self.source)
        out = np.zeros((*x.shape[:where], len(place.positions(self.axis)), *x.shape[where + 1 :]))
        out[along(where, inside(self.start, types[0].axis(self.source), self.axis, place))] = x
        return (out,)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        source = tape.operand_type(node, 0).axis(self.source)
        return (None if dy is None else tape.apply(Excerpt(self.axis.name, source, self.start), dy),)


def exchanged(x: Tensor, source: str, axis: Axis) -> Tensor:
    """The type with ``axis`` in the place of the one called ``source``."""
    if any(source in r.axes for r in x.domain):
        raise GraphError(f"the entries along {source!r} are restricted, so a part of them is no rectangle; cut before")
    x.axis(source)
    return replace(x, axes=tuple(axis if a.name == source else a for a in x.axes))


def inside(start: sympy.Expr, part: Axis, whole: Axis, place: Place) -> slice:
    """Where the entries of ``part`` lie in ``whole``; GraphError where they do not all do."""
    first = int(place.value(start))
    last, count = first + len(place.positions(part)), len(place.positions(whole))
    if first < 0 or last > count:
        raise GraphError(
            f"axis {whole.name!r} has {count} entries, so {first} to {last} are not within; change start or size"
        )
    return slice(first, last)


def along(where: int, entries: slice) -> tuple[slice, ...]:
    return (slice(None),) * where + (entries,)
