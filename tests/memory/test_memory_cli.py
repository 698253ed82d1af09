"""The command memory: what it prints, as text and as JSON, and one sentence for bad input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from derive import cli
from derive.commands.options import ACCUMULATED, GATHERED, MODELS, RECOMPUTES
from derive.normal import single_form
from derive.textform import parse_text
from graphs.blocks.decoder import FEED_FORWARDS
from graphs.models.roles import ROLES
from graphs.schemes import scheme
from graphs.transforms.recompute import Recompute

SIZES = {"B": 2, "m": 8, "d": 16, "h": 4, "d_ff": 64, "L": 3, "V": 8}


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.main, [*words])
    return done.exit_code, done.stdout, done.stderr


def at(**more: int) -> list[str]:
    return [w for name, value in (SIZES | more).items() for w in ("--set", f"{name}={value}")]


def data_of(*words: str) -> dict[str, Any]:
    code, out, err = run("memory", *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_bytes_of_a_layer_at_given_sizes() -> None:
    data = data_of("--scheme", "sequence", "--dropout", "--bytes", *at(P_t=4))
    layer = data["per_layer"]
    assert layer["activations"]["value"] + layer["masks"]["value"] == 2816
    assert layer["statistics"] == {"amount": "16*B*m/P_t", "value": 64}
    assert data["unit"] == "bytes"
    assert data["widths"]["masks"] == 1
    assert sum(t["value"] for t in data["terms"]) == data["totals"]["total"]["value"]
    assert data["sizes"] == dict(sorted((SIZES | {"P_t": 4}).items()))


def test_elements_without_sizes_are_forms() -> None:
    data = data_of()
    assert (data["unit"], data["widths"], data["values_per_parameter"]) == ("elements", None, 4)
    assert data["per_layer"]["activations"] == {"amount": "B*m*(8*d + 2*d_ff + m*h)"}
    assert data["totals"]["optimizer"]["amount"] == "L*(8*d**2 + 4*d*d_ff + 4*d) + 2*V*d + 2*d"


def test_widths_are_the_users_choice() -> None:
    narrow, wide = data_of("--bytes"), data_of("--width", "gradients=4")
    assert narrow["values_per_parameter"] == wide["values_per_parameter"] == 5
    assert narrow["totals"]["weights"] == narrow["totals"]["gradients"] == wide["totals"]["weights"]
    assert wide["totals"]["gradients"]["amount"] == "L*(16*d**2 + 8*d*d_ff + 8*d) + 4*V*d + 4*d"


def test_selective_recomputation_keeps_nothing_that_grows_with_the_square_of_the_positions() -> None:
    assert "m*h" in data_of("--dropout")["per_layer"]["total"]["amount"]
    assert "m*h" not in data_of("--dropout", "--recompute", "selective")["per_layer"]["total"]["amount"]


def test_big_numbers_become_strings() -> None:
    sizes = [w for name in SIZES for w in ("--set", f"{name}={2**20}")]
    assert isinstance(data_of(*sizes)["totals"]["total"]["value"], str)


def test_text_lists_totals_one_layer_and_every_term() -> None:
    code, out, _ = run("memory", "--scheme", "3d", "--dropout", "--bytes", *at(P_d=2, P_p=3, P_t=4))
    assert code == 0
    assert out.startswith("bytes on a rank: policy with dropout, scheme 3d, recompute none\n")
    assert "\n  bytes of an element: weights 2, gradients 2, optimizer 4, " in out
    for line in ("  in all", "  saved by one layer", "  made of"):
        assert f"\n{line}\n" in out
    assert "blocks/probabilities.dropout[1]" in out
    assert "(last stage)" in out
    assert out == run("memory", "--scheme", "3d", "--dropout", "--bytes", *at(P_d=2, P_p=3, P_t=4))[1]


@pytest.mark.parametrize("given", [["P_t"], ["B", "m"], ["P_t", "B", "m", "d", "h", "d_ff", "L"]])
def test_values_for_some_sizes_leave_the_formula_in_the_others(given: list[str]) -> None:
    sizes = SIZES | {"P_t": 4}
    words = [w for name in given for w in ("--set", f"{name}={sizes[name]}")]
    rest = {name: n for name, n in sizes.items() if name not in given}
    total = data_of("--scheme", "tensor", *words)["totals"]["total"]["value"]
    assert single_form(parse_text(str(total))).symbols == set(rest)
    whole = data_of("--scheme", "tensor", *at(P_t=4))["totals"]["total"]["value"]
    assert single_form(parse_text(str(total))).evaluate(rest) == whole


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--scheme", "sideways"], "no scheme is called 'sideways'; choose one of "),
        (["--set", "Q=1"], "no size is called 'Q'"),
        (["--set", "B=0.5"], "a size is a positive integer; write a whole number from 1, such as B=8"),
        (["--set", "B"], "a size is a positive integer; write a whole number from 1, such as B=8"),
        (["--set", "B=0"], "a size is a positive integer; write a whole number from 1, such as B=8"),
        (["--set", "B=1", "--set", "B=2"], "B has a value already; give it once"),
        (["--width", "feelings=2"], "nothing kept is called 'feelings'; use one of weights, gradients"),
        (["--width", "masks=half"], "a width is a whole number of bytes; write masks=4"),
        (["--width", "masks=0"], "an element of masks cannot take 0 bytes; give it at least one"),
        (["--scheme", "tensor", *at(P_t=3)], "entries on a rank; change the sizes"),
        (["--scheme", "tensor", "--set", "P_t=3", "--set", "h=4"], "axis 'h' has h/P_t = 4/3 entries on a rank"),
        (at(h=5), "axis 'k' has d/h = 16/5 entries on a rank; change the sizes"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_two(words: list[str], says: str) -> None:
    code, out, err = run("memory", *words)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_the_words_of_the_command_are_those_of_the_graphs() -> None:
    assert tuple(r.value.replace("_", "-") for r in Recompute) == RECOMPUTES
    assert (GATHERED, ACCUMULATED) == (scheme.GATHERED, scheme.ACCUMULATED)
    assert {name.partition("-")[0] for name in MODELS} == set(ROLES) - {"reference"}
    assert {name.partition("-")[2] or "dense" for name in MODELS} == set(FEED_FORWARDS)
