"""The roles of a model in post-training: policy, reference, reward, value, and policy and value in one.

All have the embedding and the decoder.  Policy and reference end in the tied unembedding, the reward model in a
projection of the last token, the value model in a projection of every token; a shared actor-critic has both ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import sympy

from graphs.axes import Axis, Role
from graphs.blocks.decoder import DENSE, PLAIN, Attention, FeedForward, decoder
from graphs.blocks.dropout import NONE
from graphs.ir import Builder, Graph, Value
from graphs.ops.contraction import Contraction
from graphs.ops.cross_entropy import CrossEntropy
from graphs.ops.excerpt import Excerpt
from graphs.ops.lookup import Lookup
from graphs.ops.norm import LayerNorm
from graphs.ops.pointwise import Pointwise
from graphs.ops.reduction import Reduction
from graphs.ops.select import Select
from graphs.sizes import Sizes

Head = Callable[[Builder, Value, Sizes], Value]


def unembedding(build: Builder, x: Value, _sizes: Sizes) -> Value:
    """Logits of every position through the tied embedding."""
    return build.add(Contraction(("b", "s", "v")), x, Value("W_e"), name="unembedding")[0]


def own_unembedding(build: Builder, x: Value, sizes: Sizes) -> Value:
    """Logits of every position through a table of their own."""
    table = build.input("W_u", sizes.tensor("v c", Role.PARAMETER))
    return build.add(Contraction(("b", "s", "v")), x, table, name="unembedding")[0]


def value_head(build: Builder, x: Value, sizes: Sizes) -> Value:
    """One number per token."""
    w = build.input("w_value", sizes.tensor("c", Role.PARAMETER))
    return build.add(Contraction(("b", "s")), x, w, name="value_head")[0]


def reward_head(build: Builder, x: Value, sizes: Sizes) -> Value:
    """One number per sequence, read off its last token."""
    w = build.input("w_reward", sizes.tensor("c", Role.PARAMETER))
    (last,) = build.add(Select("s"), x, name="last_token")
    return build.add(Contraction(("b",)), last, w, name="reward_head")[0]


@dataclass(frozen=True)
class End:
    """A head, the name of what it gives, and whether its loss is cross-entropy (else squared error)."""

    output: str
    head: Head
    cross_entropy: bool = False

    @property
    def targets(self) -> str:
        """The input that it is compared with."""
        return "targets" if self.output == "out" else f"targets_{self.output}"


LOGITS = End("out", unembedding, cross_entropy=True)


@dataclass(frozen=True)
class ModelRole:
    """A role: what follows the decoder."""

    name: str
    ends: tuple[End, ...]

    @property
    def generates(self) -> bool:
        """Does it choose tokens of a vocabulary?"""
        return LOGITS in self.ends  # generation is built with a tied unembedding


POLICY = ModelRole("policy", (LOGITS,))
UNTIED = ModelRole("untied policy", (End("out", own_unembedding, cross_entropy=True),))
REFERENCE = ModelRole("reference", (LOGITS,))
REWARD = ModelRole("reward", (End("out", reward_head),))
VALUE = ModelRole("value", (End("out", value_head),))
ACTOR_CRITIC = ModelRole("shared", (LOGITS, End("values", value_head)))
ROLES = {role.name: role for role in (POLICY, REFERENCE, REWARD, VALUE, ACTOR_CRITIC)}


def forward(
    sizes: Sizes,
    role: ModelRole = POLICY,
    ffn: FeedForward = DENSE,
    loss: bool = False,
    attention: Attention = PLAIN,
    dropout: Fraction = NONE,
    rows: sympy.Expr | None = None,
) -> Graph:
    """ids[b,s] -> what the heads give; with ``loss`` also the scalar mean loss against targets, summed over heads.

    ``dropout`` is the rate in the blocks; the embedding is not dropped.  With ``rows`` the head has that many rows,
    those of the last positions, as for the log-probabilities of a response.
    """
    build = Builder(role.name)
    ids = build.input("ids", sizes.tensor("b s", Role.INDEX))
    table = build.input("W_e", sizes.tensor("v c", Role.PARAMETER))
    (x,) = build.add(Lookup("v"), table, ids, name="embedding")
    x = decoder(build, x, sizes, ffn, attention, dropout)
    if rows is not None:
        (x,) = build.add(Excerpt("s", Axis("s", rows), sizes.m - rows), x, name="rows")
    gain = build.input("gain_f", sizes.tensor("c", Role.PARAMETER))
    x = build.add(LayerNorm("c"), x, gain, name="norm_f")[0]
    losses = []
    for end in role.ends:
        out = end.head(build, x, sizes)
        build.output(end.output, out)
        losses += [mean_loss(build, out, end.cross_entropy, end.targets)] if loss else []
    if loss:
        whole = reduce(lambda a, b: build.add(Pointwise("add"), a, b, name="losses")[0], losses)
        build.output("loss", whole)
    return build.graph()


def mean_loss(build: Builder, out: Value, cross_entropy: bool, against: str = "targets") -> Value:
    """The mean of cross-entropy, or of the squared error, against a further input."""
    kept = build.type(out).without("v")
    if cross_entropy:
        targets = build.input(against, kept.with_role(Role.INDEX))
        each = build.add(CrossEntropy("v"), out, targets, name="cross_entropy")[0]
    else:
        targets = build.input(against, kept.with_role(Role.INPUT))
        (error,) = build.add(Pointwise("subtract"), out, targets, name="error")
        (each,) = build.add(Pointwise("square"), error, name="squared_error")
    share: sympy.Expr = sympy.Integer(1)
    for axis in kept.axes:
        share = share / axis.size
    (scaled,) = build.add(Pointwise("scale", share), each, name="share")
    return build.add(Reduction("sum", kept.names), scaled, name="loss")[0]
