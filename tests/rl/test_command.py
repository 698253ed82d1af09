"""The command that shows the operation graphs of the stages."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from derive import cli
from derive.normal import single_form
from derive.textform import parse_text
from graphs.rl.links import LINKS
from graphs.stages import Options, stage_graph


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.main, ["operations", *words])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("algorithm", sorted(LINKS))
def test_every_node_of_the_stages_is_listed_once(algorithm: str) -> None:
    code, out, _ = run("--algorithm", algorithm.lower(), "--json")
    listed = [name for row in json.loads(out)["operations"] for name in row["nodes"]]
    assert code == 0
    assert sorted(listed) == sorted(n.name for n in stage_graph(algorithm, Options()).nodes)
    text = run("--algorithm", algorithm.lower())[1]
    assert all(name in text for name in listed)


def test_trips_and_their_work_follow_the_options() -> None:
    """Two halves of the batch, twice each, are the work of two whole batches."""
    options = ("--option", "epochs", "--option", "updates")
    several, once = (
        json.loads(run("--algorithm", "grpo", *words, "--json")[1])["operations"] for words in (options, ())
    )
    assert [row["trips"] for row in several] == ["1", "1", "1", "1", "n_ep*n_up"]
    for before, after, factor in zip(once, several, ("1", "1", "1", "1", "n_ep"), strict=True):
        wanted = single_form(parse_text(factor)) * single_form(parse_text(before["work"]))
        assert single_form(parse_text(after["work"])) == wanted
    assert ", n_ep*n_up times)" in run("--algorithm", "grpo", *options)[1]


def test_a_node_shows_its_graph_on_one_rank_of_a_scheme() -> None:
    out = run("--algorithm", "dpo", "--node", "update_actor", "--scheme", "tensor")[1]
    assert "all_reduce" in out
    assert "[c/P_t" not in out
    assert "h/P_t" in out
    assert "all_reduce" not in run("--algorithm", "dpo", "--node", "update_actor")[1]
    assert run("--node", "advantages", "--dot")[1].startswith("digraph")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--node", "luck"], "the stages of ppo have no node 'luck'; choose one of generate, "),
        (
            ["--option", "sequential-reward"],
            "stages of PPO: no operations carry out score_reward; add a link in",
        ),
        (["--option", "luck"], "no option is called 'luck'"),
        (["--node", "advantages", "--scheme", "sideways"], "no scheme is called 'sideways'"),
        (["--node", "generate", "--scheme", "pipeline"], "decode would run a pipeline once per iteration"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], says: str) -> None:
    code, out, err = run(*words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert says in err
