"""Cross-entropy of logits against target ids: a macro that keeps the probabilities; and the one-hot it is built of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Role, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Builder, Node, Op, Place, Value
from graphs.ops.pointwise import Pointwise
from graphs.ops.reduction import Reduction

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


@dataclass(frozen=True)
class CrossEntropy(Op):
    """Operands logits and target ids; results the loss of each token and the probabilities."""

    axis: str
    kind: ClassVar[str] = "cross_entropy"

    @property
    def whole_axes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.axis,)

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        logits, targets = operands
        if targets.role is not Role.INDEX or targets.axes != logits.without(self.axis).axes:
            raise GraphError("cross-entropy needs one target id (role INDEX) for each setting of the other axes")
        return (logits.without(self.axis).with_role(Role.ACTIVATION), logits.with_role(Role.ACTIVATION))

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        logits, targets = arrays
        where = types[0].names.index(self.axis)
        shifted = logits - logits.max(axis=where, keepdims=True)
        e = np.exp(shifted)
        z = e.sum(axis=where, keepdims=True)
        picked = np.take_along_axis(shifted, np.expand_dims(targets.astype(np.int64), where), axis=where)
        return ((np.log(z) - picked).squeeze(where), e / z)

    def expand(self, build: Builder, operands: Sequence[Value]) -> Sequence[Value]:
        logits, targets = operands
        over = (self.axis,)
        (top,) = build.add(Reduction("max", over), logits, name="ce.max")
        (shifted,) = build.add(Pointwise("subtract"), logits, top, name="ce.shift")
        (e,) = build.add(Pointwise("exp"), shifted, name="ce.exp")
        (z,) = build.add(Reduction("sum", over), e, name="ce.sum")
        (hot,) = build.add(OneHot(self.axis), logits, targets, name="ce.one_hot")
        (hit,) = build.add(Pointwise("multiply"), hot, shifted, name="ce.hit")
        (picked,) = build.add(Reduction("sum", over), hit, name="ce.target")
        (log_z,) = build.add(Pointwise("log"), z, name="ce.log")
        (loss,) = build.add(Pointwise("subtract"), log_z, picked, name="ce.loss")
        (probabilities,) = build.add(Pointwise("divide"), e, z, name="ce.divide")
        return (loss, probabilities)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        dloss = cotangents[0]
        if dloss is None or cotangents[1] is not None:
            raise GraphError(f"{node.name}: only the loss may be differentiated")
        probabilities = tape.output(node, 1)
        hot = tape.apply(OneHot(self.axis), probabilities, tape.operand(node, 1))
        return (tape.pointwise("multiply", tape.pointwise("subtract", probabilities, hot), dloss), None)


@dataclass(frozen=True)
class OneHot(Op):
    """One where the position along ``axis`` of the first operand equals the id, zero elsewhere; reads no data of it."""

    axis: str
    kind: ClassVar[str] = "one_hot"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        like, ids = operands
        if ids.axes != like.without(self.axis).axes:
            raise GraphError(f"one-hot needs one id for each setting of the axes other than {self.axis!r}")
        return (like.with_role(Role.ACTIVATION),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        where = types[0].names.index(self.axis)
        shape = [-1 if i == where else 1 for i in range(len(types[0].axes))]
        positions = place.positions(types[0].axis(self.axis)).reshape(shape)
        return (np.asarray(positions == np.expand_dims(arrays[1], where), dtype=np.float64),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        return (None, None)
