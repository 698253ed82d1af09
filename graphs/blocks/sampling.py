"""Choosing the next token from its logits, and its log-probability from the same logits."""

from __future__ import annotations

import sympy

from graphs.ir import Builder, Value
from graphs.ops.cross_entropy import CrossEntropy
from graphs.ops.pointwise import Pointwise
from graphs.ops.relabel import Relabel
from graphs.ops.sample import Sample
from graphs.ops.softmax import Softmax


def next_token(build: Builder, logits: Value, uniform: Value | None = None) -> tuple[Value, Value]:
    """logits[b,v] -> ids[b] and their log-probabilities[b]; greedy, or by inverse transform of uniform[b].

    What is chosen from has an axis name of its own, so that where v is split each rank gathers the logits and chooses.
    """
    (whole,) = build.add(Relabel("v", "choice"), logits, name="choices")
    if uniform is None:
        (ids,) = build.add(Sample("choice"), whole, name="sample")
    else:
        (p,) = build.add(Softmax("choice"), whole, name="token_probabilities")
        (ids,) = build.add(Sample("choice"), p, uniform, name="sample")
    surprise = build.add(CrossEntropy("v"), logits, ids, name="surprise")[0]
    (log_probability,) = build.add(Pointwise("scale", sympy.Integer(-1)), surprise, name="log_probability")
    return ids, log_probability
