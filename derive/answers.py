"""What the graphs give for a question that is asked in words: which measure, counted how, under which policies.

An answer is its contributions, occurrence by occurrence; nothing here knows what anybody printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from derive.communication import items
from derive.costs.model import PAPER
from derive.forms import Form, symbol, total
from derive.measure import FORWARD, STEP, TRAINING, Question, graph_of, held, layers_of
from derive.memory import MIXED_COPIES, Widths, elements, group_of, in_bytes, state_terms
from derive.work import Term, work_terms
from graphs.blocks.dropout import NONE, USUAL
from graphs.ir import Graph, Node, Value
from graphs.models.roles import POLICY, UNTIED
from graphs.ops.contraction import Contraction
from graphs.ops.lookup import Lookup
from graphs.ops.repeat import Repeat
from graphs.schemes import schemes
from graphs.transforms.recompute import Recompute

CAUSAL = ("exact", "half", "dense")
EMBEDDINGS = {"tied": POLICY, "untied": UNTIED}
#: a way of counting: every layer's whole forward pass runs twice, its last product too, which no backward pass reads
WHOLE_LAYERS = "whole-layers"
RECOMPUTED = {**{r.value.replace("_", "-"): r for r in Recompute}, WHOLE_LAYERS: Recompute.NONE}
#: what a parameter can be used for
USES = ("layers", "gains", "embedding", "unembedding")


def scheme_names() -> dict[str, str]:
    """Schemes by the words for them, but for pipelines, whose ranks do unlike things."""
    return {name.lower(): name for name, scheme in sorted(schemes().items()) if not scheme.pipeline}


@dataclass(frozen=True)
class Asked:
    """One question about the canonical decoder; of the fields, those count that its measure depends on.

    ``copies`` are the values kept of a parameter, and ``widths`` their bytes and those of what a layer saves.
    """

    measure: str
    causal: str = PAPER.causal
    embedding: str = "tied"
    scheme: str = "none"
    recompute: str = "none"
    dropout: bool = False
    copies: int = MIXED_COPIES
    widths: Widths = field(default_factory=Widths)

    def said(self) -> dict[str, Any]:
        """What of it the measure depends on."""
        return {name: asdict(self)[name] for name in ("embedding", *DEPENDS[self.measure])}

    @property
    def question(self) -> Question:
        return Question(
            role=EMBEDDINGS[self.embedding],
            scheme=scheme_names()[self.scheme],
            recompute=RECOMPUTED[self.recompute],
            copies=self.copies,
            dropout=USUAL if self.dropout else NONE,
            model=replace(PAPER, causal=self.causal),
        )


@dataclass(frozen=True)
class Part:
    """What one occurrence contributes; ``groups`` are the words in which it may be spoken of."""

    where: str
    groups: frozenset[str]
    amount: Form

    def is_of(self, names: Iterable[str]) -> bool:
        """All that it is, is named."""
        return self.groups <= frozenset(names)


def parts_of(asked: Asked) -> tuple[Part, ...]:
    """The answer: of one rank in one step, over the whole batch."""
    return tuple(MEASURES[asked.measure](asked))


# -- parameters -------------------------------------------------------------------------------------------------------
def parameters(asked: Asked) -> Iterator[Part]:
    """Entries of every parameter of the model, by what it is used for."""
    graph = graph_of(replace(asked.question, scheme="None"), FORWARD)
    for name, tensor in graph.weights():
        yield Part(name, frozenset(_uses(graph, name)), elements(tensor, PAPER))


def _uses(graph: Graph, name: str, within: bool = False) -> Iterator[str]:
    for node in graph.nodes:
        for at in (i for i, v in enumerate(node.operands) if v == Value(name)):
            if isinstance(node.op, Repeat):
                yield from _uses(node.op.body, list(node.op.body.inputs)[at], within=True)
            else:
                yield _use(node, within)


def _use(node: Node, within: bool) -> str:
    if isinstance(node.op, Lookup):
        return "embedding"
    if isinstance(node.op, Contraction):
        return "layers" if within else "unembedding"
    return "gains"


# -- work -------------------------------------------------------------------------------------------------------------
def _forward_work(asked: Asked) -> Iterator[Part]:
    q = asked.question
    return _worked(work_terms(graph_of(q, FORWARD), q.model))


def _training_work(asked: Asked) -> Iterator[Part]:
    q = asked.question
    found = list(work_terms(graph_of(q, TRAINING), q.model))
    again = [t for t in found if t.in_loop and t.phase == "forward"] if asked.recompute == WHOLE_LAYERS else []
    return _worked([*found, *again])


def _worked(terms: Iterable[Term]) -> Iterator[Part]:
    return (Part(t.where, frozenset({_stem(t.where)}), t.amount) for t in terms)


def _stem(where: str) -> str:
    """``scores`` of ``blocks'/scores.d0'``: what the occurrence is, or what it is the backward pass of."""
    return where.rpartition("/")[2].partition(".")[0].partition("[")[0]


# -- memory and volume ------------------------------------------------------------------------------------------------
def _saved(asked: Asked) -> Iterator[Part]:
    """Bytes that one layer saves."""
    q = asked.question
    layers = layers_of(q)
    kept = (t for t in held(q) if t.phase == "saved" and t.in_loop)
    return (Part(t.where, frozenset({group_of(t)}), in_bytes(t, asked.widths).amount / layers) for t in kept)


def _state(asked: Asked) -> Iterator[Part]:
    """Bytes of weights, gradients and optimizer state."""
    q = asked.question
    kept = state_terms(graph_of(q), schemes()[q.scheme], q.copies)
    return (Part(t.where, frozenset({group_of(t)}), in_bytes(t, asked.widths).amount) for t in kept)


def _volume(asked: Asked) -> Iterator[Part]:
    """Elements that a rank sends."""
    q = asked.question
    for item in items(graph_of(q, STEP), schemes()[q.scheme].meshes):
        (sent,) = item.sent.amount.members
        yield Part(item.where, frozenset({_stem(item.where)}), sent)


MEASURES: dict[str, Callable[[Asked], Iterator[Part]]] = {
    "parameters": parameters,
    "forward work": _forward_work,
    "training work": _training_work,
    "saved by a layer": _saved,
    "training state": _state,
    "volume": _volume,
}
#: measure -> what it depends on besides the embedding
DEPENDS: dict[str, tuple[str, ...]] = {
    "parameters": (),
    "forward work": ("causal",),
    "training work": ("causal", "recompute"),
    "saved by a layer": ("scheme", "recompute", "dropout", "widths"),
    "training state": ("scheme", "copies", "widths"),
    "volume": ("scheme",),
}


def counted(asked: Asked, uses: Iterable[str]) -> tuple[Part, ...]:
    """The parameters of the model of which some use is named."""
    named = frozenset(uses)
    return tuple(p for p in parameters(asked) if p.groups & named)


#: what a form is given per -> what it is multiplied by
PER: dict[str, Callable[[Asked], Form]] = {
    "batch": lambda _: Form.constant(1),
    "sequence": lambda _: symbol("B"),
    "token": lambda _: symbol("B") * symbol("m"),
    "parameter": lambda asked: total(p.amount for p in counted(asked, USES)),
}
