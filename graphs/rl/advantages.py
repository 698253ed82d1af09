"""From scores to advantages: rewards of tokens and generalised advantage estimation, or normalisation in a group."""

from __future__ import annotations

import sympy

from graphs.axes import Axis, Tensor
from graphs.ir import Builder, Graph, Value
from graphs.ops.constant import Broadcast, Constant
from graphs.ops.contraction import Contraction
from graphs.ops.discount import Discount
from graphs.ops.excerpt import Excerpt, Insert
from graphs.ops.fold import Blocks, Fold, Unfold
from graphs.ops.pointwise import Pointwise
from graphs.ops.reduction import Reduction
from graphs.ops.relabel import Relabel
from graphs.ops.repeat import Repeat
from graphs.ops.select import Pad
from graphs.rl.settings import (
    RESPONSE,
    ROLLOUTS,
    TOKENS,
    Settings,
    at_predictions,
    of_response,
    per_sequence,
    per_token,
)
from graphs.sizes import Sizes

LATER = Axis("n", RESPONSE - 1)


def token_advantages(sizes: Sizes, settings: Settings) -> Graph:
    """old, reference, values [b,s] and score[b] -> advantages and returns [b,s], zero outside of the response.

    A token's reward is minus the estimated divergence from the reference, weighed by ``kl``, and for the last token
    also the score.  Advantages are those of Schulman et al. 2016 (arXiv:1506.02438) with nothing after the last token.
    """
    build = Builder("token_advantages")
    old, reference, values = (per_token(build, name, sizes) for name in ("old", "reference", "values"))
    score = per_sequence(build, "score", sizes)
    rewards = _rewards(build, old, reference, score, settings)
    expected = of_response(build, values, "expected")
    errors = _errors(build, rewards, expected, settings)
    found = (chained if settings.scan else contracted)(build, errors, settings.discount * settings.trace)
    (returns,) = build.add(Pointwise("add"), found, expected, name="returns")
    build.output("advantages", at_predictions(build, found, "advantages.placed"))
    build.output("returns", at_predictions(build, returns, "returns.placed"))
    return build.graph()


def _rewards(build: Builder, old: Value, reference: Value, score: Value, settings: Settings) -> Value:
    """-> [b,i]; the divergence is estimated by the difference of log-probabilities."""
    (gap,) = build.add(Pointwise("subtract", -settings.kl), old, reference, name="kl")
    (last,) = build.add(Pad(TOKENS, 1), score, name="score.at_last")
    return build.add(Pointwise("add"), of_response(build, gap, "kl.response"), last, name="rewards")[0]


def _errors(build: Builder, rewards: Value, expected: Value, settings: Settings) -> Value:
    """reward_i + discount value_(i+1) - value_i, with value 0 after the last token."""
    (later,) = build.add(Excerpt("i", LATER, sympy.Integer(1)), expected, name="later")
    (later,) = build.add(Insert("n", TOKENS, sympy.Integer(0)), later, name="later.placed")
    (later,) = build.add(Pointwise("scale", settings.discount), later, name="discounted")
    (total,) = build.add(Pointwise("add"), rewards, later, name="reward_and_later")
    return build.add(Pointwise("subtract"), total, expected, name="errors")[0]


def chained(build: Builder, errors: Value, rate: sympy.Expr) -> Value:
    """errors[b,i] -> advantages[b,i] by the recursion from the last token to the first: a chain as long as that."""
    b, i = build.type(errors).axes
    (turned,) = build.add(Broadcast((i, b)), errors, name="errors.by_token")
    (zero,) = build.add(Constant(0.0), name="zero")
    (none,) = build.add(Broadcast((b,)), zero, name="after_the_last")
    loop = Repeat(_recursion(b, rate), i, carried=1, stacked=1, reverse=True)
    _, found = build.add(loop, none, turned, name="recursion")
    return build.add(Broadcast((b, i)), found, name="advantages")[0]


def _recursion(b: Axis, rate: sympy.Expr) -> Graph:
    """The advantage of a token from that of the next one."""
    body = Builder("advantage_step")
    later, error = body.input("later", Tensor((b,))), body.input("error", Tensor((b,)))
    (faded,) = body.add(Pointwise("scale", rate), later, name="faded")
    (found,) = body.add(Pointwise("add"), error, faded, name="advantage")
    body.output("later", found)
    body.output("advantage", found)
    return body.graph()


def contracted(build: Builder, errors: Value, rate: sympy.Expr) -> Value:
    """The same by one product with a triangle of discounts: more work, but a depth of the log of the length."""
    _, i = build.type(errors).axes
    (later,) = build.add(Relabel("i", "l"), errors, name="errors.later")
    (discounts,) = build.add(Discount(i, i.renamed("l"), rate), name="discounts")
    return build.add(Contraction(("b", "i")), later, discounts, name="advantages")[0]


def group_advantages(sizes: Sizes, _settings: Settings) -> Graph:
    """score[b] -> advantages[b]: less the mean over the K rollouts of a prompt, over their standard deviation."""
    build = Builder("group_advantages")
    score = per_sequence(build, "score", sizes)
    groups = Blocks.of(build.type(score).axis("b"), ROLLOUTS)
    (grouped,) = build.add(Unfold(groups), score, name="grouped")
    (centred,) = build.add(Pointwise("subtract"), grouped, _mean(build, grouped), name="centred")
    (square,) = build.add(Pointwise("square"), centred, name="square")
    (scale,) = build.add(Pointwise("rsqrt"), _mean(build, square), name="rsqrt")
    (normal,) = build.add(Pointwise("multiply"), centred, scale, name="normal")
    build.output("advantages", build.add(Fold(groups), normal, name="advantages")[0])
    return build.graph()


def _mean(build: Builder, x: Value) -> Value:
    (total,) = build.add(Reduction("sum", (ROLLOUTS.name,)), x, name="sum")
    return build.add(Pointwise("scale", 1 / ROLLOUTS.size), total, name="mean")[0]
