"""Lookup: rows of a table by index (embedding).  Scatter: its transpose, accumulating rows back into a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Axis, Role, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Lookup(Op):
    """``table[.., axis, ..]`` at ``ids``: the ids' axes replace ``axis``.  A rank's missing rows give zeros."""

    axis: str
    kind: ClassVar[str] = "lookup"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        table, ids = operands
        table.axis(self.axis)
        if ids.role is not Role.INDEX:
            raise GraphError("lookup needs index data as its second operand; give ids the role INDEX")
        return (Tensor((*ids.axes, *table.without(self.axis).axes)),)

    def contracted(self, *operands: Tensor) -> tuple[Axis, ...]:
        return (operands[0].axis(self.axis),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        table, ids = arrays
        rows = np.moveaxis(table, types[0].names.index(self.axis), 0)
        here = place.positions(types[0].axis(self.axis))
        slot = np.searchsorted(here, ids.astype(np.int64)).clip(0, len(here) - 1)
        found = here[slot] == ids
        return (np.where(found.reshape(found.shape + (1,) * (rows.ndim - 1)), rows[slot], 0.0),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        if dy is None:
            return (None, None)
        table = tape.operand_type(node, 0)
        return (tape.apply(Scatter(table.axes), dy, tape.operand(node, 1), role=tape.gradient_role(table)), None)


@dataclass(frozen=True)
class Scatter(Op):
    """Add the rows of a tensor into a zero table over ``table`` at ids; sums over the ids' axes."""

    table: tuple[Axis, ...]
    kind: ClassVar[str] = "scatter"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        return (Tensor(self.table),)

    def with_axes(self, axes: Mapping[str, Axis]) -> Scatter:
        return Scatter(tuple(axes.get(a.name, a) for a in self.table))

    def contracted(self, *operands: Tensor) -> tuple[Axis, ...]:
        return operands[1].axes

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        rows, ids = arrays
        (axis,) = (a for a in self.table if a.name not in types[0].names)
        here = place.positions(axis)
        flat = ids.astype(np.int64).ravel()
        values = rows.reshape((flat.size, *rows.shape[ids.ndim :]))
        slot = np.searchsorted(here, flat).clip(0, len(here) - 1)
        found = here[slot] == flat
        out = np.zeros((len(here), *values.shape[1:]))
        np.add.at(out, slot[found], values[found])
        return (np.moveaxis(out, 0, [a.name for a in self.table].index(axis.name)),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        raise GraphError(f"{node.name}: scatter occurs in backward graphs only and is not differentiated again")
