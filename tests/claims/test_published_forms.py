"""Published forms: each is judged, its residual accounted for, and a form or file that is changed is caught."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from derive import cli
from derive.asymptotics import checker
from derive.asymptotics.checker import Rejected, check_cell
from derive.data import published_folder, published_verdicts_file
from derive.explain import explanation, to_text
from derive.forms import Form, total
from derive.normal import single_form
from derive.published import Published, load
from derive.published_check import check, derived_parts, printed_value, residual, spoken_of
from derive.records import ClaimError
from derive.report import differences, record_of, recorded, safe
from derive.textform import parse_text
from tests.cases.models import gpt, rerun, step, summed
from tests.mutants import perturbations

FORMS = load()
PAGE = Path(__file__).resolve().parents[2] / "docs" / "published.md"
KINDS = ("coefficient", "exponent", "dropped term", "symbol")


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.main, list(words))
    return done.exit_code, done.stdout, done.stderr


def form_of(text: str) -> Form:
    return single_form(parse_text(text))


# -- verdicts ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", FORMS)
def test_a_verdict_is_the_recorded_one_and_stands_before_the_checker(name: str) -> None:
    found = check(FORMS[name])
    assert not differences([found], published_verdicts_file())
    cell = safe(found.json())
    check_cell(cell)
    for field in ("derived", "printed_expr"):
        with pytest.raises(Rejected):
            check_cell({**cell, field: f"{cell[field]} + 1"})


def test_the_command_prints_what_the_standalone_checker_accepts(tmp_path: Path) -> None:
    code, out, err = run("check", "--published", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert [cell["id"] for cell in data["cells"]] == list(FORMS)
    assert sum(data["summary"].values()) == len(FORMS)
    assert not data["summary"]["UNDECIDED"]
    file = tmp_path / "published.json"
    file.write_text(out, encoding="utf-8")
    done = subprocess.run([sys.executable, checker.__file__, str(file)], capture_output=True, text=True, check=False)
    assert done.stdout == f"{len(FORMS)} cells checked\n"


def test_a_verdict_that_is_not_the_recorded_one_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = published_verdicts_file().read_text(encoding="utf-8")
    old = tmp_path / "verdicts.toml"
    old.write_text(text.replace('residual = "2*B*m*V*d"', 'residual = "B*m*V*d"'), encoding="utf-8")
    monkeypatch.setattr("derive.data.published_verdicts_file", lambda: old)
    code, _, err = run("check", "--published")
    assert (code, err) == (1, "kaplan/forward: residual was B*m*V*d, is 2*B*m*V*d\n")


@pytest.mark.parametrize("option", [("--table", "V"), ("--drop", "blocks-only"), ("--scheme", "tensor")])
def test_published_forms_are_checked_all_together(option: tuple[str, str]) -> None:
    code, out, err = run("check", "--published", *option)
    assert (code, out) == (2, "")
    assert "--published has no tables, schemes or assumptions" in err


# -- the residual -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", FORMS)
def test_what_a_residual_is_made_of_adds_up_to_it(name: str) -> None:
    found = check(FORMS[name]).json()
    terms = [(form_of(term["term"]), [form_of(part["amount"]) for part in term["of"]]) for term in found["made_of"]]
    assert all(total(parts) == whole for whole, parts in terms)
    assert total(whole for whole, _ in terms) == form_of(found["residual"] or "0")


@pytest.mark.parametrize("name", FORMS)
def test_a_residual_is_what_the_form_leaves_out_and_the_slack(name: str) -> None:
    form = FORMS[name]
    left_out = total(p.amount for p in derived_parts(form) if p.is_of(form.leaves_out))
    slack = spoken_of(form) - printed_value(form)
    assert residual(form) == left_out + slack
    assert bool(slack) == (check(form).verdict != "EQUAL")


def made_of(name: str) -> dict[str, set[str]]:
    return {t["term"]: {p["from"] for p in t["of"]} for t in check(FORMS[name]).json()["made_of"]}


def test_residuals_name_the_operations_and_parameters_they_come_from() -> None:
    attention = {f"blocks/{n}" for n in ("scores", "mix")} | {
        f"blocks'/{n}.d{i}'" for n in ("scores", "mix") for i in (0, 1)
    }
    logits = {"unembedding", "unembedding.d0'", "unembedding.d1'"}
    assert made_of("kaplan/training") == {"6*B*m**2*L*d": attention, "6*B*m*V*d": logits}
    assert made_of("trainers/gpt-neox-unrecomputed") == {"3*B*m*V*d/2": logits | {"printed"}}
    assert made_of("palm/training") == {
        "-12*B*m*L*d": {"printed: N counts gain_1", "printed: N counts gain_2"},
        "-6*B*m*d": {"printed: N counts gain_f"},
    }


def test_an_explanation_says_what_was_asked_and_where_it_is_printed() -> None:
    text = to_text(explanation("korthikanti/sequence"))
    for line in (
        "korthikanti/sequence: EQUAL",
        "  residual 16*B*m/P_t",
        "      blocks/norm_1[1]  4*B*m/P_t",
        "scheme sequence, recompute none, dropout True",
        "it leaves out statistics",
        "arXiv:2205.05198, Section 4.2.2, equation 4, and Table 2",
    ):
        assert line in text


# -- against counts of other models -----------------------------------------------------------------------------------
@pytest.mark.parametrize(("layers", "width", "m", "vocabulary"), [(3, 32, 16, 40), (2, 8, 5, 11)])
def test_work_is_that_of_models_with_numbers_for_sizes(layers: int, width: int, m: int, vocabulary: int) -> None:
    """Counted on graphs of a GPT-2 without any symbol."""
    sizes = {"B": 1, "L": layers, "d": width, "h": 1, "d_ff": 4 * width, "m": m, "V": vocabulary}
    model = gpt(layers, width, vocabulary, positions=m)
    for name, counted in {
        "megatron/recomputed": summed(rerun(model, m, "dense")),
        "korthikanti/model-work": step(model, m, "dense"),
        "trainers/megatron-lm": step(model, m, "dense"),
        "trainers/megatron-lm-causal": step(model, m, "half"),
        "trainers/gpt-neox": summed(rerun(model, m, "dense")),
    }.items():
        assert FORMS[name].value.evaluate(sizes) == counted, name


# -- published numbers ------------------------------------------------------------------------------------------------
COOKBOOK = {"B": 1, "L": 44, "d": 6144, "m": 2048, "V": 51_200}
PYTHIA = {"B": 1, "L": 6, "d": 512, "m": 2048, "V": 50_257}
PALM = {"N": 540_350_000_000, "L": 118, "h": 48, "d_h": 256, "m": 2048}
TINY = {"m": 8, "B": 2, "d": 16, "h": 4, "P_t": 4}
ZERO = {"N": 7_500_000_000, "P_d": 64, "K": 12}
SEQUENCES = Fraction(300 * 10**9, 2048)
UTILISATION = Fraction(100 * 238_300, 6144 * 275 * 10**12)


@pytest.mark.parametrize(
    ("name", "sizes", "unit", "printed"),
    [
        ("megatron/recomputed", COOKBOOK, SEQUENCES / 10**21, "51.0589"),
        ("korthikanti/model-work", COOKBOOK, SEQUENCES / 10**21, "38.4358"),
        ("megatron/recomputed", PYTHIA, Fraction(1, 10**11), "8.31586"),
        ("trainers/gpt-neox-before-1094", PYTHIA, Fraction(1, 10**11), "5.15396"),
        ("kaplan/training", PALM, UTILISATION, "45.726"),
        ("palm/training", PALM, UTILISATION, "46.229"),
        ("palm/training", {"N": 0, "L": 3, "h": 2, "d_h": 8, "m": 16}, Fraction(1), "9216"),
        ("korthikanti/serial", TINY, Fraction(1), "11264"),
        ("korthikanti/tensor", TINY, Fraction(1), "4736"),
        ("korthikanti/sequence", TINY, Fraction(1), "2816"),
        ("korthikanti/sequence-selective", TINY, Fraction(1), "2176"),
        ("korthikanti/serial", {"m": 4096, "B": 1, "d": 4096, "h": 32}, Fraction(1, 2**30), "3.03125"),
        ("korthikanti/serial", {"m": 2048, "B": 1, "d": 12_288, "h": 96}, Fraction(1, 2048 * 12_288), "114"),
        ("zero/state-0", ZERO, Fraction(1, 10**9), "120"),
        ("zero/state-1", ZERO, Fraction(1, 10**9), "31.406"),
        ("zero/state-2", ZERO, Fraction(1, 10**9), "16.641"),
        ("zero/state-3", ZERO, Fraction(1, 10**9), "1.875"),
        ("trainers/deepspeed-before-5099", ZERO, Fraction(1, 10**9), "31.875"),
        ("trainers/deepspeed-5099", ZERO, Fraction(1, 10**9), "16.641"),
        ("trainers/megatron-core-mixed-distributed", {"P_d": 8}, Fraction(1), "7.5"),
        ("fsdp/replicated", {"N": 1, "P_d": 64}, Fraction(1), "1.96875"),
        ("fsdp/sharded", {"N": 1, "P_d": 64}, Fraction(1), "2.953125"),
    ],
)
def test_a_form_gives_the_published_number(name: str, sizes: dict[str, int], unit: Fraction, printed: str) -> None:
    value = FORMS[name].value.evaluate(sizes) * unit
    assert round(value, len(printed.partition(".")[2])) == Fraction(printed)


# -- forms that are changed -------------------------------------------------------------------------------------------
def changed(name: str) -> list[tuple[str, Published]]:
    """One perturbation of each kind that prints something else, where there is one."""
    form, out = FORMS[name], {}
    for mutant in perturbations(form.claim):
        other = replace(form, claim=replace(form.claim, expr=mutant.expr))
        try:
            if mutant.kind in KINDS and mutant.kind not in out and printed_value(other) != printed_value(form):
                out[mutant.kind] = (mutant.what, other)
        except ValueError:  # outside the class of claims
            continue
    return list(out.values())


@pytest.mark.parametrize("name", FORMS)
def test_a_changed_form_changes_the_verdict_and_the_residual(name: str) -> None:
    before = check(FORMS[name])
    mutants = changed(name)
    assert mutants
    for what, form in mutants:
        after = check(form)
        check_cell(safe(after.json()))
        assert after.json()["residual"] != before.json()["residual"], what
        assert record_of(after) != record_of(before), what
        if before.verdict == "EQUAL":
            assert (before.kind, after.verdict) == ("equal", "REFUTED"), what


@pytest.mark.parametrize(
    ("name", "changes", "slack"),
    [
        ("kaplan/forward", {"causal": "dense"}, "2*B*m**2*L*d"),
        ("palm/training", {"causal": "half"}, "-6*B*m**2*L*d - 12*B*m*L*d - 6*B*m*d"),
        ("trainers/torchtitan", {"embedding": "tied"}, "-12*B*m*L*d - 6*B*m*d"),
        ("megatron/recomputed", {"recompute": "layer-boundary"}, "-8*B*m*L*d**2"),
        ("korthikanti/sequence", {"recompute": "selective"}, "-5*B*m**2*h/P_t"),
        ("korthikanti/serial", {"dropout": False}, "-B*m*(2*d + 3*m*h)"),
        ("trainers/megatron-core-16", {"copies": 5}, "-4*(2*L*(2*d**2 + d*d_ff + d) + V*d + d)"),
        ("zero/state-2", {"scheme": "zero-3"}, "(2/P_d - 2)*(2*L*(2*d**2 + d*d_ff + d) + V*d + d)"),
    ],
)
def test_another_question_has_another_answer(name: str, changes: dict[str, Any], slack: str) -> None:
    form = replace(FORMS[name], asked=replace(FORMS[name].asked, **changes))
    assert spoken_of(form) - printed_value(form) == form_of(slack)


def test_counting_the_embedding_too_is_six_v_d_for_each_token() -> None:
    """litgpt's counter, which counts all parameters, against torchtitan's, which leaves the table of the lookup out."""
    ours, theirs = printed_value(FORMS["trainers/torchtitan"]), printed_value(FORMS["trainers/litgpt"])
    assert theirs - ours == form_of("6*B*m*V*d")


# -- files that are refused -------------------------------------------------------------------------------------------
GOOD = """
source = "A and B 2020"
letters = { s = "m" }
relations = ["d_ff = 4*d"]
counts = { N = ["layers"] }
measure = "training work"
causal = "half"

[[claim]]
id = "here/one"
place = "Section 1"
kind = "approx"
latex = '6Bs N'
"""


WORK, STATE = 'measure = "training work"\ncausal = "half"', 'measure = "training state"\n'


def loaded(folder: Path, text: str) -> dict[str, Published]:
    (folder / "here.toml").write_text(text, encoding="utf-8")
    return load(folder)


def test_a_file_of_forms_is_read_from_any_folder(tmp_path: Path) -> None:
    assert check(loaded(tmp_path, GOOD)["here/one"]).json()["residual"] == "6*B*m*(V*d + m*L*d)"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("place =", "plce =", "here.toml, here/one: unknown key 'plce'; known are "),
        ("source =", "sauce =", "here.toml: unknown key 'sauce'; known are "),
        ('place = "Section 1"', "", "`place` is missing or is not text"),
        ('id = "here/one"', 'id = "there/one"', "begins with here/; write here/there/one"),
        ('kind = "approx"', 'kind = "rough"', "kind 'rough' is not one of equal, approx"),
        ('kind = "approx"', "", "kind None is not one of equal, approx"),
        ('"training work"', '"wrok"', "measure 'wrok' is not one of parameters, forward work"),
        ('measure = "training work"', "", "measure None is not one of parameters, forward work"),
        ('causal = "half"', "", "causal None is not one of exact, half, dense"),
        ('causal = "half"', 'causal = "half"\nscheme = "tensor"', "`scheme` changes nothing in the training work"),
        (WORK, STATE + 'scheme = "3d"', "scheme '3d' is not one of context, data"),
        (WORK, STATE + "copies = true", "`copies` is True; give it a whole number from 1"),
        (WORK, STATE + "copies = 0", "`copies` is 0; give it a whole number from 1"),
        ('causal = "half"', 'causal = "half"\nper = "day"', "per 'day' is not one of batch, sequence, token"),
        (WORK, STATE + "widths = { masks = 0 }", "masks cannot take 0 bytes; give it at least"),
        (WORK, STATE + "widths = { masks = 1.5 }", "`widths` must be whole numbers of bytes"),
        (WORK, STATE + "widths = { feelings = 1 }", "widths: unknown key 'feelings'"),
        ("6Bs N", "6Bq N", "unknown symbol q at position 3"),
        ("6Bs N", "6Bt N", "t is no size; say in `letters` which one it stands for"),
        ("6Bs N", "6Bs/(N+1)", "cannot divide by"),
        ('{ s = "m" }', '{ s = "length" }', "the letter s stands for no size of graphs/symbols.py"),
        ('["layers"]', '["layer"]', "what N counts, 'layer' is not one of layers, gains"),
        ("{ N =", "{ Q =", "the letter Q of `counts` is no size"),
        ('"d_ff = 4*d"', '"4*d"', "the relation `4*d` must give a size its value"),
        ('"d_ff = 4*d"', '"d = 4*d"', "the relation `d = 4*d` gives d by itself"),
        ("latex =", "text = '6*B'\nlatex =", "one of `latex` and `text` is needed"),
        ("[[claim]]", "[[claims]]", "here.toml: unknown key 'claims'"),
        (GOOD, GOOD + GOOD[GOOD.index("[[claim]]") :], "the claim id 'here/one' occurs twice; remove one"),
        (GOOD, "source = [", "here.toml: not valid TOML"),
    ],
)
def test_a_broken_rule_is_one_sentence(old: str, new: str, says: str, tmp_path: Path) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(ClaimError) as refused:
        loaded(tmp_path, GOOD.replace(old, new))
    assert says in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_leaving_out_what_is_not_there_is_refused(tmp_path: Path) -> None:
    form = loaded(tmp_path, GOOD.replace("causal =", 'leaves_out = ["softmax"]\ncausal ='))["here/one"]
    with pytest.raises(
        ClaimError, match=r"here/one: leaves out 'softmax', which is no part of it; the parts are .*mix"
    ):
        check(form)


def test_a_folder_without_forms_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClaimError, match="no published forms there"):
        load(tmp_path)


# -- the page ---------------------------------------------------------------------------------------------------------
def page_rows() -> list[str]:
    rows = []
    for name, found in recorded(published_verdicts_file()).items():
        left = found.get("residual", "nothing")
        regime = f" where `{found['regime']}`" if "regime" in found else ""
        rows.append(f"| {name} | {found['verdict']}{regime} | {left if left == 'nothing' else f'`{left}`'} |")
    return rows


def test_the_page_shows_every_verdict_with_its_residual() -> None:
    shown = [
        line
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith(tuple(f"| {name} |" for name in FORMS))
    ]
    assert shown == page_rows()


def test_every_source_has_its_file() -> None:
    files = {f.stem for f in published_folder().glob("*.toml")} - {"verdicts"}
    assert {name.partition("/")[0] for name in FORMS} == files
