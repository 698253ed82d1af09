"""Group: the entries of an axis by groups, as two axes, of which the groups keep the name.  Ungroup: its inverse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from graphs.axes import Axis, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.backward import Tape


@dataclass(frozen=True)
class Group(Op):
    """Every ``inner.size`` consecutive entries of ``axis`` are a group.

    ``axis`` keeps its name for the groups; ``inner``, the members, follows it and must not be cut.
    """

    axis: str
    inner: Axis
    kind: ClassVar[str] = "group"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.inner.name,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        unrestricted(x, self.axis)
        where, axis = x.names.index(self.axis), x.axis(self.axis)
        groups = replace(axis, size=axis.size / self.inner.size)
        return (replace(x, axes=(*x.axes[:where], groups, self.inner, *x.axes[where + 1 :])),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        (result,) = self.infer(*types)
        return (arrays[0].reshape([len(place.positions(a)) for a in result.axes]),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        return (None if dy is None else tape.apply(Ungroup(self.axis, self.inner.name), dy),)


@dataclass(frozen=True)
class Ungroup(Op):
    """The axes ``axis`` and ``inner``, which follows it, as one called ``axis``."""

    axis: str
    inner: str
    kind: ClassVar[str] = "ungroup"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.inner,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        unrestricted(x, self.axis, self.inner)
        groups, members = x.axis(self.axis), x.axis(self.inner)
        if x.names.index(self.inner) != x.names.index(self.axis) + 1:
            raise GraphError(f"axis {self.inner!r} does not follow {self.axis!r}; broadcast to the order that fits")
        one = replace(groups, size=groups.size * members.size)
        return (replace(x, axes=tuple(one if a == groups else a for a in x.axes if a != members)),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        (result,) = self.infer(*types)
        return (arrays[0].reshape([len(place.positions(a)) for a in result.axes]),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        inner = tape.operand_type(node, 0).axis(self.inner)
        return (None if dy is None else tape.apply(Group(self.axis, inner), dy),)


def unrestricted(x: Tensor, *names: str) -> None:
    if any(r.axes & set(names) for r in x.domain):
        raise GraphError(f"axis {names[0]!r} is restricted, so its entries are no rows of one length; ungroup it first")
