"""The emitted LaTeX, read back, is the derived expression of every cell."""

from __future__ import annotations

import pytest

from derive.asymptotics.problem import as_max
from derive.cells import cell_ids
from derive.check import check, check_all
from derive.data import output_folder
from derive.expr import Order
from derive.latex import parse
from derive.normal import to_form
from derive.render.tables import read_back, render_tables
from derive.render.typeset import with_m
from derive.sums import without_sums

FILES = sorted(output_folder().glob("table_*.tex"))
EMITTED = {cell: latex for file in FILES for cell, latex in read_back(file.read_text()).items()}


def test_every_supported_cell_is_emitted_once() -> None:
    assert sorted(EMITTED) == sorted(cell_ids())
    assert sum(len(read_back(f.read_text())) for f in FILES) == len(EMITTED)


@pytest.mark.parametrize("name", cell_ids())
def test_the_emitted_formula_is_the_derived_one(name: str) -> None:
    cell, shown = check(name), with_m(parse(EMITTED[name]))
    if isinstance(shown, Order):
        assert cell.order_form is not None
        assert as_max(to_form(without_sums(shown.arg))) == as_max(cell.order_form)
    else:
        assert as_max(to_form(without_sums(shown))) == cell.value


def test_plain_tables_have_the_same_formulas_and_no_marks() -> None:
    plain = render_tables(check_all(), plain=True)
    texts = [text for name, text in plain.items() if name.startswith("table_")]
    found = {cell: latex for text in texts for cell, latex in read_back(text).items()}
    assert found == EMITTED
    assert not any("Marks" in text for text in plain.values())
