"""Every table cell as a question to the graph: which computation, which measure, seen from where.

This file knows the tables' headings, never their contents.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from derive.building_blocks import ACTIVATIONS, EXPANSIONS, Blocks
from derive.forms import Form, Max, symbol
from derive.generation import (
    decode_remainder,
    decode_work,
    generation_depth,
    generation_work,
    prefill_remainder,
    prefill_work,
    step_remainder,
    step_work,
)
from derive.ledger import CONVENTIONS, under
from derive.measure import Measured, Question, backward_depth, forward_depth, memory, training_depth, work
from derive.placements import StageQuestion, stage_depth, stage_memory, stage_work
from graphs.blocks.decoder import ATTENTIONS, FEED_FORWARDS
from graphs.errors import GraphError
from graphs.models.roles import POLICY, REFERENCE, REWARD, VALUE
from graphs.placements import placements
from graphs.schemes import Declaration, declared
from graphs.sizes import Sizes
from graphs.stages.stage import STAGES, TRAINING

#: the heading of formulas in tables that have one column of them
FORMULA_COLUMN = "Mathematical expression"

#: from a question of the right kind to its answer
Measure = Callable[[Any], Measured]


@dataclass(frozen=True)
class Instance:
    """One reading of a cell: the model its letter M stands for (None where the cell has no M) and the question.

    ``each`` measures one decode step as a function of its index, where ``measure`` adds up all of them.
    """

    model: str | None
    question: Question | StageQuestion
    measure: Measure
    each: Measure | None = None

    @property
    def iteration(self) -> Instance:
        """The same about one decode step; GraphError where the cell is not about steps."""
        if self.each is None:
            raise GraphError(
                "a printed form has a loose index, but derive/cells.py names no measure of one step; add it"
            )
        return replace(self, measure=self.each, each=None)


#: printed row headings; each is the name of a scheme, whose declaration says what the row speaks of
ROWS = ("None", "Data", "Pipeline", "Tensor", "Context", "Expert", "3D", "5D")
COLUMNS: dict[str, Measure] = {"Work": work, "Depth": training_depth, "Memory": memory}
#: tables in the language of named costs, where maxima are short
STAGE_TABLES = ("IV", "IX")
#: table -> seen over all ranks
SCHEME_TABLES = {"V": False, "VI": True, "VII": False, "VIII": True}


def _per_token(measured: Measured) -> Measured:
    """Divide by the tokens of the batch."""
    tokens = symbol("B") * symbol("m")
    parts = tuple((where, amount / tokens) for where, amount in measured.parts)
    return Measured(Max.of(*(f / tokens for f in measured.value.members)), parts)


def forward_per_token(q: Question) -> Measured:
    return _per_token(work(q, ["forward"]))


def backward_per_token(q: Question) -> Measured:
    return _per_token(work(q, ["backward"]))


_PI = Question(sizes=Sizes.of_model("pi"), role=POLICY)
_REFERENCE = replace(_PI, role=REFERENCE)
_REWARD = Question(sizes=Sizes.of_model("R"), role=REWARD)
_VALUE = Question(sizes=Sizes.of_model("V"), role=VALUE)
_ANY = Question(sizes=Sizes.of_model("M"), scheme="Tensor")
_TRAINED = (("pi", _PI), ("R", _REWARD), ("V", _VALUE))

BUILDING_BLOCKS: dict[str, tuple[Instance, ...]] = {
    "III/C_f/policy": (Instance(None, _PI, forward_per_token),),
    "III/C_f/reference": (Instance(None, _REFERENCE, forward_per_token),),
    "III/C_f/reward": (Instance(None, _REWARD, forward_per_token),),
    "III/C_f/value": (Instance(None, _VALUE, forward_per_token),),
    "III/C_b": tuple(Instance(m, q, backward_per_token) for m, q in _TRAINED),
    "III/C_gen/prefill": (Instance(None, _PI, prefill_work),),
    "III/C_gen/prefill/remainder": (Instance(None, _PI, prefill_remainder),),
    "III/C_gen/decode": (Instance(None, _PI, decode_work, each=step_work),),
    "III/C_gen/decode/remainder": (Instance(None, _PI, decode_remainder, each=step_remainder),),
    "III/C_gen/total": (Instance(None, _PI, generation_work, each=step_work),),
    "III/D_f/policy": (Instance(None, _PI, forward_depth),),
    "III/D_f/reference": (Instance(None, _REFERENCE, forward_depth),),
    "III/D_f/reward": (Instance(None, _REWARD, forward_depth),),
    "III/D_f/value": (Instance(None, _VALUE, forward_depth),),
    "III/D_f_TP": tuple(Instance("M", replace(_ANY, role=r), forward_depth) for r in (POLICY, REWARD, VALUE)),
    "III/D_b": tuple(Instance(m, q, backward_depth) for m, q in _TRAINED),
    "III/D_gen": (Instance(None, _PI, generation_depth),),
}


#: Table IV: column headings; it looks at the algorithms as a whole, over all device groups
ALGORITHMS = ("PPO", "GRPO", "DPO")
#: Table IX: row headings, in the paper's order
PLACEMENTS = ("Baseline", "AC shared", "Disaggregated", "Hybrid", "Stage fusion", "Asynchronous", "Combined")
STAGE_COLUMNS: dict[str, Measure] = {"Work": stage_work, "Depth": stage_depth, "Memory": stage_memory}


@lru_cache(maxsize=1)
def stage_cells() -> dict[str, Instance]:
    """The cells of Tables IV and IX; the latter spells the activations of training out."""
    out = {}
    for algorithm in ALGORITHMS:
        for column, measure in STAGE_COLUMNS.items():
            for stage in STAGES:
                whole = StageQuestion(algorithm, stage=stage, over_all_groups=True)
                out[f"IV/{algorithm}/{column}/{stage}"] = Instance(None, whole, measure)
    known = {p.heading: p for p in placements().values()}
    for heading in PLACEMENTS:
        for stage in STAGES:
            for column, measure in STAGE_COLUMNS.items():
                spelled = {ACTIVATIONS} if (stage, column) == (TRAINING, "Memory") else ()
                asked = StageQuestion("PPO", known[heading], stage, blocks=Blocks(frozenset(spelled)))
                out[f"IX/{heading}/{stage}/{column}"] = Instance(None, asked, measure)
    return out


def headings(cell: str) -> tuple[str, str, str]:
    """Table, row and column of a cell."""
    table, row, *rest = cell.split("/")
    if cell in BUILDING_BLOCKS:
        return table, row, FORMULA_COLUMN
    if table == "IV":
        return table, "/".join(rest), row
    return table, "/".join([row, *rest[:-1]]), rest[-1]


def cell_ids() -> list[str]:
    """All cells of the paper's rows in the order of the tables."""
    stages = list(stage_cells())
    before = [c for c in stages if c.startswith("IV/")]
    return [*BUILDING_BLOCKS, *before, *row_ids(*ROWS), *(c for c in stages if c not in before)]


def row_ids(*rows: str) -> list[str]:
    """The cells of these rows of the tables of schemes."""
    return [f"{t}/{row}/{column}" for t in SCHEME_TABLES for row in rows for column in COLUMNS]


def declared_for(cell: str) -> tuple[str, ...]:
    """Assumptions that the scheme of the cell's row declares by itself."""
    table, row, *_ = cell.split("/")
    one = declared().get(row) if table in SCHEME_TABLES else None
    if one is None:
        return ()
    refuse_other_schemes(one)
    return one.assumes


def refuse_other_schemes(one: Declaration) -> None:
    """An assumption that is itself a choice of scheme cannot hold for one that is declared."""
    name = one.scheme.name
    for assumption in one.assumes:
        if assumption in CONVENTIONS and under(Question(scheme=name), [assumption]).scheme != name:
            raise GraphError(f"scheme {name}: {assumption!r} puts another scheme in its place; map the axes instead")


def instances(cell: str) -> tuple[Instance, ...]:
    """The readings of a cell; GraphError for one that is not supported yet."""
    if cell in BUILDING_BLOCKS:
        return BUILDING_BLOCKS[cell]
    if cell in stage_cells():
        return (stage_cells()[cell],)
    table, _, rest = cell.partition("/")
    row, _, column = rest.partition("/")
    heading = declared().get(row)
    if table not in SCHEME_TABLES or heading is None or column not in COLUMNS:
        near = difflib.get_close_matches(cell, cell_ids(), 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; `derive check` lists those that are"
        raise GraphError(f"cell {cell!r} is not supported yet{hint}")
    question = Question(
        scheme=row,
        ffn=FEED_FORWARDS[heading.ffn],
        attention=ATTENTIONS[heading.attention],
        over_all_ranks=SCHEME_TABLES[table],
    )
    return (Instance(None, question, COLUMNS[column]),)


def derive(instance: Instance, assumptions: Iterable[str]) -> Measured:
    """What the graph gives for one reading under the conventions of the named assumptions."""
    return _answer(instance.measure, under(instance.question, assumptions))


def expanded(instance: Instance, assumptions: Iterable[str]) -> Max | None:
    """The cost of a stage with derived building blocks for named costs, where they exist; None for other cells."""
    question = under(instance.question, assumptions)
    if not isinstance(question, StageQuestion):
        return None
    return _answer(instance.measure, replace(question, blocks=Blocks(frozenset(EXPANSIONS)))).value


@lru_cache(maxsize=1024)
def _answer(measure: Measure, question: Question | StageQuestion) -> Measured:
    """Tables ask the same question more than once, as an order and with constants."""
    return measure(question)


def free_domain(instance: Instance, assumptions: Iterable[str]) -> dict[str, Form]:
    """Sizes as products of free factors for the reading's scheme."""
    return dict(under(instance.question, assumptions).factors)
