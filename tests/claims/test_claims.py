"""The printed cells and the ledger: everything loads, and each broken rule is named."""

from collections import Counter

import pytest

from derive.claims import load
from derive.expr import calls, text
from derive.latex import parse
from derive.normal import to_form
from derive.readings import order_to_value
from derive.records import ClaimError
from derive.render.printer import latex
from derive.sums import without_sums

BOOK = load()
ROWS = ("None", "Data", "Pipeline", "Tensor", "Context", "Expert")


def test_every_printed_cell_is_there():
    printed = {"III": 16, "IV": 10, "V": 18, "VI": 18, "VII": 18, "VIII": 18, "IX": 18}
    assert Counter(c.table for c in BOOK.claims.values()) == printed
    for table in ("V", "VI", "VII", "VIII"):
        for row in ROWS:
            for column in ("Work", "Depth", "Memory"):
                claim = BOOK.claim(f"{table}/{row}/{column}")
                assert (claim.row, claim.column) == (row, column)


@pytest.mark.parametrize("claim", BOOK.claims.values(), ids=BOOK.claims.keys())
def test_cell_prints_and_parses_back(claim):
    assert parse(latex(claim.expr)) == claim.expr
    body = without_sums(order_to_value(claim.expr))
    if not calls(body) and claim.id != "III/C_f/reward":
        assert to_form(body).symbols == claim.symbols


def test_kinds():
    kinds = {t: {c.kind for c in BOOK.claims.values() if c.table == t} for t in ("V", "VI", "VII", "VIII")}
    assert kinds == {"V": {"order"}, "VI": {"order"}, "VII": {"leading"}, "VIII": {"leading"}}
    assert BOOK.claim("III/C_b").kind == "approx"


def test_sequence_length_is_an_atom_where_the_table_defines_it():
    assert text(BOOK.claim("VII/Context/Memory").expr) == "L*(16*d**2 + 8*d*d_ff) + 4*V*d + B*(m/P_c)*L*d"
    assert "S" in BOOK.claim("III/C_f/policy").symbols


def test_relations_stay_calls():
    assert text(BOOK.claim("III/C_f/reference").expr) == "C_f_tok(pi)"
    assert text(BOOK.claim("III/C_b").expr) == "2*C_f_tok(M)"
    assert text(BOOK.claim("III/D_b").expr) == "D_f(M) + O(log(B*(S + T)))"


def test_a_sum_with_a_remainder_is_two_cells():
    exact, rest = (BOOK.claim(f"III/C_gen/prefill{part}") for part in ("", "/remainder"))
    assert exact.latex == rest.latex
    assert (exact.kind, rest.kind) == ("equal", "order")
    assert text(exact.expr) == "2*L_pi*S*(4*d_pi**2 + 2*d_pi*d_ff_pi + S*d_pi) + 2*V*d_pi"
    assert text(rest.expr) == "L_pi*(O(S**2) + O(S*d_pi))"


def test_an_index_outside_of_its_sum_is_put_inside():
    claim = BOOK.claim("III/C_gen/decode/remainder")
    assert not claim.is_well_formed
    assert text(claim.expr) == "L_pi*(O(S + t) + O(d_pi))"
    assert claim.corrected is not None
    assert text(claim.corrected) == "Sum(L_pi*(O(S + t) + O(d_pi)), (t, 1, T - 1))"
    assert all(c.is_well_formed for c in BOOK.claims.values() if c is not claim)


def test_origin_may_differ_by_table():
    origin = {cell: BOOK.in_force(cell)["no-checkpointing"].origin for cell in ("V/None/Memory", "VII/None/Memory")}
    assert origin == {"V/None/Memory": "stated", "VII/None/Memory": "elsewhere"}
    assert "no-checkpointing" not in BOOK.in_force("VII/None/Work")
    assert "dff-order-d" not in BOOK.in_force("V/None/Depth")
    assert "dff-order-d-beyond-work" in BOOK.in_force("V/None/Depth")


def test_cells_that_are_not_printed_have_assumptions_too():
    assert "blocks-only" in BOOK.in_force("VII/3D/Work")


def test_contradiction_with_what_is_written():
    assert BOOK.contradicted("VII/None/Memory") == {"layer-boundary": "no-checkpointing"}
    assert BOOK.contradicted("VII/None/Work") == {}


def test_unknown_names_are_refused():
    with pytest.raises(ClaimError, match="unknown assumption 'nope'"):
        BOOK.assumption("nope")
    with pytest.raises(ClaimError, match="no claim 'V/4D/Work'"):
        BOOK.claim("V/4D/Work")


TABLE = 'table = "X"\nkind = "order"\n'
CELL = "[[claim]]\nid = 'X/None/Work'\nlatex = 'O(d)'\n"
LEDGER = "[[assumption]]\nid = 'a'\ntext = 'A.'\n"
SCOPE = "scope = [{ origin = 'stated', where = 'here', cells = ['X/*'] }]\n"
BROKEN = [
    (TABLE + CELL + CELL, "", "'X/None/Work' occurs twice"),
    (TABLE + CELL.replace("O(d)", "O(q)"), "", "x.toml, X/None/Work: unknown symbol q at position 3"),
    (TABLE + CELL.replace("O(d)", "O(d"), "", "x.toml, X/None/Work: the expression ends too early"),
    (TABLE + CELL.replace("O(d)", "O(S+t)"), "", "X/None/Work: the index t occurs outside a sum"),
    (TABLE + CELL.replace("O(d)", r"\sum_{t=1}^{T}d+O(t)"), "", "X/None/Work: the index t occurs outside a sum"),
    (TABLE + CELL + "unbound = 't'\n", "", "X/None/Work: the index t is not loose; remove `unbound`"),
    (TABLE + CELL.replace("O(d)", "O(S+t)") + "unbound = 't'\n", "", "0 printed sums bind the index t; one is needed"),
    (TABLE + CELL + "part = 'rest'\n", "", "X/None/Work: part 'rest' is not one of exact, remainder"),
    (TABLE + CELL + "part = 'exact'\n", "", "X/None/Work: no term of the printed sum is exact"),
    (TABLE + CELL.replace("O(d)", "d+S") + "part = 'remainder'\n", "", "no term of the printed sum is a bound O"),
    (TABLE + CELL + "colour = 'red'\n", "", "X/None/Work: unknown key 'colour'"),
    ("title = 'X'\n" + TABLE + CELL, "", "unknown key 'title'"),
    (TABLE + CELL + "kind = 'exact'\n", "", "kind 'exact' is not one of"),
    (TABLE.replace("kind", "kinds") + CELL, "", "unknown key 'kinds'"),
    (TABLE.replace("order", "leading") + CELL, "", "which only an order may have"),
    ("definitions = 3\n" + TABLE + CELL, "", "`definitions` must be a list of texts"),
    (TABLE + CELL.replace("/None/", "-"), "", "table/row/column is needed"),
    (TABLE + "[[claim]]\nid = 'X/None/Work'\n", "", "`latex` is missing"),
    (TABLE, "", "has no list of claim entries"),
    (TABLE + "definitions = ['m=S+T']\n" + CELL, "", "the definition `m=S.T` does not parse"),
    ("table = ", "", "x.toml: not valid TOML"),
    (TABLE + CELL, LEDGER, "a: has no list of scope entries"),
    (TABLE + CELL, LEDGER + SCOPE.replace("X/", "Y/"), "the pattern 'Y/.*' matches no cell"),
    (TABLE + CELL, LEDGER + SCOPE.replace("stated", "said"), "origin 'said' is not one of"),
    (TABLE + CELL, LEDGER + "contradicts = ['b']\n" + SCOPE, "unknown assumption 'b'"),
    (TABLE + CELL, LEDGER + "contradicts = 'b'\n" + SCOPE, "`contradicts` must be a list of texts"),
    (TABLE + CELL, (LEDGER + SCOPE) * 2, "assumption id 'a' occurs twice"),
    (
        TABLE + CELL,
        LEDGER + SCOPE.replace("}]", "}, { origin = 'implied', where = '-', cells = ['*'] }]"),
        "two scopes",
    ),
]


@pytest.mark.parametrize(("table", "ledger", "message"), BROKEN)
def test_broken_data_is_named(tmp_path, table, ledger, message):
    (tmp_path / "x.toml").write_text(table)
    if ledger:
        (tmp_path / "assumptions.toml").write_text(ledger)
    with pytest.raises(ClaimError, match=message):
        load(tmp_path)


def test_a_defined_cost_is_spelled_out_for_the_model_at_hand():
    trained = BOOK.claim("IX/Baseline/Training/Depth")
    assert text(trained.expr) == "D_f(pi) + D_b(pi) + D_f(V) + D_b(V)"
    assert trained.opaque
    assert text(BOOK.claim("IX/AC shared/Generation/Work").expr) == "B*K*C_gen_roll(SH)"
    assert not BOOK.claim("III/C_b").opaque


def test_psi_and_v_are_one_model():
    assert {"L_V", "d_V"} <= BOOK.claim("IX/Baseline/Training/Memory").symbols


def test_an_assumption_may_cover_cells_that_are_known_to_be_missing():
    assert "stage-resident" in BOOK.in_force("IV/PPO/Memory/Training")
    assert "disaggregated-execution" not in BOOK.in_force("IV/PPO/Work/Training")
