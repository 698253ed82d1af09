"""Discount: powers of a rate by how much later one position is than another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import sympy

from graphs.axes import Axis, Causal, Tensor
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class Discount(Op):
    """``rate ** (l - i)`` for every position i of ``now`` and every l of ``later`` from i on; no entry elsewhere."""

    now: Axis
    later: Axis
    rate: sympy.Expr
    kind: ClassVar[str] = "discount"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        return (Tensor((self.now, self.later), domain=(Causal(self.later.name, self.now.name),)),)

    def with_axes(self, axes: Mapping[str, Axis]) -> Discount:
        now, later = (axes.get(a.name, a) for a in (self.now, self.later))
        return replace(self, now=now, later=later)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        ahead = place.positions(self.later) - place.positions(self.now)[:, np.newaxis]
        return (np.where(ahead >= 0, place.value(self.rate) ** np.maximum(ahead, 0), 0.0),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        return ()
