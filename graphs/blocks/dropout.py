"""Dropout in a block: where it stands and what draws its masks."""

from __future__ import annotations

from fractions import Fraction

from graphs.ir import Builder, Value
from graphs.ops.dropout import Dropout

#: no entry is dropped: the block has no dropout at all
NONE = Fraction(0)
#: the rate where none is named; no amount of work or memory depends on it
USUAL = Fraction(1, 10)
#: the block's input that makes the masks of a layer differ from those of other layers
SEED = "seed"


def dropped(build: Builder, x: Value, rate: Fraction, name: str) -> Value:
    """x after dropout; x itself where the rate is zero."""
    return build.add(Dropout(rate, name), x, Value(SEED), name=name)[0] if rate else x
