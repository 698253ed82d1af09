"""A perturbed cell is caught: its verdict, regime or proven difference changes whenever the truth does."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from derive.cells import Instance, instances
from derive.check import check
from derive.claims import Book, Claim, load
from derive.forms import Max
from derive.readings import printed_value, read, weakest
from derive.report import record_of
from tests.mutants import Families, Mutant, mutants, same_order, same_value

PER_CELL = 1
ORDERS = [c.id for c in load().claims.values() if c.kind == "order"]
EXACT = [c.id for c in load().claims.values() if c.kind != "order"]


@dataclass(frozen=True)
class Case:
    """One printed cell with one perturbation."""

    claim: Claim
    mutant: Mutant

    @property
    def book(self) -> Book:
        changed = replace(self.claim, expr=self.mutant.expr)
        return Book({**load().claims, self.claim.id: changed}, load().assumptions)

    def value(self, book: Book, instance: Instance) -> Max:
        return printed_value(book.claim(self.claim.id), book, instance.model)

    def families(self) -> Families:
        """Where the cell's claim is proven: its domain, hypotheses and first regime."""
        found = check(self.claim.id)
        reading = weakest([read(self.claim, i, found.assumptions, load()) for i in instances(self.claim.id)])
        regime = reading.judgement.regimes[:1]
        bounds = (*reading.hypotheses, *(b for r in regime for b in r.bounds))
        return Families(dict(reading.domain.factors), bounds)

    def changes_the_truth(self) -> bool:
        families = self.families()
        pairs = [(self.value(load(), i), self.value(self.book, i)) for i in instances(self.claim.id)]
        same = same_order if self.claim.kind == "order" else same_value
        return not all(same(before, after, families, seed=7) for before, after in pairs)


def cases(cell: str) -> list[Case]:
    claim = load().claim(cell)
    found = list(mutants(claim.expr))
    return [Case(claim, m) for m in random.Random(cell).sample(found, min(PER_CELL, len(found)))]


def changed(case: Case) -> bool:
    before, after = record_of(check(case.claim.id)), record_of(check(case.claim.id, book=case.book))
    return before != after


@pytest.mark.parametrize("cell", EXACT)
def test_a_perturbed_exact_cell_is_caught(cell: str) -> None:
    for case in cases(cell):
        assert changed(case) == case.changes_the_truth(), case.mutant.what


@pytest.mark.parametrize("cell", ORDERS)
def test_a_perturbed_order_is_caught_when_its_class_changes(cell: str) -> None:
    for case in cases(cell):
        if case.changes_the_truth():
            assert changed(case), case.mutant.what
        else:
            assert check(cell, book=case.book).verdict == check(cell).verdict, case.mutant.what
