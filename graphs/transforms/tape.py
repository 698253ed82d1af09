"""What vector-Jacobian rules read and write, and the sweep that applies them in reverse order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import sympy

from graphs.axes import UNDIFFERENTIATED, Role, Tensor
from graphs.ir import Builder, Graph, Node, Op, Value
from graphs.ops.constant import Broadcast, Constant
from graphs.ops.contraction import Contraction
from graphs.ops.pointwise import ONE, Pointwise
from graphs.ops.reduction import Reduction

if TYPE_CHECKING:
    from graphs.transforms.reversed_loops import LoopBackward


@dataclass
class Tape:
    """What a vector-Jacobian rule may do: read forward values and append backward operations.

    ``rebuilt`` are forward values that a backward loop arrived at by undoing what the forward loop did to them.
    """

    build: Builder
    source: Graph
    fetch: Callable[[Value, Node], Value]
    loops: Mapping[str, LoopBackward]
    rebuilt: dict[Value, Value] = field(default_factory=dict)

    def read(self, value: Value, reader: Node) -> Value:
        """A forward value that the backward of ``reader`` wants; asking for it may make it a saved value."""
        return self.rebuilt[value] if value in self.rebuilt else self.fetch(value, reader)

    def operand_type(self, node: Node, index: int) -> Tensor:
        return self.source.type(node.operands[index])

    def operand(self, node: Node, index: int) -> Value:
        """The forward operand; asking for it makes it a saved value, or one that is computed again."""
        return self.read(node.operands[index], node)

    def output(self, node: Node, index: int) -> Value:
        """The forward result; asking for it makes it a saved value, or one that is computed again."""
        return self.read(Value(node.name, index), node)

    def apply(self, op: Op, *values: Value, role: Role = Role.GRADIENT, name: str | None = None) -> Value:
        return self.build.add(op, *values, role=role, name=f"{name or op.kind}'")[0]

    def pointwise(self, fn: str, *values: Value, factor: sympy.Expr = ONE) -> Value:
        return self.apply(Pointwise(fn, factor), *values, name=fn)

    def zeros(self, like: Tensor) -> Value:
        return self.apply(Broadcast(like.axes), self.apply(Constant(0.0), name="zero"), name="zeros")

    @staticmethod
    def gradient_role(tensor: Tensor) -> Role:
        return Role.PARAMETER_GRADIENT if tensor.role is Role.PARAMETER else Role.GRADIENT

    def sum_to(self, value: Value, like: Tensor) -> Value:
        """Undo a broadcast: sum over the axes that ``like`` does not have, and take the order of its axes."""
        role = self.gradient_role(like)
        extra = tuple(n for n in self.build.type(value).names if n not in like.names)
        if extra:
            value = self.apply(Reduction("sum", extra), value, role=role)
        if self.build.type(value).names != like.names:
            value = self.apply(Broadcast(like.axes), value, role=role)
        return value

    def contract(self, dy: Value, other: Value, like: Tensor, hint: str) -> Value:
        """dy x other over the axes of ``like``; an axis that neither has was summed out of ``like`` alone."""
        known = {*self.build.type(dy).names, *self.build.type(other).names}
        names, role = tuple(n for n in like.names if n in known), self.gradient_role(like)
        piece = self.apply(Contraction(names, like.domain), dy, other, role=role, name=hint)
        return piece if names == like.names else self.apply(Broadcast(like.axes), piece, role=role)

    def loop(self, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        plan = self.loops[node.name]
        return plan.emit(self, node, cotangents)


def sweep(tape: Tape, nodes: Sequence[Node], cotangents: dict[Value, Value]) -> None:
    """Propagate cotangents through the occurrences in reverse order; contributions to one value are added."""
    for node in reversed(nodes):
        given = [cotangents.get(Value(node.name, i)) for i in range(len(node.types))]
        if all(c is None for c in given):
            continue
        with tape.build.within(node.region):
            pieces = node.op.vjp(tape, node, given)
        for operand, piece in zip(node.operands, pieces, strict=True):
            tensor = tape.source.type(operand)
            if piece is not None and tensor.role not in UNDIFFERENTIATED:
                accumulate(tape, cotangents, operand, piece)


def accumulate(tape: Tape, cotangents: dict[Value, Value], value: Value, piece: Value) -> None:
    """Add a contribution to the cotangent of a value."""
    before, role = cotangents.get(value), tape.gradient_role(tape.source.type(value))
    both = piece if before is None else tape.apply(Pointwise("add"), before, piece, role=role, name="add")
    cotangents[value] = both
