"""Softmax along one axis with a sink: a learned score that takes its share of the probability and gives nothing.

As in gpt-oss; the sink stands for one more key whose value is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import sympy

from graphs.axes import Role, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Builder, Node, Op, Place, Value
from graphs.ops.contraction import meaningful
from graphs.ops.pointwise import Pointwise, align
from graphs.ops.reduction import Reduction
from graphs.ops.softmax import MaskedExp

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class SinkSoftmax(Op):
    """Operands scores and sink, over some of their other axes; results the probabilities and what the sink takes."""

    axis: str
    kind: ClassVar[str] = "sink_softmax"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        x, sink = operands
        x.axis(self.axis)
        if not set(sink.axes) <= set(x.without(self.axis).axes):
            raise GraphError(f"a sink over ({', '.join(sink.names)}) has an axis that the other scores do not have")
        return (x.with_role(Role.ACTIVATION), x.without(self.axis).with_role(Role.STATISTIC))

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        (x, sink), tensor = arrays, types[0]
        where = tensor.names.index(self.axis)
        x, sink = meaningful(x, tensor, place, -np.inf), align(sink, types[1], tensor)
        top = np.maximum(x.max(axis=where, keepdims=True), sink)
        e, rest = np.exp(x - top), np.exp(sink - top)
        z = e.sum(axis=where, keepdims=True) + rest
        return (e / z, (rest / z).squeeze(where))

    def expand(self, build: Builder, operands: Sequence[Value]) -> Sequence[Value]:
        x, sink = operands
        (top,) = build.add(Reduction("max", (self.axis,)), x, name="softmax.max")
        (top,) = build.add(Pointwise("maximum"), top, sink, name="softmax.max_with_sink")
        (shifted,) = build.add(Pointwise("subtract"), x, top, name="softmax.shift")
        (e,) = build.add(MaskedExp(), shifted, name="softmax.exp")
        (below,) = build.add(Pointwise("subtract", sympy.Integer(-1)), top, sink, name="softmax.shift_sink")
        (rest,) = build.add(Pointwise("exp"), below, name="softmax.exp_sink")
        (z,) = build.add(Reduction("sum", (self.axis,)), e, name="softmax.sum")
        (z,) = build.add(Pointwise("add"), z, rest, name="softmax.sum_with_sink")
        (y,) = build.add(Pointwise("divide"), e, z, name="softmax.divide")
        return (y, build.add(Pointwise("divide"), rest, z, name="softmax.sink", role=Role.STATISTIC)[0])

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        dy = cotangents[0]
        if cotangents[1] is not None:
            raise GraphError(f"{node.name}: only the probabilities may be differentiated, not the sink's share")
        if dy is None:
            return (None, None)
        y, rest = tape.output(node, 0), tape.output(node, 1)
        inner = tape.apply(Reduction("sum", (self.axis,)), tape.pointwise("multiply", dy, y))
        lost = tape.pointwise("multiply", rest, inner, factor=sympy.Integer(-1))
        dx = tape.pointwise("multiply", y, tape.pointwise("subtract", dy, inner))
        return (dx, tape.sum_to(lost, tape.operand_type(node, 1)))
