"""Scan: a loop whose body knows in which iteration it is; nothing is unrolled to derive a cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import sympy

from graphs.axes import Prefix, Tensor
from graphs.errors import GraphError
from graphs.ir import Node, Value
from graphs.ops.repeat import Repeat
from graphs.symbols import index

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True, eq=False)
class Scan(Repeat):
    """A `Repeat` for ``index`` = 1, ..., ``axis.size``, which may be none.

    The body may use the index in restrictions and positions, not in extents: what it carries has the same axes in every
    iteration.  A carried value that holds more after each iteration says so by a `Prefix` that follows the index.
    """

    index: sympy.Symbol = index("t")  # noqa: RUF009 - a symbol is a value
    kind: ClassVar[str] = "scan"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        if self.reverse:
            raise GraphError("a scan runs forward; use a repeat for a loop that runs backward")
        results = super().infer(*operands)
        for i, name in enumerate(list(self.body.inputs)[: self.carried]):
            before, after = self.body.inputs[name], self.body.type(list(self.body.outputs.values())[i])
            self._follows(name, before.at(self.index, sympy.Integer(1)), operands[i], "enters the loop")
            self._follows(name, before.at(self.index, self.index + 1), after, "leaves an iteration")
        for tensor in results[self.carried :]:
            if any(isinstance(r, Prefix) and self.index in r.length.free_symbols for r in tensor.domain):
                raise GraphError(f"a stacked result is restricted by the index {self.index}; stack whole values")
        return tuple(t.at(self.index, self.axis.size) for t in results)

    @staticmethod
    def _follows(name: str, wanted: Tensor, given: Tensor, when: str) -> None:
        if set(wanted.domain) != set(given.domain):
            raise GraphError(
                f"the carried value {name!r} {when} with other restrictions than the next iteration expects; "
                "let its prefix follow the index"
            )

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        raise GraphError(f"{node.name}: generation is not differentiated; train on a forward pass over its tokens")
