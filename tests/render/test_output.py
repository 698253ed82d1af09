"""The emitted LaTeX, read back, is the derived expression of every cell."""

from __future__ import annotations

import pytest

from derive.asymptotics.problem import as_max
from derive.cells import cell_ids
from derive.check import check, check_all
from derive.claims import spelled_out
from derive.data import output_folder
from derive.expr import Call, Expr, Order
from derive.forms import Max
from derive.latex import parse, parse_definition
from derive.normal import named_costs, to_form
from derive.render.tables import read_back, render_tables
from derive.render.typeset import with_m
from derive.sums import without_sums

FILES = sorted(output_folder().glob("table_*.tex"))
EMITTED = {cell: latex for file in FILES for cell, latex in read_back(file.read_text()).items()}


#: what the tables abbreviate
UPDATES = ["C_{tr}^{tok}(M):=C_{f}^{tok}(M)+C_{b}^{tok}(M)", "D_{tr}(M):=D_{f}(M)+D_{b}(M)"]
SPELLED = [parse_definition(d.replace("tr", r"\text{tr}").replace("tok", r"\text{tok}")) for d in UPDATES]
#: stages in which nothing runs are a dash
EMPTY = [c for c in cell_ids() if check(c).derived == "0"]


def value_of(e: Expr) -> Max:
    for short, long in SPELLED:
        assert isinstance(short, Call)
        e = spelled_out(e, short, long)
    return as_max(to_form(named_costs(without_sums(e))))


def test_every_supported_cell_is_emitted_once() -> None:
    assert sorted([*EMITTED, *EMPTY]) == sorted(cell_ids())
    assert [f"IV/DPO/{column}/Generation" for column in ("Work", "Depth", "Memory")] == EMPTY
    assert sum(len(read_back(f.read_text())) for f in FILES) == len(EMITTED)


@pytest.mark.parametrize("name", sorted(EMITTED))
def test_the_emitted_formula_is_the_derived_one(name: str) -> None:
    cell, shown = check(name), with_m(parse(EMITTED[name]))
    if isinstance(shown, Order):
        assert cell.order_form is not None
        assert value_of(shown.arg) == as_max(cell.order_form)
    else:
        assert value_of(shown) == cell.value


def test_plain_tables_have_the_same_formulas_and_no_marks() -> None:
    plain = render_tables(check_all(), plain=True)
    texts = [text for name, text in plain.items() if name.startswith("table_")]
    found = {cell: latex for text in texts for cell, latex in read_back(text).items()}
    assert found == EMITTED
    assert not any("Marks" in text for text in plain.values())
