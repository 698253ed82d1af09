"""What each assumption of the ledger does to a question.

Without any assumption a question is read literally: every operation counted exactly, collectives charged where they
run (to the rank), only weights and gradients kept, and of unlike ranks the heaviest.  An assumption changes one
convention, or adds a hypothesis to the proof.  So dropping one is leaving out one change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import overload

from derive.costs.model import CostModel
from derive.forms import Form, symbol
from derive.measure import Question
from derive.placements import StageQuestion
from graphs.errors import GraphError
from graphs.placements import placement
from graphs.stages import Options
from graphs.symbols import size
from graphs.transforms.recompute import Recompute

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

#: every option of the algorithms open, or in the state that costs most
LITERAL_OPTIONS = Options(
    log_probabilities_own_pass=True,
    values_own_pass=False,
    share_prefill=True,
    sequential_reward=True,
    epochs=size("n_ep"),
    updates=size("n_up"),
)


def literal_stage(q: StageQuestion) -> StageQuestion:
    """The question about a stage with no assumption in force: groups run side by side, and nothing is offloaded."""
    blocks = replace(q.blocks, question=literal(q.blocks.question))
    return replace(q, options=LITERAL_OPTIONS, one_at_a_time=False, residency="all", glue=True, copies=2, blocks=blocks)


def _stage(**changes: object) -> Callable[[StageQuestion], StageQuestion]:
    def apply(q: StageQuestion) -> StageQuestion:
        return replace(q, **changes)  # type: ignore[arg-type]

    return apply


def _options(**changes: object) -> Callable[[StageQuestion], StageQuestion]:
    def apply(q: StageQuestion) -> StageQuestion:
        return replace(q, options=replace(q.options, **changes))  # type: ignore[arg-type]

    return apply


#: assumptions that change how the stages of an iteration are built or placed
STAGE_CONVENTIONS: dict[str, Callable[[StageQuestion], StageQuestion]] = {
    "adam-four-copies": _stage(copies=4),
    "sequential-execution": _stage(one_at_a_time=True),
    "disaggregated-execution": _stage(placement=placement("disaggregated")),
    "stage-resident": _stage(residency="stage"),
    "glue-free": _stage(glue=False),
    "log-probabilities-on-the-fly": _options(log_probabilities_own_pass=False),
    "values-own-pass": _options(values_own_pass=True),
    "prefill-per-rollout": _options(share_prefill=False),
    "outcome-reward": _options(sequential_reward=False),
    "one-epoch": _options(epochs=Options.epochs),
    "one-update": _options(updates=Options.updates),
    "joint-update": _options(joint_update=True),
}

#: assumptions that are hypotheses of the proof, in text form
HYPOTHESES: dict[str, str] = {
    "dff-order-d": "d_ff = O(d)",
    "dff-order-d-beyond-work": "d_ff = O(d)",
    "reference-as-policy": "C_f_tok(pi) = O(C_f_tok(ref))",
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
    "critic-snapshot": "the placement's declaration has its critic assess with it",
    "whole-models-in-a-group": "the graph of stages knows models, not the ranks of a group",
    "invocations-only": "the graph of stages has costs for model invocations alone",
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


@overload
def under(question: Question, assumptions: Iterable[str]) -> Question: ...
@overload
def under(question: StageQuestion, assumptions: Iterable[str]) -> StageQuestion: ...
def under(question: Question | StageQuestion, assumptions: Iterable[str]) -> Question | StageQuestion:
    """The literal question with the conventions of the named assumptions in force."""
    if isinstance(question, StageQuestion):
        return _stage_under(literal_stage(question), tuple(assumptions))
    q = literal(question)
    for name in assumptions:
        if name in CONVENTIONS:
            q = CONVENTIONS[name](q)
        else:
            _refuse_unless_idle(name)
    return q


def _stage_under(q: StageQuestion, assumptions: Iterable[str]) -> StageQuestion:
    """What is said of models holds for the building blocks of the stages."""
    for name in assumptions:
        if name in STAGE_CONVENTIONS:
            q = STAGE_CONVENTIONS[name](q)
        elif name in CONVENTIONS:
            q = replace(q, blocks=replace(q.blocks, question=CONVENTIONS[name](q.blocks.question)))
        else:
            _refuse_unless_idle(name)
    return q


def _refuse_unless_idle(name: str) -> None:
    if name not in HYPOTHESES and name not in PERMISSIONS and name not in FIXED:
        raise GraphError(f"assumption {name!r} has no effect in derive/ledger.py; say there what it changes")
