"""Repeat: a loop as one node.  Its body is a graph; deriving a cost never unrolls it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphs.axes import Axis, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Graph, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True, eq=False)
class Repeat(Op):
    """``axis.size`` iterations of ``body``.

    The body's inputs are, in order, ``carried`` values handed from iteration to iteration, ``stacked`` values of which
    iteration i sees entry i along ``axis``, and the rest, which every iteration sees whole.  Its outputs are the
    carried values and then values that are stacked along ``axis``.  ``reverse`` runs from the last entry to the first.
    """

    body: Graph
    axis: Axis
    carried: int
    stacked: int
    reverse: bool = False
    kind: ClassVar[str] = "repeat"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        names = list(self.body.inputs)
        if len(operands) != len(names):
            raise GraphError(f"the loop body takes {len(names)} values, not {len(operands)}")
        for i, (name, given) in enumerate(zip(names, operands, strict=True)):
            wanted = self.body.inputs[name].axes
            if self.carried <= i < self.carried + self.stacked:
                wanted = (self.axis, *wanted)
            if given.axes != wanted:
                raise GraphError(f"loop input {name!r} does not have the axes its body wants")
        results = [self.body.type(v) for v in self.body.outputs.values()]
        for i in range(self.carried):
            if results[i].axes != self.body.inputs[names[i]].axes:
                raise GraphError(f"the carried value {names[i]!r} changes its axes in the loop body; relabel it back")
        return (*results[: self.carried], *(t.prepend(self.axis) for t in results[self.carried :]))

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        raise GraphError("a loop is run by graphs/execute.py, not as one operation")

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        return tape.loop(node, cotangents)
