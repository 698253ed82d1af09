"""One made-up claim of known truth for every verdict, and what a verdict carries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from derive import latex
from derive.asymptotics import prove
from derive.asymptotics.checker import check_cell
from derive.asymptotics.problem import Domain
from derive.cell import Cell
from derive.cells import cell_ids
from derive.check import check, check_all
from derive.claims import Book, load
from derive.forms import Max, symbol
from derive.records import ClaimError
from derive.report import safe as as_json
from derive.verdict import HOLDS, judge
from graphs.errors import GraphError

WORK = r"6BmL\left(4d^{2}+2dd_{\text{ff}}+md\right)"


def with_claim(cell: str, printed: str, kind: str) -> Book:
    """The paper's book with one cell reprinted."""
    book = load()
    claim = replace(book.claim(cell), latex=printed, expr=latex.parse(printed), kind=kind)
    return Book({**book.claims, cell: claim}, book.assumptions)


def verdict_of(cell: str, printed: str, kind: str, dropped: tuple[str, ...] = ()) -> Cell:
    found = check(cell, dropped, with_claim(cell, printed, kind))
    check_cell(as_json(found.json()))
    return found


def test_the_true_form_is_equal() -> None:
    assert verdict_of("VII/None/Work", WORK, "leading").verdict == "EQUAL"


def test_the_true_form_written_otherwise_is_equal() -> None:
    assert verdict_of("VII/None/Work", r"24BmLd^2+6mBLd(2d_{\text{ff}}+m)", "equal").verdict == "EQUAL"


def test_a_lower_order_rest_is_leading_and_shown() -> None:
    found = verdict_of("VII/None/Work", WORK + "+5BmLd", "leading")
    assert (found.verdict, found.slack) == ("LEADING", "-5*B*m*L*d")


def test_a_lower_order_rest_does_not_meet_an_exact_claim() -> None:
    assert verdict_of("VII/None/Work", WORK + "+5BmLd", "equal").verdict == "REFUTED"


def test_a_bound_from_both_sides_is_tight() -> None:
    assert verdict_of("V/None/Work", r"O(7BmLd(d+m))", "order").verdict == "TIGHT"


def test_a_bound_that_is_too_large_is_upper() -> None:
    assert verdict_of("V/None/Work", r"O(BmLd^2m)", "order").verdict == "UPPER"


def test_a_claim_that_needs_a_regime_is_conditional_with_witness_and_regime() -> None:
    found = verdict_of("V/None/Work", r"O(BmL(d^2+md))", "order", ("blocks-only",))
    assert found.verdict == "CONDITIONAL"
    assert found.regime == "V = O(L*(d + m))"
    assert found.witness is not None


@pytest.mark.parametrize("printed", [WORK.replace("6", "5"), WORK.replace("4d", "3d"), WORK.replace("+md", "+2md")])
def test_a_wrong_constant_is_refuted_with_a_witness(printed: str) -> None:
    found = verdict_of("VII/None/Work", printed, "leading")
    assert found.verdict == "REFUTED"
    assert found.witness is not None


def test_the_cells_without_a_claim_are_those_that_the_tables_list_as_not_printed() -> None:
    book = load()
    assert sorted(book.not_printed) == sorted(set(cell_ids()) - book.claims.keys())


def test_a_cell_that_our_copy_lacks_is_not_printed() -> None:
    found = check("VII/3D/Work")
    assert (found.verdict, found.printed) == ("NOT_PRINTED", None)


def mean_verdict(*names: str) -> str:
    """Is the product of three sizes bounded by the sum of their cubes?  It needs a weighted mean, which takes steps."""
    x, y, z = (symbol(n) for n in names)
    return judge(Max.of(x * y * z), Max.of(x**3 + y**3 + z**3), "order", Domain(), (), ()).verdict


def test_no_answer_is_undecided_and_never_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mean_verdict("m", "d", "V") == "UPPER"
    monkeypatch.setattr(prove, "STEPS", 1)
    assert mean_verdict("m", "d", "h") == "UNDECIDED"
    assert "UNDECIDED" not in HOLDS


def test_an_unsupported_cell_is_an_error_that_says_so() -> None:
    with pytest.raises(GraphError, match="not supported yet"):
        check("IX/Nowhere/Training/Work")


def test_dropping_an_assumption_changes_the_cells_that_lean_on_it() -> None:
    assert check("VII/None/Work").implied == ("blocks-only",)
    assert check("VII/None/Work", ["blocks-only"]).verdict != "EQUAL"
    assert "V" in check("VII/None/Work", ["blocks-only"]).value.symbols


def test_an_assumption_that_contradicts_the_caption_only_rescues() -> None:
    found = check("VII/None/Memory")
    assert (found.verdict, found.regime) == ("CONDITIONAL", "layer-boundary")
    assert "layer-boundary" in found.implied


def test_without_the_contradicted_words_the_assumption_is_in_force() -> None:
    assert check("VII/None/Memory", ["no-checkpointing"]).verdict == "LEADING"


def test_a_tied_embedding_lives_on_both_boundary_stages_of_a_pipeline() -> None:
    found = check("VIII/Pipeline/Memory")
    assert "8*V*d" in found.derived
    assert found.verdict == "CONDITIONAL"
    assert found.regime is not None
    assert found.regime.startswith("layer-boundary and V = O(")


@pytest.mark.parametrize(
    "printed", [r"\tfrac{d}{d-d}", r"\tfrac{d}{d+m}", r"\log(d-d)", r"(d+m)^{40}", r"C_{f}^{\text{tok}}(M)"]
)
def test_a_printed_form_without_a_value_is_an_input_error_that_names_the_cell(printed: str) -> None:
    with pytest.raises(ClaimError, match="VII/None/Work: "):
        verdict_of("VII/None/Work", printed, "leading")


def test_a_cost_that_is_defined_by_itself_is_refused() -> None:
    with pytest.raises(ClaimError, match="defined by itself"):
        verdict_of("III/C_f/policy", r"C_{f}^{\text{tok}}(\pi_{\theta})", "equal")


def test_a_claim_about_a_cell_that_nobody_asks_about_is_refused() -> None:
    book = load()
    stray = replace(book.claim("VII/None/Work"), id="VII/Foo/Work")
    with pytest.raises(ClaimError, match="VII/Foo/Work"):
        check_all(book=Book({**book.claims, stray.id: stray}, book.assumptions))


def test_what_is_derived_is_what_the_caption_asks_for_and_not_what_rescues_the_claim() -> None:
    found = check("VII/None/Memory")
    assert "m*h" in found.derived
    assert found.context is not None
    assert "m*h" not in found.context["rescued"]


@pytest.mark.parametrize(
    ("printed", "verdict"),
    [
        (r"O\left(L_{\pi}[\log d_{\pi}+\log(S+T)]+\log d_{\pi}\right)", "TIGHT"),
        (r"O\left(L_{\pi}[\log d_{\pi}+\log(S+T+B)]+\log d_{\pi}\right)", "UPPER"),
        (r"O\left(L_{\pi}[\log d_{\pi}+\log S+\log(S+T)]+\log d_{\pi}\right)", "TIGHT"),
        (r"O\left(L_{\pi}[\log d_{\pi}+\log S]+\log d_{\pi}\right)", "CONDITIONAL"),
    ],
)
def test_context_and_its_two_parts_vary_together(printed: str, verdict: str) -> None:
    found = verdict_of("III/D_f/policy", printed, "order")
    assert found.verdict == verdict
    assert found.witness is None or "m" not in found.witness["family"]


def test_parts_of_a_context_that_is_divided_are_refused() -> None:
    with pytest.raises(ClaimError, match="VII/Context/Work: S and T stand apart"):
        verdict_of("VII/Context/Work", r"6BSL(4d^2)", "leading")
