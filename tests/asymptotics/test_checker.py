"""The checker reads text as the rest of the project does, stands alone, and accepts nothing that was tampered with."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from derive.asymptotics import Proved, Refuted, checker
from derive.asymptotics.checker import Reader, Rejected, check_certificate, check_file, check_witness
from tests.asymptotics.questions import CASES, FREE, PLAIN, Case, value

ANSWERS = {case.name: case.answer() for case in CASES}
CERTIFICATES = {name: a.certificate for name, a in ANSWERS.items() if isinstance(a, Proved)}
WITNESSES = {name: a.witness for name, a in ANSWERS.items() if isinstance(a, Refuted)}
SOURCE = Path(checker.__file__)


# -- reading -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "2*L*(4*log(d) + log(d_ff) - log(h)) + log(B*m)",
        "log(3*S + 6*T) - log(12*d**2/m)",
        "Max(a, b + Max(c, 2*d))*(L + 1)/(3*P)",
        "ceil_log(S + T)*L**(-2) + 1/2 - 7*d",
        "-(a - b)**3 + C_f_tok(pi)*K",
    ],
)
def test_text_round_trip(text):
    """Reading a form's text gives the same normal form again."""
    reader = Reader({})
    again = reader.read(value(text).text) if "C_f" not in text and "ceil" not in text else reader.read(text)
    assert {frozenset(p.items()) for p in again} == {frozenset(p.items()) for p in reader.read(text)}


@pytest.mark.parametrize(
    "text",
    ["", "a +", "a/(b + c)", "log(a - b)", "log(log(a))", "log(0)", "a**b", "a**1000", "(a", "a b", "-Max(a, b)", "é",
     "Max(a, b)*(c - d)", "a/log(b)", "Sum(t, (t, 0, T))", "__import__('os')", "(" * 500 + "a" + ")" * 500],
)  # fmt: skip
def test_refused_texts(text):
    with pytest.raises(Rejected):
        Reader({}).read(text)


@pytest.mark.parametrize(
    "factors", [{"d": "h + 1"}, {"d": "2*h"}, {"d": "1/h"}, {"d": "h*x", "h": "y"}, {"d": "log(h)"}]
)
def test_factors_are_products_of_free_factors(factors):
    with pytest.raises(Rejected):
        Reader(factors)


def test_log_bounds_are_bounds():
    for n in (1, 2, 3, 5, 7, 8, 1000, 2**70 + 1):
        low, high = checker.log_bounds(n)
        assert 2**low.numerator <= n**low.denominator
        assert n**high.denominator <= 2**high.numerator
        assert high - low <= Fraction(1, 16)


# -- standing alone ----------------------------------------------------------------------------------------------------
def _cell(name: str, case: Case) -> dict[str, Any]:
    answer = ANSWERS[name]
    verdict = {"order": "UPPER", "equal": "EQUAL", "leading": "LEADING", "at_most": "UPPER"}[case.ask]
    proved = isinstance(answer, Proved)
    data = answer.certificate if isinstance(answer, Proved) else getattr(answer, "witness", None)
    return {
        **_context(data),
        "id": name,
        "printed": case.g,
        "printed_expr": case.g,
        "derived": case.f,
        "verdict": verdict if proved else "REFUTED" if isinstance(answer, Refuted) else "UNDECIDED",
        "certificate": {"kind": "upper", "upper": answer.certificate} if isinstance(answer, Proved) else {},
        "witness": answer.witness if isinstance(answer, Refuted) else None,
    }


def _context(data):
    """The domain and the hypotheses that a cell carries beside its proof."""
    if data is None:
        return {}
    return {"hypotheses": data["hypotheses"], "domain": {"factors": data["factors"], "least": data["least"]}}


@pytest.fixture
def verdicts(tmp_path):
    path = tmp_path / "verdicts.json"
    path.write_text(json.dumps({"cells": [_cell(c.name, c) for c in CASES]}))
    return path


def _run(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(SOURCE), str(path)], capture_output=True, text=True, check=False
    )


def test_a_file_checks_without_the_project(verdicts):
    assert check_file(verdicts) == len(CASES)
    run = _run(verdicts)
    assert (run.returncode, run.stderr) == (0, "")


def test_the_first_failure_is_named(verdicts):
    data = json.loads(verdicts.read_text())
    data["cells"][2]["certificate"]["upper"]["proofs"][0]["combine"] = ["1/2"]
    verdicts.write_text(json.dumps(data))
    run = _run(verdicts)
    assert run.returncode == 1
    assert data["cells"][2]["id"] in run.stderr


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": [1]}', '{"cells": [{"id": "x"}]}', '{"cells": 3}'])
def test_malformed_files_are_rejected(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert _run(path).returncode == 1


def test_it_imports_the_standard_library_only():
    lines = [
        line.split()[1].split(".")[0]
        for line in SOURCE.read_text().splitlines()
        if line.startswith(("import ", "from "))
    ]
    assert set(lines) <= set(sys.stdlib_module_names)
    assert "eval(" not in SOURCE.read_text()


# -- tampering ---------------------------------------------------------------------------------------------------------
def _leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        if isinstance(item, (dict, list)):
            yield from _leaves(item, (*path, key))
        else:
            yield (*path, key), item


def _changed(data: dict[str, Any], path: tuple[Any, ...], new: Any) -> dict[str, Any]:
    out = copy.deepcopy(data)
    place: Any = out
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return out


#: numbers whose decrease must be noticed: multipliers come from a minimal solution, weights must sum to one
SMALLER = ("times", "weight", "nonneg", "combine", "powers")


@pytest.mark.parametrize("name", sorted(CERTIFICATES))
def test_smaller_numbers_are_rejected(name):
    certificate = CERTIFICATES[name]
    for path, leaf in _leaves(certificate):
        inside = [key for key in path if key in SMALLER]
        if inside and isinstance(leaf, str) and Fraction(leaf) > 0 and "floor" not in path:
            with pytest.raises(Rejected):
                check_certificate(_changed(certificate, path, str(Fraction(leaf) / 2)))


@pytest.mark.parametrize("name", sorted(CERTIFICATES))
def test_dropped_parts_are_rejected(name):
    """Without any one hypothesis that a proof uses, any one use, branch or member, nothing is proved."""
    certificate = CERTIFICATES[name]
    for path, _ in _leaves(certificate):
        for length, key in enumerate(path):
            if key in ("proofs", "uses", "branches", "mean", "pieces", "upper", "lower") and length + 1 < len(path):
                without = copy.deepcopy(certificate)
                place: Any = without
                for step in path[: length + 1]:
                    place = place[step]
                if isinstance(place, list):
                    del place[path[length + 1]]
                    if "directions" not in path[:length]:
                        with pytest.raises(Rejected):
                            check_certificate(without)


@pytest.mark.parametrize("name", sorted(c.name for c in CASES if c.expected == "Proved" and c.hypotheses))
def test_a_proof_does_not_stand_without_the_hypotheses_it_uses(name):
    certificate = CERTIFICATES[name]
    if "hypothesis" in json.dumps([v for k, v in certificate.items() if k != "hypotheses"]):
        with pytest.raises(Rejected):
            check_certificate({**certificate, "hypotheses": []})


FALSE = {"order": "order", "leading": "leading", "at_most": "at_most", "equal": "equal"}


@pytest.mark.parametrize("name", sorted(CERTIFICATES))
def test_a_proof_does_not_prove_a_larger_claim(name):
    certificate = CERTIFICATES[name]
    for symbol in ("d", "m", "L", "S", "zzz"):
        with pytest.raises(Rejected):
            check_certificate({**certificate, "f": f"({certificate['f']})*{symbol}**9 + {symbol}**9"})


@seed(6)
@settings(max_examples=120)
@given(st.sampled_from(sorted(CERTIFICATES)), st.integers(0, 2**32))
def test_mutated_certificates_never_prove_a_refuted_claim(name, number):
    """Any leaf replaced by another leaf of any certificate, under the header of a refuted claim."""
    rng = random.Random(number)
    certificate = copy.deepcopy(CERTIFICATES[name])
    target = WITNESSES[rng.choice(sorted(WITNESSES))]
    if target["claim"] != certificate["claim"]:
        return
    header = {k: target[k] for k in ("claim", "f", "g", "factors", "least", "hypotheses")}
    mutated = {**certificate, **header}
    for path, _ in rng.sample(sorted(_leaves(certificate), key=str), 3):
        if path[0] not in header:
            others = [leaf for _, leaf in _leaves(CERTIFICATES[rng.choice(sorted(CERTIFICATES))])]
            mutated = _changed(mutated, path, rng.choice(others))
    with pytest.raises(Rejected):
        check_certificate(mutated)


#: what may change in a witness without making it wrong
FREE_TEXT = ("f_is", "g_is", "claim")


@pytest.mark.parametrize("name", sorted(WITNESSES))
def test_changed_witnesses_are_rejected(name):
    witness = WITNESSES[name]
    for path, leaf in _leaves(witness):
        if path[0] in FREE_TEXT or path[0] in ("factors", "hypotheses", "f", "g"):
            continue
        new = leaf + 1 if isinstance(leaf, int) else str(int(leaf) + 1) if str(leaf).isdecimal() else f"{leaf}*n"
        if path[0] == "least":
            new = 10**9
        with pytest.raises(Rejected):
            check_witness(_changed(witness, path, new))


@pytest.mark.parametrize("name", sorted(n for n, w in WITNESSES.items() if w["claim"] == "order"))
def test_a_family_does_not_refute_a_weaker_claim(name):
    witness = WITNESSES[name]
    with pytest.raises(Rejected):
        check_witness({**witness, "g": witness["f"]})


def test_a_certificate_is_tied_to_its_cell():
    case = next(c for c in CASES if c.name == "work of the blocks")
    cell = _cell(case.name, case)
    checker.check_cell(cell)
    for field in ("printed_expr", "derived"):
        with pytest.raises(Rejected):
            checker.check_cell({**cell, field: f"{cell[field]} + 1"})
    for verdict in ("EQUAL", "TIGHT", "LEADING", "CONDITIONAL", "REFUTED", "PROVED"):
        if verdict != "CONDITIONAL":
            with pytest.raises(Rejected):
                checker.check_cell({**cell, "verdict": verdict})
    for field, other in (("hypotheses", []), ("domain", {"factors": {}, "least": {"m": 3}})):
        with pytest.raises(Rejected):
            checker.check_cell({**cell, field: other})


def test_a_cell_may_write_the_sequence_as_a_sum():
    answer = Case("", "equal", "2*m*d/m + log(m)", "2*d + log(m)", PLAIN, "Proved").answer()
    assert isinstance(answer, Proved)
    cell = {
        **_context(answer.certificate),
        "id": "x",
        "printed": "",
        "printed_expr": "O(2*d + log(S + T))",
        "derived": "2*d*(S + T)**2/((S + T)*(S + T)) + log(S + T)",
        "verdict": "EQUAL",
        "certificate": answer.certificate,
    }
    checker.check_cell(cell)


def test_a_point_witness_must_lie_in_the_domain():
    answer = Case("", "at_most", "2*d", "d + 1", FREE, "Refuted").answer()
    assert isinstance(answer, Refuted)
    with pytest.raises(Rejected):
        check_witness({**answer.witness, "least": {"d": 1 << 40}})


def test_a_direction_is_a_size_that_can_grow():
    """``q/d = O(g)`` says nothing about a direction, nor does a size that the hypotheses bound."""
    certificate = CERTIFICATES["leading memory"]
    for path, leaf in _leaves(certificate):
        if path[-1] == "symbol":
            for symbol in (f"1/{leaf}", "1", "log(d)", f"{leaf}/d**9"):
                with pytest.raises(Rejected):
                    check_certificate(_changed(certificate, path, symbol))
