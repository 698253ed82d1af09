"""The printed generation cells of Table III: sums with a remainder, an index outside its sum, and what is derived."""

from __future__ import annotations

from dataclasses import replace

import pytest

from derive.asymptotics.checker import Rejected, check_cell
from derive.check import check
from derive.claims import Book, load
from derive.expr import Add
from derive.forms import Max
from derive.latex import parse
from derive.normal import single_form
from derive.sums import without_sums
from derive.textform import parse_text


def test_a_remainder_that_counts_no_heads_holds_under_a_condition_on_them() -> None:
    found = check("III/C_gen/prefill/remainder")
    assert (found.verdict, found.regime) == ("CONDITIONAL", "S*h_pi = O(d_pi + S)")
    assert found.witness is not None
    assert found.witness["family"]["h_pi"] == "n"
    assert "S**2*L_pi*h_pi (from blocks/scale, blocks/softmax.max)" in found.detail
    assert found.implied == ("blocks-only",)
    assert "V" in check("III/C_gen/prefill/remainder", ["blocks-only"]).derived


def test_a_remainder_that_counts_heads_holds() -> None:
    printed = r"2L_{\pi}S\left(4d_{\pi}^{2}\right)+L_{\pi}\left(O(S^{2}h_{\pi})+O(Sd_{\pi})\right)"
    whole = parse(printed)
    assert isinstance(whole, Add)
    claim = replace(load().claim("III/C_gen/prefill/remainder"), latex=printed, expr=whole.terms[1])
    assert check(claim.id, book=Book({**load().claims, claim.id: claim}, load().assumptions)).verdict == "TIGHT"


def test_an_ill_formed_cell_is_refuted_and_judged_in_its_corrected_form() -> None:
    found = check("III/C_gen/decode/remainder")
    assert (found.verdict, found.printed_expr, found.witness, found.regime) == ("REFUTED", None, None, None)
    assert found.detail.startswith("The index t stands outside the sum that binds it, so the printed form has no value")
    assert found.context is not None
    (reading,) = found.context["readings"]
    assert (reading["verdict"], reading["printed_expr"]) == ("CONDITIONAL", "L_pi*(O(S + t) + O(d_pi))")
    assert found.context["corrected"]["regime"] == "h_pi = O(1)"
    check_cell(found.json())
    with pytest.raises(Rejected):
        check_cell({**found.json(), "readings": [{**reading, "witness": None}]})


def test_a_corrected_form_that_holds_is_said_to_hold_and_the_cell_stays_refuted() -> None:
    claim = load().claim("III/C_gen/decode/remainder")
    body = parse_text("L_pi*(O(h_pi*(S + t)) + O(d_pi))")
    assert claim.corrected is not None
    better = replace(claim, expr=body, corrected=replace(claim.corrected, body=body))
    found = check(claim.id, book=Book({**load().claims, claim.id: better}, load().assumptions))
    assert found.verdict == "REFUTED"
    assert "it is TIGHT" in found.detail


def test_the_steps_of_a_derived_cost_are_written_as_a_sum_of_the_same_value() -> None:
    for cell in ("III/C_gen/decode", "III/C_gen/total", "III/C_gen/decode/remainder"):
        found = check(cell)
        assert "Sum(" in found.derived
        assert Max.of(single_form(without_sums(parse_text(found.derived)))) == found.value


def test_a_cell_in_one_part_is_set_and_has_a_column() -> None:
    found = check("III/D_gen")
    assert (found.verdict, found.row, found.column) == ("NOT_PRINTED", "D_gen", "Mathematical expression")


@pytest.mark.parametrize("cell", ["III/C_gen/prefill", "III/C_gen/decode", "III/C_gen/total"])
def test_printed_generation_rests_on_products_counted_twice_their_length(cell: str) -> None:
    for dropped in ("dot-product-2k", "gemm-work-only"):
        assert check(cell, [dropped]).verdict == "REFUTED"
    assert (check(cell, ["causal-half"]).verdict == "EQUAL") == (cell == "III/C_gen/decode")
