"""Each question of the tables and of each rule gets its right answer, with a certificate or witness that checks."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from derive.asymptotics import Domain, Proved, Refuted, Undecided, order
from derive.asymptotics.checker import check_certificate, check_witness
from tests.asymptotics.questions import CASES, form


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_answer_is_right(case):
    answer = case.answer()
    assert type(answer).__name__ == case.expected
    if isinstance(answer, Proved):
        check_certificate(json.loads(json.dumps(answer.certificate)))
    elif isinstance(answer, Refuted):
        check_witness(json.loads(json.dumps(answer.witness)))


PRINT = """
import json
from derive.asymptotics import Proved, Refuted
from tests.asymptotics.questions import CASES
for case in CASES:
    a = case.answer()
    print(json.dumps(a.certificate if isinstance(a, Proved) else a.witness if isinstance(a, Refuted) else a.reason))
"""


def test_answers_are_the_same_in_every_run():
    """Byte for byte, whatever order sets and dictionaries of a run have."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", PRINT], env={**os.environ, "PYTHONHASHSEED": s}, capture_output=True, check=True
        )
        for s in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].stdout.count(b"\n") == len(CASES)


def test_a_witness_names_family_sizes_and_values():
    case = next(c for c in CASES if c.name == "tensor depth")
    answer = case.answer()
    assert isinstance(answer, Refuted)
    assert answer.witness["family"]["P_t"] == answer.witness["family"]["h"] == "n"
    assert answer.witness["family"]["d"] == "128*n"
    assert answer.witness["degrees"] == {"f": "log(n)", "g": "1"}
    assert int(answer.witness["derived"]) >= 10 * int(answer.witness["printed"])


def test_leading_names_its_directions():
    answer = next(c for c in CASES if c.name == "leading memory").answer()
    assert isinstance(answer, Proved)
    assert answer.certificate["rest"]["8*L*d"] == ["B", "d", "d_ff", "m"]
    assert set(answer.certificate["directions"]) == {"B", "d", "d_ff", "m"}


def test_what_is_not_supported_is_undecided_with_a_reason():
    answer = order(form("d"), form("log(d) - log(m)"), Domain())
    assert isinstance(answer, (Undecided, Refuted))
    answer = order(form("d"), form("-m"), Domain())
    assert not isinstance(answer, Proved)


def test_a_floor_is_certified_where_there_is_one():
    strong = order(form("d"), form("d*m"), Domain())
    weak = order(form("log(d)"), form("log(d)*log(m) + log(d)"), Domain())
    assert isinstance(strong, Proved)
    assert "floor" in strong.certificate["positive"]
    assert isinstance(weak, Proved)
    assert "floor" not in weak.certificate["positive"]
