"""The pre-norm decoder block and the loop over blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphs.axes import Role
from graphs.blocks import attention as attention_block
from graphs.blocks import feedforward, mixture, ring
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


#: one choice of attention: x[b,s,c] -> [b,s,c] with the same parameters
Attention = Callable[[Builder, Value, Sizes], Value]
PLAIN: Attention = attention_block.attention
RING: Attention = ring.ring_attention


def block_parameters(ffn: FeedForward) -> dict[str, str]:
    return {"gain_1": "c", **attention_block.PARAMETERS, "gain_2": "c", **dict(ffn.parameters)}


def decoder_block(sizes: Sizes, ffn: FeedForward = DENSE, attention: Attention = PLAIN) -> Graph:
    """x[b,s,c] and one block's parameters -> x[b,s,c]."""
    build = Builder("decoder_block")
    x = build.input("x", sizes.tensor("b s c"))
    for name, axes in block_parameters(ffn).items():
        build.input(name, sizes.tensor(axes, Role.PARAMETER))
    n1 = build.add(LayerNorm("c"), x, Value("gain_1"), name="norm_1")[0]
    (x,) = build.add(Pointwise("add"), x, attention(build, n1, sizes), name="residual_1")
    n2 = build.add(LayerNorm("c"), x, Value("gain_2"), name="norm_2")[0]
    (x,) = build.add(Pointwise("add"), x, ffn.build(build, n2, sizes), name="residual_2")
    build.output("x", x)
    return build.graph()


def decoder(build: Builder, x: Value, sizes: Sizes, ffn: FeedForward = DENSE, attention: Attention = PLAIN) -> Value:
    """L decoder blocks as one loop; declares the stacked parameters."""
    body = decoder_block(sizes, ffn, attention)
    parameters = block_parameters(ffn)
    stacked = [build.input(n, sizes.tensor(f"layer {axes}", Role.PARAMETER)) for n, axes in parameters.items()]
    loop = Repeat(body, sizes.axes()["layer"], carried=1, stacked=len(stacked))
    return build.add(loop, x, *stacked, name="blocks")[0]
