"""Forward passes of assessment: log-probabilities of given tokens, values of positions, scores of sequences."""

from __future__ import annotations

import sympy

from graphs.axes import Role
from graphs.ir import Builder, Graph, Value
from graphs.models.roles import POLICY, REWARD, VALUE, ModelRole, forward
from graphs.ops.cross_entropy import CrossEntropy
from graphs.ops.pointwise import Pointwise
from graphs.rl.settings import Settings
from graphs.sizes import Sizes
from graphs.transforms.inline import inline


def log_probabilities(build: Builder, logits: Value, sizes: Sizes) -> Value:
    """logits[b,s,v] and a further input targets[b,s] -> the targets' log-probabilities [b,s]."""
    targets = build.input("targets", sizes.tensor("b s", Role.INDEX))
    surprise = build.add(CrossEntropy("v"), logits, targets, name="surprise")[0]
    return build.add(Pointwise("scale", sympy.Integer(-1)), surprise, name="log_probabilities")[0]


def started(name: str, sizes: Sizes, settings: Settings, role: ModelRole = POLICY) -> tuple[Builder, Value]:
    """A graph begun with a model's forward pass over ids[b,s], and what its head says."""
    build = Builder(name)
    return build, inline(build, forward(sizes, role, settings.ffn))["out"]


def scored_tokens(sizes: Sizes, settings: Settings) -> Graph:
    """ids[b,s], targets[b,s] -> log_probabilities[b,s]; of the policy or the reference, as the weights are."""
    build, logits = started("scored_tokens", sizes, settings)
    build.output("log_probabilities", log_probabilities(build, logits, sizes))
    return build.graph()


def values(sizes: Sizes, settings: Settings) -> Graph:
    """ids[b,s] -> values[b,s]: what the critic expects of the tokens after each position."""
    build, out = started("values", sizes, settings, VALUE)
    build.output("values", out)
    return build.graph()


def score(sizes: Sizes, settings: Settings) -> Graph:
    """ids[b,s] -> score[b]: what the reward model says of each sequence."""
    build, out = started("score", sizes, settings, REWARD)
    build.output("score", out)
    return build.graph()
