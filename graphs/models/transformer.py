"""Decoder-only transformers of the usual kinds: layers of chosen parts, in loops, between an embedding and logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Protocol

import sympy

from graphs.axes import Axis, Causal, Role, Tensor
from graphs.blocks.scope import Scope
from graphs.errors import GraphError
from graphs.ir import Builder, Graph, Value
from graphs.models.prediction import joined
from graphs.models.roles import mean_loss
from graphs.ops.lookup import Lookup
from graphs.ops.norm import LayerNorm
from graphs.ops.positions import Positions
from graphs.ops.relabel import Relabel
from graphs.ops.repeat import Repeat
from graphs.sizes import Shape
from graphs.transforms.backward import part_of_training
from graphs.transforms.recompute import Recompute

RMS, LAYER_NORM = "rms", "layer"
EMBEDDING, HEAD, LEARNED = "W_e", "W_u", "W_p"
#: what a stage of a pipeline gets from the one before it
RECEIVED = "x"
#: weight of the loss of further tokens
AHEAD = sympy.Rational(3, 10)


class Part(Protocol):
    """A feed-forward layer: a function of a normalised input."""

    def build(self, at: Scope, x: Value) -> Value:
        """x[b,s,c] -> [b,s,c]."""
        ...


class Attention(Part, Protocol):
    """A function of a normalised input that lets tokens see earlier ones."""

    def decoding(self) -> Attention:
        """The same function of the same parameters as it is computed for one query at a time."""
        ...


@dataclass(frozen=True)
class Layer:
    """A decoder block; equal ones may share a loop."""

    attention: Attention
    ffn: Part


@dataclass(frozen=True)
class Transformer:
    """A model: its sizes and its layers from first to last.

    ``norm`` is ``rms``, or ``layer`` for layer norms with a bias; ``tied``: logits are read off the embedding table.
    A table of learned positions is there where the shape has ``positions``.  Of ``modules`` that predict further tokens
    (`graphs.models.prediction`) ``ahead`` are in place.  A stage of a pipeline embeds where it is the ``first``, and
    reads logits where it is the ``last``.
    """

    name: str
    shape: Shape
    layers: tuple[Layer, ...]
    norm: str = RMS
    tied: bool = False
    modules: int = 0
    ahead: int = 0
    first: bool = True
    last: bool = True

    def stages(self, count: int) -> list[Transformer]:
        """The model as a pipeline of so many stages, with as many layers each; GraphError where these do not divide."""
        each, rest = divmod(len(self.layers), count)
        if rest:
            raise GraphError(
                f"P_p={count} does not divide {len(self.layers)}, the number of layers of {self.name}; change one"
            )
        cut = [self.layers[i : i + each] for i in range(0, len(self.layers), each)]
        last = count - 1
        return [replace(self, layers=part, first=i == 0, last=i == last) for i, part in enumerate(cut)]

    def predicting(self) -> Transformer:
        """With its modules for further tokens in place; GraphError where it has none."""
        if not self.modules:
            raise GraphError(f"{self.name} has no modules that predict further tokens; evaluate it without them")
        return replace(self, ahead=self.modules)

    def decoding(self) -> Transformer:
        """The same function as it is computed for one token at a time."""
        layers = tuple(replace(layer, attention=layer.attention.decoding()) for layer in self.layers)
        return replace(self, layers=layers)

    def at(self, **sizes: sympy.Expr | int) -> Transformer:
        """The same model with some sizes replaced, such as B and m."""
        given = {name: sympy.sympify(n) for name, n in sizes.items()}
        return replace(self, shape=replace(self.shape, **given))


def forward(model: Transformer, loss: bool = False) -> Graph:
    """ids[b,s] -> logits ``out``[b,s,v]; with ``loss`` also the mean cross-entropy against targets[b,s].

    Where modules are in place, also ``out_k`` for ``ids_k``, and `AHEAD` times their mean loss against ``targets_k``.
    A stage of a pipeline that is not the first has an input ``x``[b,s,c], one that is not the last has it as ``out``.
    """
    build = Builder(model.name)
    at = Scope(build, model.shape)
    x = _embedded(at, model) if model.first else build.input(RECEIVED, model.shape.tensor("b s c"))
    loops = periods(model.layers)
    for i, (layers, times) in enumerate(loops):
        x = _loop(at, x, model, layers, times, f"part_{i + 1}." if len(loops) > 1 else "")
    if not model.last:
        build.output("out", x)
        return build.graph()
    out = _logits(at, x, model)
    build.output("out", out)
    sum_of_losses = mean_loss(build, out, cross_entropy=True) if loss else None
    for k in range(1, model.ahead + 1):
        inside = at.within(f"ahead_{k}.")
        x = joined(inside, x, at.parameter(EMBEDDING, "v c"), k)
        x = _layer(inside, x, model.layers[-1], model.norm)
        out = _logits(inside, x, model)
        build.output(f"out_{k}", out)
        if sum_of_losses is not None:
            further = mean_loss(build, out, cross_entropy=True, against=f"targets_{k}")
            further = at.apply("scale", further, factor=AHEAD / model.ahead, name=f"loss_{k}")
            sum_of_losses = at.apply("add", sum_of_losses, further, name="losses")
    if sum_of_losses is not None:
        build.output("loss", sum_of_losses)
    return build.graph()


def step(model: Transformer, recompute: Recompute = Recompute.NONE) -> Graph:
    """Forward and backward of the model, or of a stage, whose part of the backward pass starts from ``d:out``."""
    graph = forward(model, loss=model.last)
    return part_of_training(graph, "loss" if model.last else "out", () if model.first else (RECEIVED,), recompute)


def _embedded(at: Scope, model: Transformer) -> Value:
    """ids[b,s] -> [b,s,c], with learned positions where the model has them."""
    ids = at.build.input("ids", model.shape.tensor("b s", Role.INDEX))
    (x,) = at.build.add(Lookup("v"), at.parameter(EMBEDDING, "v c"), ids, name="embedding")
    if model.shape.positions is None:
        return x
    (where,) = at.build.add(Positions(model.shape.axes()["s"]), name="positions")
    (learned,) = at.build.add(Lookup("p"), at.parameter(LEARNED, "p c"), where, name="position_embedding")
    return at.apply("add", x, learned, name="embeddings")


def _logits(at: Scope, x: Value, model: Transformer) -> Value:
    """x[b,s,c] -> [b,s,v], read off the model's one table."""
    whole = replace(at, prefix="")
    table = whole.parameter(EMBEDDING if model.tied else HEAD, "v c")
    return at.contract(_normalised(at, x, model.norm, "f"), table, "b s v", "unembedding")


def block(model: Transformer, layers: Sequence[Layer]) -> Graph:
    """x[b,s,c] and the parameters of one or more layers -> x[b,s,c]."""
    build = Builder("block")
    x = build.input("x", model.shape.tensor("b s c"))
    for i, layer in enumerate(layers):
        at = Scope(build, model.shape, f"{i + 1}." if len(layers) > 1 else "")
        x = _layer(at, x, layer, model.norm)
    build.output("x", x)
    return build.graph()


def _layer(at: Scope, x: Value, layer: Layer, norm: str) -> Value:
    a = layer.attention.build(at, _normalised(at, x, norm, "1"))
    x = at.apply("add", x, a, name="residual_1")
    f = layer.ffn.build(at, _normalised(at, x, norm, "2"))
    return at.apply("add", x, f, name="residual_2")


def _loop(at: Scope, x: Value, model: Transformer, layers: Sequence[Layer], times: int, prefix: str) -> Value:
    body, axis = block(model, layers), Axis("layer", sympy.Integer(times))
    stacked = [at.build.input(f"{prefix}{n}", t.prepend(axis)) for n, t in body.inputs.items() if n != "x"]
    loop = Repeat(body, axis, carried=1, stacked=len(stacked))
    return at.build.add(loop, x, *stacked, name=f"{prefix}blocks")[0]


def _normalised(at: Scope, x: Value, norm: str, label: str) -> Value:
    gain, name = f"gain_{label}", f"norm_{label}"
    if norm == RMS:
        return at.rms_norm(x, gain, "c", name)
    y = at.build.add(LayerNorm("c"), x, at.parameter(gain, "c"), name=f"{at.prefix}{name}")[0]
    return at.apply("add", y, at.parameter(f"bias_{label}", "c"), name=f"{name}.bias")


def periods(layers: Sequence[Layer]) -> list[tuple[tuple[Layer, ...], int]]:
    """The layers as loops: one over the shortest pattern that they repeat, else one for each run of equal ones."""
    count = len(layers)
    for n in range(1, count // 2 + 1):
        if count % n == 0 and all(layers[i] == layers[i % n] for i in range(count)):
            return [(tuple(layers[:n]), count // n)]
    return [((layer,), len(list(run))) for layer, run in groupby(layers)]


def remembered(graph: Graph) -> list[tuple[Tensor, Causal]]:
    """What later tokens read of a token in one pass through a block, and which of them do.

    That is what becomes a key position: in a cache it is all that there is to hold.
    """
    renamed = [n for n in graph.nodes if isinstance(n.op, Relabel) and (n.op.old, n.op.new) == ("s", "t")]
    return [(n.types[0], _readers(graph, Value(n.name))) for n in renamed]


def _readers(graph: Graph, value: Value) -> Causal:
    """The restriction on the pairs of positions that the value comes to be used for."""
    for node in (n for n in graph.nodes if value in n.operands):
        types = (*node.types, *(graph.type(v) for v in node.operands))
        found = [r for t in types for r in t.domain if isinstance(r, Causal)]
        return found[0] if found else _readers(graph, Value(node.name))
    raise GraphError(f"graph {graph.name}: nothing reads {value.node} under a causal restriction; leave it out")
