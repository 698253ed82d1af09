"""Foreign: an operation of another framework that is no contraction, kept in its place by name and by its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphs.axes import Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape

#: what a foreign operation may do; softmax and norms are reductions
NATURES = ("pointwise", "reduction", "movement")


@dataclass(frozen=True)
class Foreign(Op):
    """``name`` in its own framework, what it does in the main, and the types of its results.

    It has no numpy meaning and no backward rule here: what is imported is counted, not run.
    """

    name: str
    nature: str
    results: tuple[Tensor, ...]
    kind: ClassVar[str] = "foreign"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        if self.nature not in NATURES:
            raise GraphError(f"{self.name} is of unknown nature {self.nature!r}; use one of {', '.join(NATURES)}")
        return self.results

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        raise GraphError(f"{self.name} comes from another framework and has no meaning here; run it there")

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        raise GraphError(f"{node.name}: {self.name} has no backward rule here; import the joint graph instead")
