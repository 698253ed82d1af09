"""The command line: exit codes, JSON, one sentence for bad input, nothing half-written, the same bytes every time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from derive import claims, cli
from derive.check import check_all
from derive.data import output_folder
from derive.report import differences, recorded, report, write_record

CONTRACT = {
    "id", "table", "row", "column", "printed", "printed_expr", "derived", "derived_order", "verdict", "assumptions",
    "regime", "slack", "certificate", "kind", "implied", "witness", "detail",
}  # fmt: skip
DERIVE = [sys.executable, "-m", "derive.cli"]


def run(*words: str) -> tuple[int, str, str]:
    """In this process, where derivations are remembered from test to test."""
    jobs = ["--jobs", "1"] if words[0] in ("check", "tables", "record") else []
    done = CliRunner().invoke(cli.main, [*words, *jobs])
    return done.exit_code, done.stdout, done.stderr


def test_check_prints_every_cell_and_agrees_with_the_record() -> None:
    code, out, err = run("check")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == len(check_all())


def test_check_as_json_has_the_fields_of_the_contract() -> None:
    code, out, _ = run("check", "--table", "VII", "--json")
    data = json.loads(out)
    assert code == 0
    assert set(data) == {"cells", "schema", "paper", "conventions", "summary"}
    assert all(set(cell) >= CONTRACT for cell in data["cells"])
    assert sum(data["summary"].values()) == len(data["cells"])


def test_a_changed_verdict_makes_check_fail_and_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "verdicts.toml"
    write_record(check_all(table="VII"), record)
    assert differences(check_all(table="VII"), record) == []
    record.write_text(record.read_text().replace('"EQUAL"', '"REFUTED"', 1))
    monkeypatch.setattr("derive.data.verdicts_file", lambda: record)
    code, _, err = run("check", "--table", "VII")
    assert code == 1
    assert err.startswith("VII/None/Work: verdict was REFUTED, is EQUAL")


def test_the_record_holds_every_supported_cell() -> None:
    from derive.data import verdicts_file

    assert set(recorded(verdicts_file())) == {c.id for c in check_all()}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["check", "--drop", "gravity"], "unknown assumption 'gravity'"),
        (["check", "--drop", "canonical-architecture"], "cannot be dropped"),
        (["explain", "IX/Nowhere/Training/Work"], "not supported yet"),
        (["explain", "VII/Nobody/Work"], "not supported yet"),
        (["show", "block", "--scheme", "Sideways"], "no scheme is called 'Sideways'"),
        (["pipeline", "gpipe", "--stages", "1.5", "--micro-batches", "2"], "'1.5' is not a valid integer; `"),
        (["memory", "--copies", "0"], "0 is not in the range x>=1; `"),
        (["show", "nope"], "'nope' is not one of 'block',"),
        (["tables", "--out", __file__], "is a file; `"),
        (["tables", "--out", ""], "the name is empty; write the name of a file or folder"),
        (["check", "--tabel", "V"], "no such option '--tabel'"),
        (["chekc"], "no such command 'chekc'"),
        (["check", "--scheme", "data", "--claims", "/nowhere/mine.toml"], "name a TOML file of claims"),
        (["verify-certificates", "/nowhere/verdicts.json"], "/nowhere/verdicts.json"),
    ],
)
def test_bad_input_is_one_sentence_and_a_non_zero_exit(words: list[str], says: str) -> None:
    done = subprocess.run([*DERIVE, *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize("broken", ["latex = 'x'\n[[claim", "[[claim]]\nid = 'X/None/Work'\nlatex = 'L(d'\n"])
def test_malformed_claims_are_an_input_error_that_names_the_place(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.toml").write_text("table = 'X'\nkind = 'order'\n" + broken)
    monkeypatch.setattr("derive.claims.paper_folder", lambda: tmp_path)
    claims.load.cache_clear()
    try:
        code, out, err = run("check")
    finally:
        claims.load.cache_clear()
    assert (code, out) == (2, "")
    assert "x.toml" in err
    assert len(err.strip().splitlines()) == 1


def test_tables_writes_nothing_when_a_cell_cannot_be_derived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphs.errors import GraphError

    def fail(**_: object) -> None:
        raise GraphError("no")

    monkeypatch.setattr("derive.check.check_all", fail)
    code, _, err = run("tables", "--out", str(tmp_path / "out"))
    assert (code, err) == (2, "derive: no\n")
    assert not (tmp_path / "out").exists()


def committed() -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(output_folder().iterdir())}


def test_the_committed_output_is_what_the_code_writes(tmp_path: Path) -> None:
    code, _, _ = run("tables", "--out", str(tmp_path))
    assert code == 0
    assert {p.name: p.read_bytes() for p in sorted(tmp_path.iterdir())} == committed()


def test_large_integers_are_strings_in_json() -> None:
    assert report([])["cells"] == []
    from derive.report import safe

    assert safe({"n": 2**53 + 1, "m": [2**53]}) == {"n": str(2**53 + 1), "m": [2**53]}


@pytest.mark.parametrize("command", ["", *cli.main.commands])
def test_every_command_has_help(command: str) -> None:
    code, out, _ = run(command, "--help") if command else run("--help")
    assert code == 0
    assert "Usage:" in out


def test_every_example_graph_can_be_shown_and_a_ring_shows_what_goes_round() -> None:
    from derive.commands.schemes import GRAPHS
    from graphs.gallery import NAMES

    assert GRAPHS == NAMES
    code, out, _ = run("show", "block", "--scheme", "ring")
    assert (code, out) == run("show", "block-ring", "--scheme", "ring")[:2]
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines() if " permute " in line] == [
        ["keys.next", "permute"],
        ["values.next", "permute"],
    ]


@pytest.mark.parametrize("scheme", ["expert", "expert-a2a", "5d", "ring", "tensor"])
def test_a_graph_has_the_layers_of_the_scheme_unless_its_name_says_others(scheme: str) -> None:
    from graphs.schemes import declared

    one = {name.lower(): one for name, one in declared().items()}[scheme]
    for variant in ("experts", "dispatched", "ring"):
        as_named = run("show", f"training-{variant}", "--scheme", scheme)[1]
        says = variant in (one.ffn, one.attention)
        assert (run("show", "training", "--scheme", scheme)[1] == as_named) == says
