"""The losses of PPO, GRPO and DPO.  Each reads what a model says of [b,s] and data, and gives a scalar.

Means over tokens count every response as T tokens long.
"""

from __future__ import annotations

from collections.abc import Callable

import sympy

from graphs.axes import Axis
from graphs.ir import Builder, Value
from graphs.ops.constant import Constant
from graphs.ops.excerpt import Excerpt
from graphs.ops.fold import Blocks, Unfold
from graphs.ops.pointwise import Pointwise
from graphs.ops.reduction import Reduction
from graphs.rl.settings import RESPONSE, RESPONSES, Settings, per_sequence, per_token
from graphs.sizes import Sizes

#: what a model says of [b,s] -> the loss; declares the data that it reads
Loss = Callable[[Builder, Value, Sizes, Settings], Value]


def ppo_policy(build: Builder, new: Value, sizes: Sizes, settings: Settings) -> Value:
    """Minus the clipped surrogate of log-probabilities, with an advantage for each token (arXiv:1707.06347, eq. 7)."""
    advantages = per_token(build, "advantages", sizes)
    return _mean(build, _surrogate(build, new, advantages, sizes, settings), sizes, -1)


def ppo_value(build: Builder, new: Value, sizes: Sizes, settings: Settings) -> Value:
    """Half the squared error of values; of the value and the same kept near the one before, that which errs more."""
    before, returns = per_token(build, "values", sizes), per_token(build, "returns", sizes)
    (moved,) = build.add(Pointwise("subtract"), new, before, name="moved")
    near = _clipped(build, moved, -settings.value_clip, settings.value_clip, "moved")
    (kept,) = build.add(Pointwise("add"), before, near, name="kept_near")
    errors = [
        build.add(Pointwise("square"), build.add(Pointwise("subtract"), x, returns, name=f"{name}.error")[0])[0]
        for name, x in (("value", new), ("kept_near", kept))
    ]
    (worse,) = build.add(Pointwise("maximum"), *errors, name="worse")
    return _mean(build, worse, sizes, sympy.Rational(1, 2))


def grpo_policy(build: Builder, new: Value, sizes: Sizes, settings: Settings) -> Value:
    """Minus the clipped surrogate, with an advantage for each sequence, plus the divergence from the reference.

    That is estimated by q - log q - 1, with q the reference's probability over the policy's (arXiv:2402.03300, eq. 4).
    """
    advantages, reference = per_sequence(build, "advantages", sizes), per_token(build, "reference", sizes)
    surrogate = _surrogate(build, new, advantages, sizes, settings)
    (gap,) = build.add(Pointwise("subtract"), reference, new, name="gap")
    (quotient,) = build.add(Pointwise("exp"), gap, name="quotient")
    (excess,) = build.add(Pointwise("subtract"), quotient, gap, name="excess")
    (divergence,) = build.add(Pointwise("subtract", settings.kl), excess, _number(build, 1), name="kl")
    (gain,) = build.add(Pointwise("subtract"), surrogate, divergence, name="gain")
    return _mean(build, gain, sizes, -1)


def dpo_policy(build: Builder, new: Value, sizes: Sizes, settings: Settings) -> Value:
    """Minus the log of the probability that the chosen response of a pair beats the rejected (arXiv:2305.18290, eq. 7).

    Sequences come in pairs, the chosen one first.
    """
    reference, response = (per_token(build, name, sizes) for name in ("reference", "response"))
    (gap,) = build.add(Pointwise("subtract"), new, reference, name="gap")
    (kept,) = build.add(Pointwise("multiply"), gap, response, name="gap.response")
    (ratio,) = build.add(Reduction("sum", ("s",)), kept, name="log_ratio")
    (pairs,) = build.add(Unfold(Blocks.of(build.type(ratio).axis("b"), RESPONSES)), ratio, name="pairs")
    chosen, rejected = (_member(build, pairs, k, name) for k, name in enumerate(("chosen", "rejected")))
    (margin,) = build.add(Pointwise("subtract", settings.sharpness), chosen, rejected, name="margin")
    (each,) = build.add(Pointwise("log_sigmoid", -RESPONSES.size / sizes.B), margin, name="preference")
    return build.add(Reduction("sum", ("b",)), each, name="loss")[0]


def _surrogate(build: Builder, new: Value, advantages: Value, sizes: Sizes, settings: Settings) -> Value:
    """The smaller of ratio times advantage and the same with the ratio kept near one."""
    old = per_token(build, "old", sizes)
    (change,) = build.add(Pointwise("subtract"), new, old, name="change")
    (ratio,) = build.add(Pointwise("exp"), change, name="ratio")
    near = _clipped(build, ratio, 1 - settings.clip, 1 + settings.clip, "ratio")
    gains = [build.add(Pointwise("multiply"), x, advantages, name="gain")[0] for x in (ratio, near)]
    return build.add(Pointwise("minimum"), *gains, name="surrogate")[0]


def _clipped(build: Builder, x: Value, low: sympy.Expr, high: sympy.Expr, name: str) -> Value:
    (x,) = build.add(Pointwise("maximum"), x, _number(build, low), name=f"{name}.not_below")
    return build.add(Pointwise("minimum"), x, _number(build, high), name=f"{name}.not_above")[0]


def _number(build: Builder, number: sympy.Expr | int) -> Value:
    return build.add(Constant(float(number)), name="number")[0]


def _mean(build: Builder, x: Value, sizes: Sizes, factor: sympy.Expr | int) -> Value:
    """x[b,s] -> its mean over the tokens of all responses, times a factor."""
    response = per_token(build, "response", sizes)
    share = factor / (sizes.B * RESPONSE)
    (kept,) = build.add(Pointwise("multiply", share), x, response, name="share")
    return build.add(Reduction("sum", ("b", "s")), kept, name="loss")[0]


def _member(build: Builder, pairs: Value, k: int, name: str) -> Value:
    """pairs[b,y] -> [b]: response ``k`` of each."""
    one = Axis(name, sympy.Integer(1))
    (kept,) = build.add(Excerpt(RESPONSES.name, one, sympy.Integer(k)), pairs, name=name)
    return build.add(Reduction("sum", (name,)), kept, name=f"{name}.alone")[0]
