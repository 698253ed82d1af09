"""The printed cells and the ledger: everything loads, and each broken rule is named."""

from collections import Counter

import pytest

from derive.cells import cell_ids
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


#: what each table's own caption says, and what it takes from another place of the paper; all else is implied
SAID = """
III stated: canonical-architecture causal-half collectives-free-per-rank dot-product-2k gemm-depth-only
    gemm-work-only
III elsewhere: causal-half dff-order-d gemm-work-only
IV stated: disaggregated-execution
IV elsewhere: adam-four-copies log-probabilities-on-the-fly one-epoch outcome-reward prefill-per-rollout
    reference-as-policy
V stated: adam-four-copies boundary-stage-memory dff-order-d ep-partitions-tokens no-checkpointing
V elsewhere: canonical-architecture causal-half collectives-free-per-rank dot-product-2k gemm-depth-only
    gemm-work-only
VI stated: dff-order-d
VI elsewhere: adam-four-copies canonical-architecture causal-half dot-product-2k ep-partitions-tokens
    gemm-depth-only gemm-work-only no-checkpointing
VII stated:
VII elsewhere: adam-four-copies boundary-stage-memory canonical-architecture causal-half collectives-free-per-rank
    dot-product-2k ep-partitions-tokens gemm-depth-only gemm-work-only no-checkpointing
VIII stated:
VIII elsewhere: adam-four-copies canonical-architecture causal-half dot-product-2k ep-partitions-tokens
    gemm-depth-only gemm-work-only no-checkpointing
IX stated: adam-four-copies log-probabilities-on-the-fly no-checkpointing one-epoch sequential-execution
IX elsewhere: adam-four-copies canonical-architecture collectives-free-per-rank outcome-reward prefill-per-rollout
"""


def said(table: str, origin: str) -> set[str]:
    lines = SAID.replace("\n    ", " ").splitlines()
    (names,) = (line.partition(": ")[2] for line in lines if line.startswith(f"{table} {origin}:"))
    return set(names.split())


@pytest.mark.parametrize("origin", ["stated", "elsewhere"])
@pytest.mark.parametrize("table", ["III", "IV", "V", "VI", "VII", "VIII", "IX"])
def test_what_the_paper_says_is_told_from_what_it_implies(table: str, origin: str) -> None:
    scopes = [BOOK.in_force(c) for c in cell_ids() if c.split("/")[0] == table]
    assert {n for scope in scopes for n, s in scope.items() if s.origin == origin} == said(table, origin)


@pytest.mark.parametrize(
    ("assumption", "stated", "elsewhere"),
    [
        ("causal-half", "III/C_gen/prefill", "III/C_f/policy"),
        ("gemm-work-only", "III/C_gen/prefill", "III/C_f/policy"),
        ("adam-four-copies", "IX/Baseline/Training/Memory", "IX/Baseline/Generation/Memory"),
    ],
)
def test_a_caption_states_an_assumption_for_the_cells_that_it_speaks_of(assumption, stated, elsewhere) -> None:
    assert BOOK.in_force(stated)[assumption].origin == "stated"
    assert BOOK.in_force(elsewhere)[assumption].origin == "elsewhere"


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
