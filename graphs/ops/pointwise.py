"""Pointwise: one scalar function at every point of the union of its operands' axes (missing axes broadcast)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import sympy

from graphs.axes import Role, Tensor, restrictions_on
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value
from graphs.ops.contraction import index_space

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape

_GELU = math.sqrt(2 / math.pi)


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(_GELU * (x + 0.044715 * x**3))))


def gelu_slope(x: Array) -> Array:
    t = np.tanh(_GELU * (x + 0.044715 * x**3))
    return np.asarray(0.5 * (1 + t) + 0.5 * x * (1 - t**2) * _GELU * (1 + 3 * 0.044715 * x**2))


def sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def silu_slope(x: Array) -> Array:
    s = sigmoid(x)
    return np.asarray(s + x * s * (1 - s))


#: gpt-oss: how far its gates and up projections go, and the slope of its gates
LIMIT, SLOPE = 7.0, 1.702


def clamped_swish(x: Array) -> Array:
    low = np.minimum(x, LIMIT)
    return np.asarray(low * sigmoid(SLOPE * low))


def clamped_swish_slope(x: Array) -> Array:
    s = sigmoid(SLOPE * x)
    return np.asarray(np.where(x <= LIMIT, s + SLOPE * x * s * (1 - s), 0.0))


EPSILON = 1e-5
ONE = sympy.Integer(1)

#: name -> (number of operands, numpy meaning)
FUNCTIONS: dict[str, tuple[int, Callable[..., Array]]] = {
    "add": (2, np.add),
    "subtract": (2, np.subtract),
    "multiply": (2, np.multiply),
    "divide": (2, np.divide),
    "exp": (1, np.exp),
    "log": (1, np.log),
    "square": (1, np.square),
    "rsqrt": (1, lambda x: 1 / np.sqrt(x + EPSILON)),
    "gelu": (1, gelu),
    "gelu_grad": (2, lambda x, dy: dy * gelu_slope(x)),
    "silu": (1, lambda x: x * sigmoid(x)),
    "silu_grad": (2, lambda x, dy: dy * silu_slope(x)),
    "log_sigmoid": (1, lambda x: -np.logaddexp(0, -x)),
    "log_sigmoid_grad": (2, lambda x, dy: dy * sigmoid(-x)),
    "clamped_swish": (1, clamped_swish),
    "clamped_swish_grad": (2, lambda x, dy: dy * clamped_swish_slope(x)),
    "clamped_next": (1, lambda x: np.clip(x, -LIMIT, LIMIT) + 1),
    "clamped_next_grad": (2, lambda x, dy: np.where(abs(x) <= LIMIT, dy, 0.0)),
    "keep_finite": (2, lambda dy, x: np.where(np.isfinite(x), dy, 0.0)),
    "scale": (1, lambda x: x),
    "where_less": (3, lambda x, i, j: np.where(i < j, x, -np.inf)),
    "where_less_grad": (3, lambda dy, i, j: np.where(i < j, dy, 0.0)),
    "minimum": (2, np.minimum),
    "maximum": (2, np.maximum),
    "at_most": (2, lambda x, y: np.where(x <= y, 1.0, 0.0)),
}


#: functions of one operand whose slope is the function ``<name>_grad`` of that operand and the cotangent
ACTIVATIONS = ("gelu", "silu", "log_sigmoid", "clamped_swish", "clamped_next")


@dataclass(frozen=True)
class Pointwise(Op):
    """``factor`` multiplies the result (a number or an expression in sizes, such as ``d_h**(-1/2)``)."""

    fn: str
    factor: sympy.Expr = ONE
    kind: ClassVar[str] = "pointwise"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        if self.fn not in FUNCTIONS:
            raise GraphError(f"unknown pointwise function {self.fn!r}; add it to graphs/ops/pointwise.py")
        arity = FUNCTIONS[self.fn][0]
        if len(operands) != arity:
            raise GraphError(f"{self.fn} takes {arity} operands, not {len(operands)}")
        space = index_space(*operands)
        domain = restrictions_on(frozenset(space), *(t.domain for t in operands))
        return (Tensor(tuple(space.values()), Role.ACTIVATION, domain),)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        out = self.infer(*types)[0]
        aligned = [align(x, t, out) for x, t in zip(arrays, types, strict=True)]
        result = FUNCTIONS[self.fn][1](*aligned)
        return (result if self.factor == 1 else result * place.value(self.factor),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        if dy is None:
            return tuple(None for _ in node.operands)
        if self.factor != 1:
            dy = tape.pointwise("scale", dy, factor=self.factor)
        if self.fn in ("add", "scale"):
            pieces: tuple[Value | None, ...] = (dy,) * len(node.operands)
        elif self.fn == "multiply":
            pieces = tuple(tape.pointwise("multiply", dy, tape.operand(node, 1 - i)) for i in (0, 1))
        elif self.fn == "subtract":
            pieces = (dy, tape.pointwise("scale", dy, factor=sympy.Integer(-1)))
        elif self.fn == "square":
            pieces = (tape.pointwise("multiply", dy, tape.operand(node, 0), factor=sympy.Integer(2)),)
        elif self.fn in ACTIVATIONS:
            pieces = (tape.pointwise(f"{self.fn}_grad", tape.operand(node, 0), dy),)
        elif self.fn in SLOPES:
            pieces = SLOPES[self.fn](tape, node, dy)
        else:
            raise GraphError(f"{node.name}: no backward rule for pointwise {self.fn!r}; add one beside its meaning")
        return tuple(None if p is None else tape.sum_to(p, tape.operand_type(node, i)) for i, p in enumerate(pieces))


Pieces = tuple[Value | None, ...]


def _of_divide(tape: Tape, node: Node, dy: Value) -> Pieces:
    assert isinstance(node.op, Pointwise)
    share = tape.pointwise("divide", dy, tape.operand(node, 1))
    return (share, tape.pointwise("multiply", share, tape.output(node, 0), factor=-1 / node.op.factor))


def _of_where_less(tape: Tape, node: Node, dy: Value) -> Pieces:
    return (tape.pointwise("where_less_grad", dy, tape.operand(node, 1), tape.operand(node, 2)), None, None)


def _of_exp(tape: Tape, node: Node, dy: Value) -> Pieces:
    assert isinstance(node.op, Pointwise)
    return (tape.pointwise("multiply", dy, tape.output(node, 0), factor=1 / node.op.factor),)


def _of_extreme(kept: int) -> Callable[[Tape, Node, Value], Pieces]:
    """All goes to one operand: to number ``kept`` where the first is at most the second, else to the other."""

    def slope(tape: Tape, node: Node, dy: Value) -> Pieces:
        operands = (tape.operand(node, 0), tape.operand(node, 1))
        chosen = tape.pointwise("multiply", dy, tape.pointwise("at_most", *operands))
        rest = tape.pointwise("subtract", dy, chosen)
        return (chosen, rest) if kept == 0 else (rest, chosen)

    return slope


#: functions whose backward rule stands here: name -> what goes to each operand, before broadcasts are undone
SLOPES: dict[str, Callable[[Tape, Node, Value], Pieces]] = {
    "divide": _of_divide,
    "where_less": _of_where_less,
    "exp": _of_exp,
    "minimum": _of_extreme(0),
    "maximum": _of_extreme(1),
}


def align(array: Array, tensor: Tensor, out: Tensor) -> Array:
    """The array with its axes in the order of ``out`` and length-1 axes where it has none."""
    order = [tensor.names.index(n) for n in out.names if n in tensor.names]
    shape = iter(np.transpose(array, order).shape)
    return np.transpose(array, order).reshape([next(shape) if n in tensor.names else 1 for n in out.names])
