"""A perturbed cell is caught: its verdict, regime or proven difference changes whenever the truth does.

Here every other cell, and one perturbation of every third, of a kind that goes round; `make mutants` looks at hundreds.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from benchmarks.patches import PATCHES
from derive.cell import Cell
from derive.check import check
from derive.claims import load
from derive.report import record_of
from tests.judge import Judge, cases_of, stated
from tests.mutants import Mutant, mutants_of, reprinted

CELLS = list(load().claims)
ROOT = Path(__file__).parent.parent


def test_every_patch_of_a_rule_replaces_text_that_is_there_once() -> None:
    for file, old, _ in PATCHES:
        assert (ROOT / file).read_text(encoding="utf-8").count(old) == 1, (file, old)


@lru_cache(maxsize=2)
def printed(cell: str) -> tuple[Cell, Judge]:
    return check(cell), Judge(load().claim(cell), load())


def perturbed(cell: str) -> Mutant:
    kinds = mutants_of(load().claim(cell), load(), per_kind=1)
    return kinds[CELLS.index(cell) % len(kinds)]


@pytest.mark.parametrize("cell", CELLS[::2])
def test_the_judge_agrees_with_the_verdict(cell: str) -> None:
    found, judge = printed(cell)
    assert not judge.objections(found, load().claim(cell), load())


@pytest.mark.parametrize("cell", CELLS[::3])
def test_a_perturbed_cell_is_caught_when_the_truth_changes_and_its_verdict_stays_when_not(cell: str) -> None:
    before, judge = printed(cell)
    mutant = perturbed(cell)
    claim, book = reprinted(load().claim(cell), mutant, load())
    after = check(cell, book=book)
    if judge.changes_truth(claim, book, [*cases_of(before), *cases_of(after)]):
        assert record_of(after) != record_of(before), mutant.what
    else:
        assert stated(after) == stated(before), mutant.what
