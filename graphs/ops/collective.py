"""Collectives: the exchange among the ranks of one mesh dimension.  They appear only in partitioned graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from graphs.axes import Axis, Split, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape

REDUCING = ("all_reduce", "reduce_scatter")


@dataclass(frozen=True)
class Collective(Op):
    """``action`` over ``mesh``.

    all_reduce (``fn`` sum or max); reduce_scatter (over ``axis``); all_gather (of ``axis``); shard (keep one's own part
    of ``axis``: free, no exchange); all_to_all (cut ``axis`` instead of ``source``); send (to the pipeline stage that
    the occurrence is bound to); permute (to the rank ``step`` places on, the last to the first).  ``layout`` is the
    split's.  An all_reduce may go over ``others`` too, at once: its group are all ranks of these dimensions.
    """

    action: str
    mesh: str
    axis: str | None = None
    fn: str = "sum"
    layout: str = "contiguous"
    source: str | None = None
    step: int = 1
    others: tuple[str, ...] = ()
    kind: ClassVar[str] = "collective"

    @property
    def meshes(self) -> tuple[str, ...]:
        """The mesh dimensions whose ranks form a group."""
        return (self.mesh, *self.others)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (x,) = operands
        if self.action in ("all_reduce", "send", "permute"):
            return (x,)
        if self.axis is None:
            raise GraphError(f"{self.action} over {self.mesh} needs an axis")
        x.axis(self.axis)
        return (replace(x, axes=tuple(self._resplit(a) for a in x.axes)),)

    def _resplit(self, axis: Axis) -> Axis:
        """Splits are added and removed innermost first, so that what a rank holds stays a part of what it held."""
        split = Split(self.mesh, self.layout)
        if axis.name == (self.axis if self.action == "all_gather" else self.source):
            if axis.splits[-1:] != (split,):
                raise GraphError(f"{self.action} over {self.mesh}: it is not the innermost cut of axis {axis.name!r}")
            return replace(axis, splits=axis.splits[:-1])
        return replace(axis, splits=(*axis.splits, split)) if axis.name == self.axis else axis

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        raise GraphError("a collective is run over all ranks by graphs/execute.py, not on one")

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        raise GraphError(f"{node.name}: partition the training graph instead of differentiating a partitioned one")
