"""`derive pipeline`: what it prints, and one sentence for bad input."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from derive import cli


def run(words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.main, ["pipeline", *words.split()])
    return done.exit_code, done.stdout, done.stderr


def test_json_gives_exact_fractions_under_readable_names() -> None:
    code, out, err = run("interleaved --stages 4 --micro-batches 8 --virtual 2 --json")
    data = json.loads(out)
    assert (code, err) == (0, "")
    assert (data["makespan"], data["useful"], data["idle"]) == ("57/2", "96", "18")
    assert (data["bubble_over_ideal"], data["bubble_over_total"], data["efficiency"]) == ("3/16", "3/19", "16/19")
    assert [rank["in_flight"] for rank in data["ranks"]] == [11, 9, 7, 5]
    assert data["closed_form"]["agrees"] is True
    assert data["closed_form"]["proved"] is True
    assert "timeline" not in data


def test_proved_is_said_where_the_proof_covers_the_durations() -> None:
    """ZB-H1 is proved for weight gradients no longer than the other passes; here they are 1, then 3/2 of 1."""
    words = "zero-bubble --stages 4 --micro-batches 8"
    assert "bubble / ideal = 1/8: equal, proved\n" in run(words)[1]
    assert "bubble / ideal = 1/8: equal\n" in run(words + " --weight-gradient 3/2")[1]


def test_the_table_shows_both_bubbles_and_the_closed_form() -> None:
    code, out, _ = run("1F1B --stages 4 --micro-batches 8")
    assert code == 0
    assert "3/8 = 0.375" in out
    assert "3/11 = 0.272727" in out
    assert "bubble / ideal = 3/8: equal, proved" in out


def test_what_no_closed_form_speaks_of_shows_none() -> None:
    for words in ("--layers 4,4,3,5", "--transfer 1/2"):
        assert "closed form" not in run(f"gpipe --stages 4 --micro-batches 8 {words}")[1]
    assert "closed form" not in run("zero-bubble --stages 4 --micro-batches 3")[1]


def test_durations_are_rational_numbers_and_layers_whole_ones() -> None:
    _, out, _ = run("1f1b --stages 2 --micro-batches 3 --forward 1/2 --backward 0.5 --layers 2,4 --json")
    data = json.loads(out)
    assert data["makespan"] == "14"
    assert data["layers"] == ["2", "4"]


CHART = """\
time per column: 1
rank 0   F0 F1 .  .  B0 == .  B1 ==
rank 1   .  F0 B0 == F1 B1 == .  .
"""


def test_the_chart_shows_each_rank_over_time() -> None:
    _, out, _ = run("1f1b --stages 2 --micro-batches 2 --timeline")
    assert out.endswith("\n" + CHART)


def test_the_chart_names_the_chunk_where_a_rank_has_several() -> None:
    _, out, _ = run("interleaved --stages 2 --micro-batches 2 --virtual 2 --backward 1 --timeline")
    (line,) = [line for line in out.splitlines() if line.startswith("rank 1 ")]
    assert line.split()[2:] == [".", "F0a", "F1a", "F0b", "B0b", "F1b", "B1b", "B0a", "B1a", "."]


def test_the_timeline_as_json_lists_every_task_with_its_times() -> None:
    _, out, _ = run("zero-bubble --stages 2 --micro-batches 2 --timeline --json")
    ranks = json.loads(out)["timeline"]
    assert [len(tasks) for tasks in ranks] == [6, 6]
    assert ranks[1][0] == {"kind": "forward", "chunk": 1, "micro_batch": 0, "start": "1", "end": "2"}
    assert ranks[1][-1]["kind"] == "weight_gradient"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("gpipe --stages 0 --micro-batches 8", "0 stages"),
        ("sideways --stages 4 --micro-batches 8", "no pipeline schedule is called 'sideways'"),
        ("interleaved --stages 4 --micro-batches 6", "6 is not a multiple of 4"),
        ("zero-bubble --stages 4 --micro-batches 8 --virtual 2", "one stage per rank"),
        ("gpipe --stages 4 --micro-batches 8 --forward 1e9", "--forward: '1e9' is no rational number"),
        ("gpipe --stages 4 --micro-batches 8 --backward 1/0", "--backward: '1/0' is no rational number"),
        ("gpipe --stages 4 --micro-batches 8 --forward " + "9" * 50, "more than 40 characters"),
        ("gpipe --stages 4 --micro-batches 8 --layers 4,,4", "--layers: '' is no rational number"),
        ("gpipe --stages 4 --micro-batches 8 --layers 4,4", "2 numbers of layers for 4 chunks"),
        ("gpipe --stages 4 --micro-batches 8 --layers 4,4,3,1.5", "--layers: 1.5 is no whole number"),
        ("gpipe --stages 4 --micro-batches 8 --layers 4,4,3,-5", "number 4 of the 4 numbers of layers is -5"),
        ("gpipe --stages 4 --micro-batches 8 --weight-gradient 3", "not part of a backward pass"),
        ("gpipe --stages 4 --micro-batches 800 --timeline", "the chart would have"),
    ],
)
def test_bad_input_is_one_sentence(words: str, says: str) -> None:
    code, out, err = run(words)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1
