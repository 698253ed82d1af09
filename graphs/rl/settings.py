"""What the algorithms leave to be chosen: numbers in their losses and advantages, and the layout of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy

from graphs.axes import Axis, Role
from graphs.blocks.decoder import DENSE, FeedForward
from graphs.ir import Builder, Value
from graphs.ops.excerpt import Excerpt, Insert
from graphs.ops.relabel import Relabel
from graphs.sizes import Sizes
from graphs.stages.stage import Options
from graphs.symbols import size

PROMPT, RESPONSE = size("S"), size("T")
#: positions of a whole sequence, and of its response
POSITIONS, TOKENS = Axis("s", size("m")), Axis("i", RESPONSE)
#: rollouts of a prompt, and responses of a pair: the chosen one and the rejected one
ROLLOUTS, RESPONSES = Axis("j", size("K")), Axis("y", sympy.Integer(2))
#: token i of the response is predicted at position S - 1 + i
PREDICTED = PROMPT - 1
#: usual numbers; a product with one costs nothing, else no work, depth or memory depends on them
CLIP, KL = sympy.Rational(1, 5), sympy.Rational(1, 20)
DISCOUNT, TRACE = sympy.Integer(1), sympy.Rational(19, 20)
SHARPNESS = sympy.Rational(1, 10)


@dataclass(frozen=True)
class Settings:
    """Numbers and options of an algorithm.

    ``clip`` and ``value_clip`` bound how far a ratio and a value may move; ``kl`` weighs the divergence from the
    reference, in PPO's rewards and in GRPO's loss; ``discount`` and ``trace`` are gamma and lambda of the advantages;
    ``sharpness`` is the beta of DPO.  ``scan`` has advantages computed by a recursion over the response, else by one
    product with a triangle of discounts.
    """

    clip: sympy.Expr = CLIP
    value_clip: sympy.Expr = CLIP
    kl: sympy.Expr = KL
    discount: sympy.Expr = DISCOUNT
    trace: sympy.Expr = TRACE
    sharpness: sympy.Expr = SHARPNESS
    scan: bool = True
    ffn: FeedForward = DENSE
    options: Options = field(default_factory=Options)


def per_token(build: Builder, name: str, sizes: Sizes) -> Value:
    """Data [b,s]: one number for each position of each sequence."""
    return build.input(name, sizes.tensor("b s", Role.INPUT))


def per_sequence(build: Builder, name: str, sizes: Sizes) -> Value:
    """Data [b]: one number for each sequence."""
    return build.input(name, sizes.tensor("b", Role.INPUT))


def of_response(build: Builder, x: Value, name: str) -> Value:
    """x[b,s] -> [b,i]: what stands where the tokens of the response are predicted.

    Positions get an axis name of their own, so that where s is split each rank gathers them.
    """
    (whole,) = build.add(Relabel("s", "p"), x, name=f"{name}.positions")
    return build.add(Excerpt("p", TOKENS, PREDICTED), whole, name=name)[0]


def at_predictions(build: Builder, x: Value, name: str) -> Value:
    """x[b,i] -> [b,s]: back to where the tokens are predicted, zeros elsewhere."""
    (whole,) = build.add(Insert("i", POSITIONS.renamed("p"), PREDICTED), x, name=f"{name}.positions")
    return build.add(Relabel("p", "s"), whole, name=name)[0]
