"""Contraction: the einsum of two tensors by axis name.  Every GEMM of the model is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphs.axes import Axis, Causal, Prefix, Restriction, Role, Tensor, Window, restrictions_on
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape


def index_space(*operands: Tensor) -> dict[str, Axis]:
    """All axes of the operands by name; GraphError where two operands disagree on one."""
    space: dict[str, Axis] = {}
    for axis in (a for t in operands for a in t.axes):
        if space.setdefault(axis.name, axis) != axis:
            known = space[axis.name]
            raise GraphError(
                f"axis {axis.name!r} is {axis.extent} in one operand, {known.extent} in another; relabel or gather it"
            )
    return space


@dataclass(frozen=True)
class Contraction(Op):
    """Sum of products over every axis that ``out`` leaves away; ``domain`` restricts which results are wanted."""

    out: tuple[str, ...]
    domain: tuple[Restriction, ...] = ()
    kind: ClassVar[str] = "contraction"

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        if len(operands) != 2:
            raise GraphError(f"a contraction takes two operands, not {len(operands)}; use a reduction for one")
        left, right = operands
        space = index_space(left, right)
        for name in self.out:
            if name not in space:
                raise GraphError(
                    f"contraction asks for axis {name!r}, which neither operand has "
                    f"({', '.join(left.names)} and {', '.join(right.names)}); name one of theirs"
                )
        domain = restrictions_on(frozenset(self.out), self.domain, left.domain, right.domain)
        return (Tensor(tuple(space[n] for n in self.out), Role.ACTIVATION, domain),)

    def contracted(self, *operands: Tensor) -> tuple[Axis, ...]:
        """The axes summed over."""
        return tuple(a for n, a in index_space(*operands).items() if n not in self.out)

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        left, right = types
        space = index_space(left, right)
        letter = {name: chr(97 + i) for i, name in enumerate(space)}
        spec = [*("".join(letter[n] for n in names) for names in (left.names, right.names, self.out))]
        inside = [meaningful(x, t, place, 0.0) for x, t in zip(arrays, types, strict=True)]
        result = np.einsum(f"{spec[0]},{spec[1]}->{spec[2]}", *inside, optimize=True)
        return (meaningful(result, self.infer(*types)[0], place, 0.0),)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = cotangents
        if dy is None:
            return (None, None)
        grads: list[Value | None] = []
        for i in (0, 1):
            mine, other = tape.operand_type(node, i), tape.operand(node, 1 - i)
            grads.append(tape.contract(dy, other, mine, hint=f"{node.name}.d{i}"))
        return grads


def causal_mask(tensor: Tensor, restriction: Causal, place: Place) -> Array:
    """True where the query sees the key, shaped to broadcast over the tensor."""
    query, key = place.positions(tensor.axis(restriction.query)), place.positions(tensor.axis(restriction.key))
    shape = [1] * len(tensor.axes)
    at_query, at_key = list(shape), list(shape)
    at_query[tensor.names.index(restriction.query)] = len(query)
    at_key[tensor.names.index(restriction.key)] = len(key)
    key, query = key.reshape(at_key), query.reshape(at_query)
    if isinstance(restriction, Window):
        return np.asarray((key <= query) & (query < key + int(place.value(restriction.width))))
    return np.asarray(key <= query)


def prefix_mask(tensor: Tensor, restriction: Prefix, place: Place) -> Array:
    """True at the first entries of the axis, shaped to broadcast over the tensor."""
    shape = [-1 if name == restriction.axis else 1 for name in tensor.names]
    here = place.positions(tensor.axis(restriction.axis)) < place.value(restriction.length)
    return np.asarray(here.reshape(shape))


def meaningful(array: Array, tensor: Tensor, place: Place, outside: float) -> Array:
    """The array with ``outside`` at entries to which a causal or prefix restriction of its type gives no meaning."""
    for restriction in tensor.domain:
        if isinstance(restriction, Causal):
            array = np.where(causal_mask(tensor, restriction, place), array, outside)
        elif isinstance(restriction, Prefix):
            array = np.where(prefix_mask(tensor, restriction, place), array, outside)
    return array
