"""Ring attention: causal self-attention block by block, the blocks of keys and values going round.

Positions are seen as ``a`` blocks of ``u`` queries and of ``w`` keys.  Every block of queries meets its own keys first;
then keys and values move on by one block as often as there are others, and each result is merged into the running
numerator and denominator of the softmax.  Numerator and denominator are scaled by a shift that cancels out, so that
the shift is not differentiated and no running result is kept for the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import sympy

from graphs.axes import Axis, Behind, Causal, Restriction, Role
from graphs.blocks.dropout import NONE
from graphs.errors import GraphError
from graphs.ir import ATTENTION, Builder, Graph, Value
from graphs.ops.contraction import Contraction
from graphs.ops.fold import Blocks, Fold, Unfold
from graphs.ops.pointwise import Pointwise
from graphs.ops.positions import Positions
from graphs.ops.reduction import Reduction
from graphs.ops.relabel import Relabel
from graphs.ops.repeat import Repeat
from graphs.ops.roll import Roll
from graphs.ops.softmax import MaskedExp
from graphs.sizes import Sizes

SCORES = ("b", "h", "a", "u", "w")
QUERIES = ("b", "a", "u", "h", "k")


@dataclass(frozen=True)
class Running:
    """The numerator [b,a,u,h,k], the denominator and the shift of the exponents [b,h,a,u] over the keys met so far."""

    numerator: Value
    denominator: Value
    shift: Value


def ring_attention(build: Builder, x: Value, sizes: Sizes, dropout: Fraction = NONE) -> Value:
    """x[b,s,c] -> [b,s,c], equal to plain attention; between the projections lies the region ``attention``."""
    if dropout:
        raise GraphError("ring attention never has all probabilities of a query at hand to drop; leave dropout out")
    per_head = ("b", "s", "h", "k")
    q, k, v = (
        build.add(Contraction(per_head), x, Value(w), name=name)[0]
        for w, name in (("W_q", "query"), ("W_k", "key"), ("W_v", "value"))
    )
    with build.within(ATTENTION):
        axes = sizes.axes()
        blocks = Blocks(axes["s"], axes["a"], axes["u"])
        q, k, v = (build.add(Unfold(blocks), y, name=f"{y.node}.blocks")[0] for y in (q, k, v))
        k, v = (build.add(Relabel("u", "w"), y, name=f"{y.node}.keys")[0] for y in (k, v))
        own = _own_block(build, q, k, v, sizes)
        (at,) = build.add(Positions(axes["a"]), name="block.positions")
        operands = (own.numerator, own.denominator, own.shift, k, v, at, q, at)
        loop = Repeat(_other_block(build, operands, sizes), Axis("j", axes["a"].size - 1), carried=6, stacked=0)
        numerator, denominator, *_ = build.add(loop, *operands, name="ring")
        (mixed,) = build.add(Pointwise("divide"), numerator, denominator, name="mix")
        (mixed,) = build.add(Fold(blocks), mixed, name="mix.positions")
    return build.add(Contraction(("b", "s", "c")), mixed, Value("W_o"), name="out_projection")[0]


def _scores(build: Builder, q: Value, k: Value, sizes: Sizes, restriction: Restriction) -> Value:
    (scores,) = build.add(Contraction(SCORES, (restriction,)), q, k, name="scores")
    return build.add(Pointwise("scale", 1 / sympy.sqrt(sizes.d_h)), scores, name="scale")[0]


def _block(build: Builder, scores: Value, v: Value, shift: Value) -> tuple[Value, Value]:
    """Numerator and denominator of one block of keys."""
    (shifted,) = build.add(Pointwise("subtract"), scores, shift, name="shift")
    (e,) = build.add(MaskedExp(), shifted, name="exponentials")
    (numerator,) = build.add(Contraction(QUERIES), e, v, name="numerator")
    (denominator,) = build.add(Reduction("sum", ("w",)), e, name="denominator")
    return numerator, denominator


def _own_block(build: Builder, q: Value, k: Value, v: Value, sizes: Sizes) -> Running:
    scores = _scores(build, q, k, sizes, Causal("u", "w"))
    (top,) = build.add(Reduction("max", ("w",)), scores, name="maximum", role=Role.DETACHED)
    return Running(*_block(build, scores, v, top), top)


def _other_block(outer: Builder, operands: tuple[Value, ...], sizes: Sizes) -> Graph:
    """One step of the ring: the keys of an earlier block count, those of a later one are hidden."""
    build = Builder("ring_step", region=ATTENTION)
    names = (
        "numerator_so_far",
        "denominator_so_far",
        "shift_so_far",
        "keys",
        "values",
        "key_block",
        "q",
        "query_block",
    )
    inputs = [build.input(n, replace(outer.type(v), domain=())) for n, v in zip(names, operands, strict=True)]
    before, (k, v, key_block, q, query_block) = Running(*inputs[:3]), inputs[3:]
    k, v, key_block = (build.add(Roll("a"), y, name=f"{y.node}.next")[0] for y in (k, v, key_block))
    scores = _scores(build, q, k, sizes, Behind("a", "u", "w"))
    (scores,) = build.add(Pointwise("where_less"), scores, key_block, query_block, name="earlier")
    (top,) = build.add(Reduction("max", ("w",)), scores, name="maximum", role=Role.DETACHED)
    (top,) = build.add(Pointwise("maximum"), before.shift, top, name="new_shift", role=Role.DETACHED)
    (fall,) = build.add(Pointwise("subtract"), before.shift, top, name="fall", role=Role.DETACHED)
    (factor,) = build.add(Pointwise("exp"), fall, name="rescale", role=Role.DETACHED)
    merged = []
    for old, new in zip((before.numerator, before.denominator), _block(build, scores, v, top), strict=True):
        (scaled,) = build.add(Pointwise("multiply"), old, factor, name=f"{new.node}.before")
        merged.append(build.add(Pointwise("add"), scaled, new, name=f"{new.node}.merged")[0])
    for name, value in zip(names, (*merged, top, k, v, key_block), strict=False):
        build.output(name, value)
    return build.graph()
