"""Multi-head causal self-attention without biases or positions, on an already normalised input."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import sympy

from graphs.axes import Axis, Causal, Prefix, Restriction, Role, Tensor
from graphs.blocks.dropout import NONE, dropped
from graphs.ir import ATTENTION, Builder, Value
from graphs.ops.constant import Broadcast, Constant
from graphs.ops.contraction import Contraction
from graphs.ops.pointwise import Pointwise
from graphs.ops.relabel import Relabel
from graphs.ops.softmax import Softmax
from graphs.ops.write import Write
from graphs.sizes import Sizes

PARAMETERS = {"W_q": "c h k", "W_k": "c h k", "W_v": "c h k", "W_o": "h k c"}
PER_HEAD = ("b", "s", "h", "k")
CACHED = ("keys", "values")


@dataclass(frozen=True)
class Cache:
    """Where a layer's keys and values are kept: along ``axis`` (t), ``written`` of them before the tokens at hand.

    A cache that holds something enters a block as its inputs `CACHED`; it leaves as further outputs of these names.
    """

    axis: Axis
    written: sympy.Expr

    @property
    def is_empty(self) -> bool:
        return bool(self.written == 0)

    def tensor(self, sizes: Sizes) -> Tensor:
        """A layer's keys, or its values, before the tokens at hand."""
        axes = tuple(self.axis if n == "s" else sizes.axes()[n] for n in PER_HEAD)
        return Tensor(axes, Role.CACHE, (Prefix(self.axis.name, self.written),))


def attention(build: Builder, x: Value, sizes: Sizes, dropout: Fraction = NONE) -> Value:
    """x[b,s,c] -> [b,s,c]; keys and values are the projections relabelled from query to key positions.

    Between the projections lies the region ``attention``; ``dropout`` is the rate at which probabilities are dropped.
    """
    q, k, v = _projections(build, x)
    return _among_themselves(build, q, k, v, sizes, dropout)


def cached_attention(build: Builder, x: Value, sizes: Sizes, cache: Cache) -> tuple[Value, ...]:
    """x[b,s,c] -> [b,s,c] and the cache with the new keys and values, each [b,t,h,k].

    The first tokens attend to one another, causally; later ones, one at a time, to all that the cache then holds.
    """
    q, k, v = _projections(build, x)
    keys, values = (_written(build, name, x, sizes, cache) for name, x in zip(CACHED, (k, v), strict=True))
    if cache.is_empty:
        return _among_themselves(build, q, k, v, sizes), keys, values
    with build.within(ATTENTION):
        mixed = _mixed(build, q, keys, values, sizes, ())
    return _projected(build, mixed), keys, values


def _projections(build: Builder, x: Value) -> tuple[Value, Value, Value]:
    (q,) = build.add(Contraction(PER_HEAD), x, Value("W_q"), name="query")
    (k,) = build.add(Contraction(PER_HEAD), x, Value("W_k"), name="key")
    (v,) = build.add(Contraction(PER_HEAD), x, Value("W_v"), name="value")
    return q, k, v


def _written(build: Builder, name: str, entries: Value, sizes: Sizes, cache: Cache) -> Value:
    before = Value(name)
    if cache.is_empty:
        (zero,) = build.add(Constant(0.0), name=f"{name}.zero")
        (before,) = build.add(Broadcast(cache.tensor(sizes).axes), zero, name=f"{name}.empty", role=Role.CACHE)
    return build.add(Write("t", "s", cache.written), before, entries, name=f"{name}.write", role=Role.CACHE)[0]


def _among_themselves(build: Builder, q: Value, k: Value, v: Value, sizes: Sizes, dropout: Fraction = NONE) -> Value:
    with build.within(ATTENTION):
        (k,) = build.add(Relabel("s", "t"), k, name="key.positions")
        (v,) = build.add(Relabel("s", "t"), v, name="value.positions")
        mixed = _mixed(build, q, k, v, sizes, (Causal("s", "t"),), dropout)
    return _projected(build, mixed)


def _mixed(
    build: Builder,
    q: Value,
    k: Value,
    v: Value,
    sizes: Sizes,
    domain: tuple[Restriction, ...],
    dropout: Fraction = NONE,
) -> Value:
    """Values mixed by how queries match keys, over the pairs of positions in the domain."""
    (scores,) = build.add(Contraction(("b", "h", "s", "t"), domain), q, k, name="scores")
    (scaled,) = build.add(Pointwise("scale", 1 / sympy.sqrt(sizes.d_h)), scores, name="scale")
    (p,) = build.add(Softmax("t"), scaled, name="probabilities")
    p = dropped(build, p, dropout, "probabilities.dropout")
    return build.add(Contraction(PER_HEAD), p, v, name="mix")[0]


def _projected(build: Builder, mixed: Value) -> Value:
    return build.add(Contraction(("b", "s", "c")), mixed, Value("W_o"), name="out_projection")[0]
