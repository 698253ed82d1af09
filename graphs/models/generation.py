"""Autoregressive generation with a key-value cache: prefill of the prompt, then one decode step for each further token.

It is built of the blocks, and reads the parameters, of ``graphs.models.roles.forward``.
"""

from __future__ import annotations

from dataclasses import replace

import sympy

from graphs.axes import Axis, Role
from graphs.blocks.attention import CACHED, Cache
from graphs.blocks.decoder import DENSE, FeedForward, caching_decoder
from graphs.blocks.sampling import next_token
from graphs.ir import Builder, Graph, Value
from graphs.ops.constant import Broadcast
from graphs.ops.contraction import Contraction
from graphs.ops.fold import Blocks, Fold
from graphs.ops.lookup import Lookup
from graphs.ops.norm import LayerNorm
from graphs.ops.scan import Scan
from graphs.ops.select import Select
from graphs.sizes import Sizes
from graphs.symbols import index, size

PROMPT, RESPONSE, STEP = size("S"), size("T"), index("t")
#: the last token's keys are never needed, so never written
POSITIONS = Axis("t", PROMPT + RESPONSE - 1)
STEPS = Axis("step", RESPONSE - 1)
#: the occurrence that runs all decode steps
DECODE = "decode"


def generation(sizes: Sizes, ffn: FeedForward = DENSE, draw: bool = False, shared: Axis | None = None) -> Graph:
    """ids[b,s] of a prompt of S tokens -> T tokens: ``first``[b] from its last logits, ``rest``[step,b] by decoding.

    Further outputs are their log-probabilities, ``log_first`` and ``log_rest``, and the cache, ``keys`` and ``values``
    [layer,b,t,h,k].  Tokens are chosen greedily, or with ``draw`` by the uniform numbers of two further inputs,
    ``uniform``[b] and ``uniforms``[step,b].  Where the rollouts of a prompt, along an axis of that size, have a
    ``shared`` prefill, each prompt of ids is run once for all of its rollouts, which follow one another in b.
    """
    prompt = replace(sizes, m=PROMPT, B=sizes.B / shared.size if shared else sizes.B)
    build = Builder("generation")
    ids = build.input("ids", prompt.tensor("b s", Role.INDEX))
    uniform = build.input("uniform", sizes.tensor("b", Role.INPUT)) if draw else None
    x = _embedded(build, ids, prompt)
    x, *cache = caching_decoder(build, x, prompt, ffn, Cache(POSITIONS, sympy.Integer(0)))
    logits = _last_logits(build, x, prompt)
    if shared:
        logits, *cache = (_for_each_rollout(build, v, shared) for v in (logits, *cache))
    first, log_first = next_token(build, logits, uniform)
    rest = _decoded(build, first, cache, sizes, ffn, draw)
    for name, value in {"first": first, "log_first": log_first, **rest}.items():
        build.output(name, value)
    return build.graph()


def _decoded(
    build: Builder, first: Value, cache: list[Value], sizes: Sizes, ffn: FeedForward, draw: bool
) -> dict[str, Value]:
    body = decode_step(sizes, ffn, draw)
    stacked = [build.input("uniforms", sizes.tensor("b", Role.INPUT).prepend(STEPS))] if draw else []
    carried = [first, *cache]
    shared = [Value(name) for name in list(body.inputs)[len(carried) + len(stacked) :]]
    loop = Scan(body, STEPS, carried=len(carried), stacked=len(stacked), index=STEP)
    _, keys, values, rest, log_rest = build.add(loop, *carried, *stacked, *shared, name=DECODE)
    return {"rest": rest, "log_rest": log_rest, "keys": keys, "values": values}


def decode_step(sizes: Sizes, ffn: FeedForward = DENSE, draw: bool = False) -> Graph:
    """Step t: the latest token joins the S + t - 1 that are cached and attends to all S + t; the next one is chosen."""
    one = replace(sizes, m=sympy.Integer(1))
    build = Builder("decode_step")
    ids = build.input("token", one.tensor("b", Role.INDEX))
    before = Cache(POSITIONS, PROMPT + STEP - 1)
    cache = [build.input(name, before.tensor(one).prepend(one.axes()["layer"])) for name in CACHED]
    uniform = build.input("uniform", one.tensor("b", Role.INPUT)) if draw else None
    (ids,) = build.add(Broadcast(one.tensor("b s").axes), ids, name="as_sequence", role=Role.INDEX)
    x = _embedded(build, ids, one)
    x, *cache = caching_decoder(build, x, one, ffn, before, cache)
    chosen, log_probability = next_token(build, _last_logits(build, x, one), uniform)
    carried = zip(("token", *CACHED), (chosen, *cache), strict=True)
    for name, value in (*carried, ("chosen", chosen), ("log_probability", log_probability)):
        build.output(name, value)
    return build.graph()


def _for_each_rollout(build: Builder, x: Value, rollouts: Axis) -> Value:
    """A copy of what each prompt has for each of its rollouts."""
    tensor = build.type(x)
    after = tensor.names.index("b") + 1
    axes = (*tensor.axes[:after], rollouts, *tensor.axes[after:])
    (copies,) = build.add(Broadcast(axes), x, name=f"{x.node}.copies", role=tensor.role)
    return build.add(Fold(Blocks.joined(tensor.axis("b"), rollouts)), copies, name=f"{x.node}.rollouts")[0]


def _embedded(build: Builder, ids: Value, sizes: Sizes) -> Value:
    table = build.input("W_e", sizes.tensor("v c", Role.PARAMETER))
    return build.add(Lookup("v"), table, ids, name="embedding")[0]


def _last_logits(build: Builder, x: Value, sizes: Sizes) -> Value:
    """x[b,s,c] -> [b,v]: norm and unembedding of the last position alone."""
    (x,) = build.add(Select("s"), x, name="last_token")
    gain = build.input("gain_f", sizes.tensor("c", Role.PARAMETER))
    x = build.add(LayerNorm("c"), x, gain, name="norm_f")[0]
    return build.add(Contraction(("b", "v")), x, Value("W_e"), name="unembedding")[0]
