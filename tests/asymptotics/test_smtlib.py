"""Independent solvers agree with every certificate of the tables; `test_witnesses` does the same for the witnesses.

z3 gets the scripts as text, as an outsider would, and cvc5 too where it is installed.
"""

from __future__ import annotations

import copy
import json
import math
import random
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from derive import cli
from derive.asymptotics import Proved, checker, smtlib, smtterms
from derive.asymptotics.smtscripts import Sheet
from derive.asymptotics.smtterms import ExportError, Texts
from tests.asymptotics.questions import CASES

z3 = pytest.importorskip("z3")
ROOT = Path(__file__).parents[2]
VERDICTS = ROOT / "tables" / "out" / "verdicts.json"
CELLS = {cell["id"]: cell for cell in json.loads(VERDICTS.read_text(encoding="utf-8"))["cells"]}
EXAMPLES = {case.name: answer.certificate for case in CASES
            if isinstance(answer := case.answer(), Proved) and "Sum(" not in case.f + case.g}  # fmt: skip
NAMED = [(f"{name} {proof}", cert) for name, cell in CELLS.items()
         for proof, cert in smtlib.certificates(cell["certificate"])] + [*EXAMPLES.items()]  # fmt: skip
#: what a certificate that is merely written badly may raise
MALFORMED = (ExportError, KeyError, IndexError, ValueError, TypeError, AttributeError)


def solve(text: str, logic: str) -> str:
    solver = z3.SolverFor(logic)
    solver.set("timeout", 10_000)
    solver.from_string(text)
    return str(solver.check())


def agreed(certificate) -> bool:
    return all(solve(s.text, s.logic) == "unsat" for s in smtlib.scripts_of(certificate))


# -- certificates ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cell", CELLS)
def test_z3_agrees_with_every_certificate_of_the_tables(cell):
    scripts = list(smtlib.export_cell(CELLS[cell], cell))
    carried = [x["certificate"] for x in (CELLS[cell], *CELLS[cell].get("readings", ()))]
    assert bool(scripts) == bool(list(smtlib.certificates(carried)))
    for script in scripts:
        assert solve(script.text, script.logic) == "unsat", script.text


SUMS = "Sum(S*t**3 - 4*d*t/L + 5, (t, 2, S + T))"


def test_the_exports_closed_form_of_a_sum_is_what_adding_up_gives():
    (closed,) = Texts().read(SUMS)
    sizes = {"S": 3, "T": 4, "L": 2, "d": 5}
    value = sum(c * math.prod(Fraction(sizes[g]) ** p for g, p in mono) for mono, c in closed.items())
    assert value == sum(3 * t**3 - Fraction(4 * 5 * t, 2) + 5 for t in range(2, 8))


def test_a_wrong_closed_form_does_not_telescope(monkeypatch):
    sheet, texts = Sheet("here", "tie"), Texts()
    smtlib.telescope(SUMS, texts, sheet)
    assert [solve(s.text, s.logic) for s in sheet.scripts] == ["unsat"]
    monkeypatch.setattr(smtterms, "bernoulli", lambda j: Fraction(1, j + 1))
    wrong = Sheet("here", "tie")
    smtlib.telescope(SUMS, texts, wrong)
    assert [solve(s.text, s.logic) for s in wrong.scripts] == ["sat"]


@pytest.mark.parametrize("text", ["Sum(log(S + t), (t, 1, T))", "Sum(1/t, (t, 1, T))", "Sum(t, 1, T)"])
def test_other_sums_have_no_export(text):
    with pytest.raises(ExportError, match=r"has no export|cannot read the sum"):
        Texts().read(text)


@pytest.mark.parametrize("name", EXAMPLES)
def test_z3_agrees_with_a_certificate_of_each_rule(name):
    assert agreed(EXAMPLES[name])


def test_the_examples_use_every_kind_of_lemma():
    kinds = {script.lemma for cert in EXAMPLES.values() for script in smtlib.scripts_of(cert)}
    assert kinds == {"identity", "nonnegative form", "weighted mean", "at least 1", "direction", "sign", "cases",
                     "convex combination", "fact", "lower bound"}  # fmt: skip


def test_no_script_is_unsatisfiable_before_the_negation():
    """Otherwise unsat would say nothing: the last assertion is the negation, the rest must be satisfiable."""
    for cell in ("III/D_f/policy", "V/Tensor/Depth", "VII/Expert/Memory", "VIII/3D/Work"):
        for script in smtlib.export_cell(CELLS[cell], cell):
            assert script.body[-1].startswith("(assert ")
            assert solve("\n".join(script.body[:-1]), script.logic) == "sat", script.text


def leaves(data, path=()):
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        if isinstance(item, (dict, list)):
            yield from leaves(item, (*path, key))
        else:
            yield (*path, key), item


def changed(data, path, new):
    out = copy.deepcopy(data)
    place = out
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return out


def numbers(certificate, kind):
    return [(path, leaf) for path, leaf in leaves(certificate) if kind in path and "floor" not in path and leaf != "0"]


@pytest.mark.parametrize("kind", ["weight", "nonneg", "powers"])
def test_a_changed_weight_or_multiplier_is_satisfiable(kind):
    tried = 0
    for name, certificate in NAMED[::4]:
        for path, leaf in numbers(certificate, kind)[:2]:
            for factor in (-1,) if kind == "powers" else (-1, Fraction(1, 2)):  # half a power may still do
                bad = changed(certificate, path, str(Fraction(leaf) * factor))
                assert not agreed(bad), (name, path)
                tried += 1
    assert tried > 20


@pytest.mark.parametrize("side", ["f", "g"])
def test_a_changed_exponent_is_satisfiable(side):
    for name, certificate in NAMED[::4]:
        if certificate["claim"] == "order" and "**2" in certificate["f"] and not certificate["hypotheses"]:
            text = certificate[side].replace("**2", "**3" if side == "f" else "**1")
            try:
                assert not agreed({**certificate, side: text}), name
            except MALFORMED:  # a group that the certificate does not speak of
                continue


def tampered(certificate, rng):
    """One leaf changed: a number, or an exponent or factor in a text."""
    fixed = ("f_is", "g_is", "claim", "directions", "rest", "slack")
    path, leaf = rng.choice([(p, v) for p, v in leaves(certificate) if p[0] not in fixed and p[-1] != "rule"])
    if isinstance(leaf, int):
        return changed(certificate, path, not leaf if isinstance(leaf, bool) else leaf + 1)
    if re.fullmatch(r"-?\d+(/\d+)?", leaf):
        value = Fraction(leaf)
        return changed(certificate, path, str(rng.choice([value / 2, value * 2, value + 1, -value, value - 1])))
    return changed(certificate, path, rng.choice([f"{leaf}*d", f"{leaf}/m", leaf.replace("**2", "**3"), f"{leaf}**2"]))


@seed(7)
@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_the_solver_and_the_checker_agree_on_tampered_certificates(number):
    rng = random.Random(number)
    certificate = tampered(rng.choice(NAMED)[1], rng)
    try:
        checker.check_certificate(certificate)
        accepted = True
    except checker.Rejected:
        accepted = False
    try:
        assert agreed(certificate) == accepted
    except MALFORMED:
        assert not accepted


@pytest.mark.parametrize("cell", ["III/C_f/policy", "VII/Tensor/Depth", "V/Expert/Work"])
def test_a_certificate_of_another_cell_is_satisfiable(cell):
    other = {**CELLS[cell], "printed_expr": CELLS[cell]["printed_expr"] + " + 1"}
    assert any(solve(s.text, s.logic) == "sat" for s in smtlib.export_cell(other, cell))


def test_cvc5_agrees_with_every_certificate_of_the_tables():
    cvc5 = pytest.importorskip("cvc5")
    for cell, data in CELLS.items():
        for script in smtlib.export_cell(data, cell):
            solver = cvc5.Solver()
            parser = cvc5.InputParser(solver)
            parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, script.text, cell)
            symbols, output = parser.getSymbolManager(), ""
            while not (command := parser.nextCommand()).isNull():
                output += command.invoke(solver, symbols)
            assert output.strip() == "unsat", script.text


# -- files, and the checker's size -------------------------------------------------------------------------------------
def test_the_command_writes_all_scripts_and_an_index(tmp_path):
    file, out = tmp_path / "verdicts.json", tmp_path / "smt"
    file.write_text(json.dumps({"cells": [CELLS[cell] for cell in ("III/D_b", "VII/3D/Memory", "VIII/Tensor/Work")]}))
    first = CliRunner().invoke(cli.main, ["export-smt", str(file), "--out", str(out)])
    assert first.exit_code == 0, first.output
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    entries = json.loads(before["index.json"])["scripts"]
    assert {entry["file"] for entry in entries} | {"index.json"} == set(before)
    assert first.output.startswith(f"{len(entries)} scripts")
    script = before[entries[0]["file"]].decode()
    assert script.startswith(f"; cell {entries[0]['cell']}, ")
    assert script.endswith("(check-sat)\n")
    assert CliRunner().invoke(cli.main, ["export-smt", str(file), "--out", str(out)]).exit_code == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"smt", "verdicts.json"}


@pytest.mark.parametrize("text", ["", "[]", '{"cells": [{"id": "x", "certificate": {"claim": "order"}}]}', "{}"])
def test_a_bad_file_is_one_sentence_and_writes_nothing(tmp_path, text):
    bad = tmp_path / "bad.json"
    bad.write_text(text)
    done = CliRunner().invoke(cli.main, ["export-smt", str(bad), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert len(done.output.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    done = CliRunner().invoke(cli.main, ["export-smt", str(VERDICTS), "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_export_shares_no_code_with_search_or_checker():
    for path in Path(smtlib.__file__).parent.glob("smt*.py"):
        imports = re.findall(r"^\s*(?:from|import) ([\w.]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        ours = {name for name in imports if name.split(".")[0] not in sys.stdlib_module_names}
        assert all(re.fullmatch(r"derive\.asymptotics\.smt\w+", name) for name in ours), (path, ours)


def test_the_proof_kernel_is_small_and_the_checker_runs_alone(tmp_path):
    source = Path(checker.__file__).read_text(encoding="utf-8")
    kernel = source[source.index("# -- part 3: the proof kernel") : source.index("# -- part 4")]
    assert len(kernel.splitlines()) < 200
    alone = tmp_path / "checker.py"
    alone.write_text(source, encoding="utf-8")
    run = subprocess.run([sys.executable, "-I", "-S", str(alone), str(VERDICTS)], cwd=tmp_path, check=False,
                         capture_output=True, text=True)  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == f"{len(CELLS)} cells checked\n"
