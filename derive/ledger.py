"""What each assumption of the ledger does to a question.

Without any assumption a question is read literally: every operation counted exactly, collectives charged where they
run (to the rank), only weights and gradients kept, and of unlike ranks the heaviest.  An assumption changes one
convention, or adds a hypothesis to the proof.  So dropping one is leaving out one change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from derive.costs.model import CostModel
from derive.forms import Form, symbol
from derive.measure import Question
from graphs.errors import GraphError
from graphs.transforms.backward import Recompute

#: no convention of the paper in force
LITERAL = CostModel(
    "literal",
    dot_product="2k-1",
    causal="exact",
    gemm_only=False,
    balanced_causal=False,
    balanced_routing=False,
)


def literal(question: Question) -> Question:
    """The question with no assumption in force."""
    return replace(question, model=LITERAL, copies=2, collectives=not question.over_all_ranks)


def _model(**changes: object) -> Callable[[Question], Question]:
    def apply(q: Question) -> Question:
        return replace(q, model=replace(q.model, **changes))  # type: ignore[arg-type]

    return apply


def _question(**changes: object) -> Callable[[Question], Question]:
    def apply(q: Question) -> Question:
        return replace(q, **changes)  # type: ignore[arg-type]

    return apply


#: assumptions that change what is measured
CONVENTIONS: dict[str, Callable[[Question], Question]] = {
    "dot-product-2k": _model(dot_product="2k"),
    "causal-half": _model(causal="half"),
    "gemm-work-only": _model(gemm_only=True),
    "gemm-depth-only": _model(gemm_only=True),
    "balanced-causal-layout": _model(balanced_causal=True),
    "balanced-routing": _model(balanced_routing=True),
    "adam-four-copies": _question(copies=4),
    "collectives-free-per-rank": _question(collectives=False),
    "collectives-log-global": _question(collectives=True),
    "blocks-only": _question(blocks_only=True),
    "layer-boundary": _question(recompute=Recompute.LAYER_BOUNDARY),
    "sequence-parallel": _question(scheme="Sequence"),
}

#: assumptions that are hypotheses of the proof, in text form
HYPOTHESES: dict[str, str] = {
    "dff-order-d": "d_ff = O(d)",
    "dff-order-d-beyond-work": "d_ff = O(d)",
}

#: assumptions that narrow the domain: the size is a multiple of the other one, on every rank
MULTIPLES: dict[str, tuple[str, str]] = {"experts-per-rank": ("E", "E_a")}

#: what is true of every model and may be used in every proof: a token's experts are among the experts
FACTS = ("E_a = O(E)",)

#: assumptions that say in words what is measured anyway; dropping one only lifts what contradicts it
PERMISSIONS = frozenset({"no-checkpointing", "boundary-stage-memory"})

#: assumptions that the graphs are built on
FIXED = {
    "tied-embedding": "the models are built with one table",
    "between-passes": "no other instant is measured",
    "experts-per-rank": "the longest row of a split expert axis is counted under it",
    "canonical-architecture": "the graphs are built for it",
    "ep-replicates-tokens": "the scheme of the row Expert keeps all tokens on every rank",
    "ep-partitions-tokens": "the scheme of the row 5D shares out the sequences over P_e",
}


def refuse_fixed(dropped: Iterable[str]) -> None:
    for name in dropped:
        if name in FIXED:
            raise GraphError(f"assumption {name!r} cannot be dropped: {FIXED[name]}")


def narrowed(factors: Mapping[str, Form], assumptions: Iterable[str]) -> dict[str, Form]:
    """The free factors of the sizes, with the divisibility that the assumptions add."""
    out = dict(factors)
    for multiple, of in (MULTIPLES[n] for n in assumptions if n in MULTIPLES):
        out[multiple] = out.get(multiple, symbol(f"{multiple}_1")) * symbol(of)
    return out


def under(question: Question, assumptions: Iterable[str]) -> Question:
    """The literal question with the conventions of the named assumptions in force."""
    q = literal(question)
    for name in assumptions:
        if name in CONVENTIONS:
            q = CONVENTIONS[name](q)
        elif name not in HYPOTHESES and name not in PERMISSIONS and name not in FIXED:
            raise GraphError(f"assumption {name!r} has no effect in derive/ledger.py; say there what it changes")
    return q
