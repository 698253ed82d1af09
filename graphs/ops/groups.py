"""Groups: of scores along an axis keep those of the best groups; the rest become minus infinity.

As DeepSeek-V3 chooses nodes before experts: a group, a run of neighbours, is as good as the sum of its two best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape

#: how many members speak for a group
SPOKESMEN = 2


@dataclass(frozen=True)
class Groups(Op):
    """``kept`` of ``groups`` groups; made for choosing by, so nothing is differentiated."""

    axis: str
    groups: int
    kept: int
    kind: ClassVar[str] = "groups"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        (scores,) = operands
        members = scores.axis(self.axis).size / self.groups
        if members.is_integer is False or (members < SPOKESMEN) == True:  # noqa: E712 - undecided for symbols
            raise GraphError(
                f"{self.groups} groups of axis {self.axis!r} have {members} members each; make it a whole number, "
                f"{SPOKESMEN} or more"
            )
        if not 1 <= self.kept <= self.groups:
            raise GraphError(f"{self.kept} of {self.groups} groups cannot be kept; keep 1 to {self.groups}")
        return (scores,)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        where = types[0].names.index(self.axis)
        scores = np.moveaxis(arrays[0], where, -1)
        grouped = scores.reshape(*scores.shape[:-1], self.groups, -1)
        worth = np.sort(grouped, axis=-1)[..., -SPOKESMEN:].sum(-1)
        ranks = np.argsort(np.argsort(-worth, axis=-1, kind="stable"), axis=-1, kind="stable")
        chosen = np.where((ranks < self.kept)[..., None], grouped, -np.inf).reshape(scores.shape)
        return (np.moveaxis(chosen, -1, where),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        if cotangents[0] is not None:
            raise GraphError(f"{node.name}: groups are chosen, not differentiated; route the scores by them")
        return (None,)
