"""Dropout: entries are set to zero at random and the others scaled up; the mask is kept for the backward pass.

Whether an entry is dropped follows from a seed, the name of the stream and the entry's global position alone.  So the
ranks of a partitioned run and a second run of the same layer draw the same mask, and no generator has a state.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
import sympy

from graphs.axes import Role, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Node, Op, Place, Value

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape

Bits = npt.NDArray[np.uint64]
#: of the 64 bits of a hash so many decide, as many as a float holds
DECIDING = 53


@dataclass(frozen=True)
class Dropout(Op):
    """Operands x and a scalar seed (index data); results y = x * mask / (1 - rate) and the mask, of zeros and ones.

    ``rate`` is the probability of a zero; masks of different ``stream`` are independent for one seed.
    """

    rate: Fraction
    stream: str
    kind: ClassVar[str] = "dropout"

    @property
    def factor(self) -> sympy.Expr:
        return sympy.Rational(1) / (1 - sympy.Rational(self.rate.numerator, self.rate.denominator))

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        x, seed = operands
        if not 0 <= self.rate < 1:
            raise GraphError(f"dropout of {self.rate} keeps nothing or more than all; take a rate from 0 to below 1")
        if seed.axes or seed.role is not Role.INDEX:
            raise GraphError("dropout needs one seed, a scalar of role INDEX; give one for each layer")
        return (x.with_role(Role.ACTIVATION), x.with_role(Role.MASK))

    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        x, seed = arrays
        bits = scrambled(int(seed), self.stream, [place.positions(a) for a in types[0].axes])
        drawn = (bits >> np.uint64(64 - DECIDING)).astype(np.float64) / 2.0**DECIDING
        mask = (drawn >= float(self.rate)).astype(np.float64)
        return (x * mask * float(self.factor), mask)

    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        dy = cotangents[0]
        if dy is None or cotangents[1] is not None:
            raise GraphError(f"{node.name}: only the result may be differentiated, not the mask")
        return (tape.pointwise("multiply", dy, tape.output(node, 1), factor=self.factor), None)


def scrambled(seed: int, stream: str, positions: Iterable[npt.NDArray[np.int64]]) -> Bits:
    """64 well mixed bits for each point of the grid that the positions span, one array of them per axis."""
    bits = _mixed(np.array([seed % 2**64], dtype=np.uint64) ^ np.uint64(zlib.crc32(stream.encode())))
    for here in positions:
        bits = _mixed(bits[..., np.newaxis] + _mixed(here.astype(np.uint64)))
    return bits[0]


def _mixed(x: Bits) -> Bits:
    """A bijection of 64-bit words in which every bit depends on all (the finaliser of splitmix64, Steele et al. 2014).

    The added constant keeps zero from being mapped to itself.
    """
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
