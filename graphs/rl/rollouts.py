"""Rollouts: K responses to each prompt, as sequences to be scored and trained on."""

from __future__ import annotations

import sympy

from graphs.axes import Axis, Role, Tensor
from graphs.ir import Builder, Graph, Value
from graphs.models.generation import generation
from graphs.ops.constant import Broadcast, Constant
from graphs.ops.excerpt import Excerpt, Insert
from graphs.ops.fold import Blocks, Fold
from graphs.ops.pointwise import Pointwise
from graphs.rl.settings import POSITIONS, PROMPT, ROLLOUTS, TOKENS, Settings, at_predictions
from graphs.sizes import Sizes
from graphs.symbols import size
from graphs.transforms.inline import inline

PROMPTS = Axis("b", size("B"))
FOLLOWING = Axis("n", POSITIONS.size - 1)


def rollouts(sizes: Sizes, settings: Settings) -> Graph:
    """prompts[b,s], B of S tokens -> ``sizes.B`` sequences: ids[b,s] of m tokens, what follows each, and where.

    Further outputs [b,s] are ``response``, which is one where a token of the response is predicted and zero elsewhere,
    and ``old``, the log-probability there of that token under the policy that drew it.  Tokens are drawn by the uniform
    numbers of two further inputs, as in ``generation``.
    """
    build = Builder("rollouts")
    prompts = build.input("prompts", Tensor((PROMPTS, Axis("s", PROMPT)), Role.INDEX))
    repeated = (PROMPTS, ROLLOUTS, Axis("s", PROMPT))
    (each,) = build.add(Broadcast(repeated), prompts, name="repeated", role=Role.INDEX)
    (each,) = build.add(Fold(Blocks.joined(PROMPTS, ROLLOUTS)), each, name="rollouts", role=Role.INDEX)
    run, shared = (prompts, ROLLOUTS) if settings.options.share_prefill else (each, None)
    made = inline(build, generation(sizes, settings.ffn, draw=True, shared=shared), {"ids": run})
    tokens = _response(build, made["first"], made["rest"], "tokens", Role.INDEX)
    old = _response(build, made["log_first"], made["log_rest"], "log_probabilities", Role.ACTIVATION)
    ids = _sequences(build, each, tokens)
    build.output("ids", ids)
    build.output("targets", following(build, ids))
    (one,) = build.add(Constant(1.0), name="one")
    (ones,) = build.add(Broadcast(build.type(old).axes), one, name="ones")
    build.output("response", at_predictions(build, ones, "response"))
    build.output("old", at_predictions(build, old, "old"))
    return build.graph()


def _response(build: Builder, first: Value, rest: Value, name: str, role: Role) -> Value:
    """first[b] and rest[step,b] -> [b,i]."""
    (b,), (step, _) = build.type(first).axes, build.type(rest).axes
    one = Axis("one", sympy.Integer(1))
    (first,) = build.add(Broadcast((b, one)), first, name=f"{name}.first", role=role)
    (rest,) = build.add(Broadcast((b, step)), rest, name=f"{name}.rest", role=role)
    placed = [
        build.add(Insert(axis.name, TOKENS, sympy.Integer(start)), x, name=f"{name}.placed", role=role)[0]
        for start, (axis, x) in enumerate(((one, first), (step, rest)))
    ]
    return build.add(Pointwise("add"), *placed, name=name, role=role)[0]


def _sequences(build: Builder, prompts: Value, tokens: Value) -> Value:
    """prompts[b,s] of S tokens and tokens[b,i] -> ids[b,s] of m tokens."""
    parts = (("s", sympy.Integer(0), prompts), ("i", PROMPT, tokens))
    placed = [
        build.add(Insert(axis, POSITIONS, start), x, name="ids.placed", role=Role.INDEX)[0] for axis, start, x in parts
    ]
    return build.add(Pointwise("add"), *placed, name="ids", role=Role.INDEX)[0]


def following(build: Builder, ids: Value) -> Value:
    """ids[b,s] -> at each position the token that comes next; zero at the last, which predicts none."""
    (next_ones,) = build.add(Excerpt("s", FOLLOWING, sympy.Integer(1)), ids, name="following", role=Role.INDEX)
    return build.add(Insert("n", POSITIONS, sympy.Integer(0)), next_ones, name="targets", role=Role.INDEX)[0]
