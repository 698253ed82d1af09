"""The pre-norm decoder block and the loop over blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from graphs.axes import Role
from graphs.blocks import attention as attention_block
from graphs.blocks import dispatched, feedforward, mixture, ring
from graphs.blocks.attention import CACHED, Cache, cached_attention
from graphs.blocks.dropout import NONE, SEED, dropped
from graphs.ir import Builder, Graph, Value
from graphs.ops.norm import LayerNorm
from graphs.ops.pointwise import Pointwise
from graphs.ops.repeat import Repeat
from graphs.sizes import Sizes


@dataclass(frozen=True)
class FeedForward:
    """One choice of feed-forward layer: its parameters (name -> axes) and the function that builds it."""

    parameters: tuple[tuple[str, str], ...]
    build: Callable[[Builder, Value, Sizes], Value]


DENSE = FeedForward(tuple(feedforward.PARAMETERS.items()), feedforward.feedforward)
EXPERTS = FeedForward(tuple(mixture.PARAMETERS.items()), mixture.mixture)
DISPATCHED = FeedForward(tuple(dispatched.PARAMETERS.items()), dispatched.dispatched)
FEED_FORWARDS = {"dense": DENSE, "experts": EXPERTS, "dispatched": DISPATCHED}


#: one choice of attention: x[b,s,c] -> [b,s,c] with the same parameters; takes a rate of dropout
Attention = Callable[[Builder, Value, Sizes, Fraction], Value]
PLAIN: Attention = attention_block.attention
RING: Attention = ring.ring_attention
ATTENTIONS = {"plain": PLAIN, "ring": RING}


def block_parameters(ffn: FeedForward) -> dict[str, str]:
    return {"gain_1": "c", **attention_block.PARAMETERS, "gain_2": "c", **dict(ffn.parameters)}


def decoder_block(
    sizes: Sizes,
    ffn: FeedForward = DENSE,
    attention: Attention = PLAIN,
    dropout: Fraction = NONE,
    cache: Cache | None = None,
) -> Graph:
    """x[b,s,c] and one block's parameters -> x[b,s,c]; with a cache also what it holds before and after.

    With a rate of ``dropout`` attention probabilities and the results of both sublayers are dropped at random, as in
    Megatron-LM, from masks that a further input, the block's seed, decides.  A cache is for generation, which drops
    nothing.
    """
    build = Builder("decoder_block")
    x = build.input("x", sizes.tensor("b s c"))
    for name, axes in block_parameters(ffn).items():
        build.input(name, sizes.tensor(axes, Role.PARAMETER))
    if dropout:
        build.input(SEED, sizes.tensor("", Role.INDEX))
    if cache and not cache.is_empty:
        for name in CACHED:
            build.input(name, cache.tensor(sizes))
    n1 = build.add(LayerNorm("c"), x, Value("gain_1"), name="norm_1")[0]
    if cache:
        attended, *kept = cached_attention(build, n1, sizes, cache)
    else:
        attended, kept = attention(build, n1, sizes, dropout), []
    attended = dropped(build, attended, dropout, "attention.dropout")
    (x,) = build.add(Pointwise("add"), x, attended, name="residual_1")
    n2 = build.add(LayerNorm("c"), x, Value("gain_2"), name="norm_2")[0]
    f = dropped(build, ffn.build(build, n2, sizes), dropout, "ffn.dropout")
    (x,) = build.add(Pointwise("add"), x, f, name="residual_2")
    for name, value in zip(("x", *CACHED), (x, *kept), strict=False):
        build.output(name, value)
    return build.graph()


def decoder(
    build: Builder,
    x: Value,
    sizes: Sizes,
    ffn: FeedForward = DENSE,
    attention: Attention = PLAIN,
    dropout: Fraction = NONE,
) -> Value:
    """L decoder blocks as one loop; declares the stacked parameters and, for dropout, a seed for each layer."""
    return _blocks(build, x, sizes, ffn, decoder_block(sizes, ffn, attention, dropout))[0]


def caching_decoder(
    build: Builder, x: Value, sizes: Sizes, ffn: FeedForward, cache: Cache, held: Sequence[Value] = ()
) -> tuple[Value, ...]:
    """The same with a cache: x, and keys and values [layer,b,t,h,k] after it; ``held`` are those before, if any."""
    return _blocks(build, x, sizes, ffn, decoder_block(sizes, ffn, cache=cache), held)


def _blocks(
    build: Builder, x: Value, sizes: Sizes, ffn: FeedForward, body: Graph, held: Sequence[Value] = ()
) -> tuple[Value, ...]:
    parameters = block_parameters(ffn)
    stacked = [build.input(n, sizes.tensor(f"layer {axes}", Role.PARAMETER)) for n, axes in parameters.items()]
    if SEED in body.inputs:
        stacked.append(build.input(SEED, sizes.tensor("layer", Role.INDEX)))
    loop = Repeat(body, sizes.axes()["layer"], carried=1, stacked=len(stacked) + len(held))
    return build.add(loop, x, *stacked, *held, name="blocks")
