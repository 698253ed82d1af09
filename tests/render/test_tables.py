"""Emitted tables: what is printed reads back as the derived expression, and nothing half-written is left behind."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from derive.expr import Order
from derive.latex import parse
from derive.normal import to_form
from derive.render.prose import escape, prose
from derive.render.tables import read_back, render_tables, write_tables
from derive.render.typeset import with_m
from derive.sums import without_sums
from derive.textform import parse_text
from tests.render.cells import cells

CELLS = cells()
TEXTS = render_tables(CELLS)
PLAIN = render_tables(CELLS, plain=True)


def test_one_file_per_table_and_the_document():
    assert list(TEXTS) == [f"table_{t}.tex" for t in ("iii", "v", "vi", "vii", "viii")] + ["tables.tex"]


@pytest.mark.parametrize("texts", [TEXTS, PLAIN], ids=["marked", "plain"])
def test_every_cell_reads_back_as_derived(texts):
    found: dict[str, str] = {}
    for name, tex in texts.items():
        if name != "tables.tex":
            found |= read_back(tex)
    assert found.keys() == {c["id"] for c in CELLS}
    assert read_back(texts["tables.tex"]) == found
    for cell in CELLS:
        printed = parse(found[cell["id"]])
        assert isinstance(printed, Order) == (cell["kind"] == "order"), cell["id"]
        body = with_m(printed.arg if isinstance(printed, Order) else printed)
        expected = cell["derived_order"] if isinstance(printed, Order) else cell["derived"]
        assert to_form(without_sums(body)) == to_form(without_sums(with_m(parse_text(expected)))), cell["id"]


def test_what_is_printed_is_the_derived_expression_not_the_claim():
    cell = next(c for c in CELLS if c["id"] == "VII/None/Memory")
    assert read_back(TEXTS["table_vii.tex"])[cell["id"]] != cell["printed"]
    changed = [c | {"printed": "q", "printed_expr": "q"} for c in CELLS]
    assert render_tables(changed) == TEXTS


def test_forms_may_be_given():
    form = to_form(parse_text("7*d"))
    texts = render_tables([c for c in CELLS if c["table"] == "VII"], forms={"VII/None/Work": form})
    assert read_back(texts["table_vii.tex"])["VII/None/Work"] == "7d"


def test_legend_names_the_marks_that_occur():
    assert "the leading part" in TEXTS["table_vii.tex"]
    assert "does not state" in TEXTS["table_vii.tex"]
    assert "not decided" not in TEXTS["table_vii.tex"]
    assert "does not state" not in TEXTS["table_v.tex"]


def test_notes_are_grouped_and_escaped():
    tex = TEXTS["table_v.tex"]
    assert r"\textit{None, Data, Pipeline, Tensor, Context memory}: the printed formula holds if $hm=O(d)$." in tex
    assert r"100\% of \{layers\} \& \$stages\$ count." in tex
    assert r"so $\tfrac{L}{P_{p}}$ is not the depth;" in tex
    assert "softmax" not in tex


def test_notes_say_what_an_assumption_means():
    cell = {"regime": "h*m = O(d) or layer-boundary", "detail": "Contains B*m (from a, b), which is too much."}
    only = [c | cell for c in CELLS if c["table"] == "V"]
    tex = render_tables(only)["table_v.tex"]
    assert r"holds if $hm=O(d)$ or layer-boundary." in tex
    assert r"\textit{layer-boundary}: Only the input of each block is kept" in tex
    assert r"\textit{Pipeline depth}: Contains $Bm$, which is too much." in tex


def test_table_iii_names_the_model_that_was_derived():
    changed = [c | {"derived": "2*L_pi*d_pi + V*d_pi"} if c["id"] == "III/C_b" else c for c in CELLS]
    assert r"$C_{b}^{\text{tok}}(\pi_{\theta})$" in render_tables(changed)["table_iii.tex"]
    assert r"$C_{b}^{\text{tok}}(M)$" in TEXTS["table_iii.tex"]


def test_plain_has_no_marks():
    for tex in PLAIN.values():
        assert "textsuperscript" not in tex
        assert "Marks:" not in tex


def test_rows_are_whole():
    with pytest.raises(ValueError, match="VII/Tensor/Depth is missing"):
        render_tables([c for c in CELLS if c["id"] != "VII/Tensor/Depth"])
    only = [c for c in CELLS if c["id"].startswith("VII/None")]
    assert list(read_back(render_tables(only)["table_vii.tex"])) == [c["id"] for c in only]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": "FINE"}, "unknown verdict 'FINE'"),
        ({"table": "X"}, "table X has no template"),
        ({"row": "Sideways"}, "no row 'Sideways'"),
        ({"derived": None}, "no derived"),
        ({"derived": "2*("}, "ends too early"),
    ],
)
def test_bad_cells_are_named(change, message):
    bad = [c | change if c["id"] == "VII/None/Work" else c for c in CELLS]
    with pytest.raises(ValueError, match=message):
        render_tables(bad)


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    write_tables(CELLS, tmp_path)
    assert {f.name: f.read_text() for f in tmp_path.iterdir()} == TEXTS
    with pytest.raises(ValueError, match="missing"):
        write_tables(CELLS[1:-1], tmp_path)
    assert {f.name: f.read_text() for f in tmp_path.iterdir()} == TEXTS

    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr("derive.files.os.fdopen", full)
    with pytest.raises(OSError, match="no space"):
        write_tables(CELLS, tmp_path, plain=True)
    assert {f.name: f.read_text() for f in tmp_path.iterdir()} == TEXTS


def test_same_bytes_for_any_hash_seed():
    code = "from tests.render.cells import *; from derive.render.tables import *; print(render_tables(cells()))"
    root = Path(__file__).parents[2]
    outputs = set()
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], cwd=root, env=env, check=True, capture_output=True)
        outputs.add(done.stdout)
    assert len(outputs) == 1


def test_text_from_outside_cannot_become_markup():
    assert escape("a_b & \\input{x} 5%\n") == r"a\_b \& \textbackslash{}input\{x\} 5\% "
    assert escape('#~^<|"') == r"\#\textasciitilde{}\textasciicircum{}\textless{}\textbar{}''"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`L*d**2` but `not a formula_x`", r"$Ld^{2}$ but not a formula\_x"),
        ("holds under S <= T and V = O(L*(d + m)).", r"holds under $S\leq T$ and $V=O(L(d+\nobreak m))$."),
        ("It has B*L*h, L/P_p and 8*d + 2*h; so 3 of 4.", r"It has $BLh$, $\tfrac{L}{P_{p}}$ and $8d+2h$; so 3 of 4."),
        ("log(d) (log of lower-order a/b)", r"$\log d$ (log of lower-order a/b)"),
        ("Max(d, h) where (h*m = O(d) holds for L*d)", r"$\max\{d,\allowbreak\ h\}$ where ($hm=O(d)$ holds for $Ld$)"),
        ("whenever", "whenever"),
        ("(layer-boundary contradicts no_x)", r"(layer-boundary contradicts no\_x)"),
    ],
)  # fmt: skip
def test_formulas_in_sentences(text, expected):
    assert prose(text) == expected


HOSTS = {
    "standalone": None,
    "one column": r"\documentclass{article}",
    "two columns": r"\documentclass[twocolumn]{article}",
}


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX engine")
@pytest.mark.parametrize("host", HOSTS)
def test_compiles_without_overfull_boxes(tmp_path, host):
    write_tables(CELLS, tmp_path)
    name = "tables.tex"
    if HOSTS[host]:
        name = "host.tex"
        inputs = "".join(rf"\input{{{f.stem}}}" for f in sorted(tmp_path.glob("table_*.tex")))
        packages = r"\usepackage{booktabs}\usepackage{amsmath}"
        (tmp_path / name).write_text(rf"{HOSTS[host]}{packages}\begin{{document}}x{inputs}\end{{document}}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    log = done.stdout
    assert "Output written" in log, log[-2000:]
    assert "Overfull" not in log
    assert "Float too large" not in log
