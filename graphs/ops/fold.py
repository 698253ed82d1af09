"""Unfold: an axis seen as blocks of positions.  Fold: blocks of positions seen as one axis again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import sympy

from graphs.axes import Axis, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Blocks:
    """``whole`` is ``outer`` blocks of ``inner`` entries each; a rank that holds a part of it holds whole blocks.

    ``outer`` may keep the name of ``whole``.
    """

    whole: Axis
    outer: Axis
    inner: Axis

    def __post_init__(self) -> None:
        if sympy.simplify(self.outer.size * self.inner.size - self.whole.size) != 0:
            raise GraphError(
                f"{self.outer.size} blocks of {self.inner.size} are not the {self.whole.size} positions of axis "
                f"{self.whole.name!r}; change the size of a block"
            )
        if self.inner.splits or self.whole.splits != self.outer.splits:
            raise GraphError(f"axis {self.whole.name!r} is not cut like its blocks {self.outer.name!r}; cut it alike")

    def with_axes(self, axes: Mapping[str, Axis]) -> Blocks:
        """The same sizes, cut as the axes of these names are."""
        cut = (replace(a, splits=axes[a.name].splits) if a.name in axes else a for a in self._axes)
        return Blocks(*cut)

    @property
    def _axes(self) -> tuple[Axis, Axis, Axis]:
        return (self.whole, self.outer, self.inner)

    @staticmethod
    def of(axis: Axis, inner: Axis) -> Blocks:
        """The axis by groups, which keep its name, of these members."""
        return Blocks(axis, replace(axis, size=axis.size / inner.size), inner)

    @staticmethod
    def joined(outer: Axis, inner: Axis) -> Blocks:
        """Groups and their members as one axis that keeps the name of the groups."""
        return Blocks(replace(outer, size=outer.size * inner.size), outer, inner)

    def exchange(self, x: Tensor, old: tuple[Axis, ...], new: tuple[Axis, ...]) -> Tensor:
        """The type with adjacent axes ``old`` replaced by ``new``."""
        names = tuple(a.name for a in old)
        if any(r.axes & set(names) for r in x.domain):
            raise GraphError(f"a restriction speaks of {' and '.join(names)}, which are seen otherwise from here on")
        at = x.names.index(names[0]) if names[0] in x.names else -1
        if at < 0 or x.axes[at : at + len(old)] != old:
            raise GraphError(f"the operand over ({', '.join(x.names)}) has no {', '.join(names)} of these sizes")
        return replace(x, axes=(*x.axes[:at], *new, *x.axes[at + len(old) :]))


@dataclass(frozen=True)
class Unfold(Op):
    """Axis ``blocks.whole`` becomes the axes ``blocks.outer`` and ``blocks.inner``."""

    blocks: Blocks
    kind: ClassVar[str] = "unfold"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        b = self.blocks
        return (b.exchange(operands[0], (b.whole,), (b.outer, b.inner)),)

    def with_axes(self, axes: Mapping[str, Axis]) -> Unfold:
        return Unfold(self.blocks.with_axes(axes))

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        return (_reshaped(self, arrays[0], types[0], place),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        return (None if dy is None else tape.apply(Fold(self.blocks), dy),)


@dataclass(frozen=True)
class Fold(Op):
    """Axes ``blocks.outer`` and ``blocks.inner`` become the axis ``blocks.whole``."""

    blocks: Blocks
    kind: ClassVar[str] = "fold"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        b = self.blocks
        return (b.exchange(operands[0], (b.outer, b.inner), (b.whole,)),)

    def with_axes(self, axes: Mapping[str, Axis]) -> Fold:
        return Fold(self.blocks.with_axes(axes))

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        return (_reshaped(self, arrays[0], types[0], place),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        return (None if dy is None else tape.apply(Unfold(self.blocks), dy),)


def _reshaped(op: Op, array: Array, tensor: Tensor, place: Place) -> Array:
    (result,) = op.infer(tensor)
    return array.reshape([len(place.positions(a)) for a in result.axes])
