"""The emitted table and the command line say what the measure says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import click
import pytest
from click.testing import CliRunner

from derive import cli
from derive.asymptotics.problem import as_max
from derive.commands import costs
from derive.commands.options import MODELS
from derive.communication import Communication, communication
from derive.communication_report import communication_report, widths_given
from derive.costs.traffic import ALGORITHMS
from derive.data import output_folder
from derive.forms import Form, Max, symbol
from derive.latex import parse
from derive.measure import Question, graph_of
from derive.normal import to_form
from derive.render.communication import FILE, LINES, communication_table, divided, row
from derive.units import ELEMENTS, MESSAGES
from graphs.axes import Role
from graphs.blocks.decoder import FEED_FORWARDS
from graphs.errors import GraphError
from graphs.schemes import declared
from tests.graphs.test_partition import SCHEMES
from tests.loading import forgetting

TABLE = communication_table()
CELLS = re.compile(r"(?P<name>[^&\n]*) & (?P<phase>[a-z ]+)\n" + r"& \\raggedright \$(.+)\$\n" * 3)


def rows() -> dict[tuple[str, str], tuple[Max, ...]]:
    """(scheme, line) -> volume per rank, messages per rank, volume of all, read back from the LaTeX."""
    out, name = {}, ""
    for found in CELLS.finditer(TABLE):
        name = found["name"] or name
        out[name, found["phase"]] = tuple(as_max(to_form(parse(x))) for x in found.groups()[2:])
    return out


def measured(name: str) -> Communication:
    return communication(Question(scheme=name, ffn=FEED_FORWARDS[declared()[name].ffn]))


def test_the_committed_table_is_the_derived_one() -> None:
    assert (output_folder() / FILE).read_text() == TABLE
    assert TABLE in (output_folder() / "tables.tex").read_text()


def test_every_scheme_and_phase_with_exchanges_has_a_line() -> None:
    wanted = {
        (name, line) for name in SCHEMES for line, phases in LINES.items() if measured(name).during(*phases).items
    }
    assert set(rows()) == wanted
    assert "None" not in {name for name, _ in wanted}


@pytest.mark.parametrize("key", rows())
def test_the_emitted_formulas_are_the_derived_ones(key: tuple[str, str]) -> None:
    found = measured(key[0]).during(*LINES[key[1]])
    wanted = (
        found.per_rank(lambda i: i.sent, ELEMENTS).amount,
        found.per_rank(lambda i: i.messages, MESSAGES).amount,
        found.overall(lambda i: i.total, ELEMENTS).amount,
    )
    assert rows()[key] == wanted


def test_a_degree_less_one_is_taken_out_where_it_divides() -> None:
    p, d = symbol("P_t"), symbol("d")
    rest = 3 * d + 2 * p.inverse()
    assert divided((p - 1) * rest, ("P_t",)) == rest
    assert divided((p - 1) * p * d + d, ("P_t",)) is None
    assert divided(Form.constant(4), ("P_t",)) is None


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX engine")
@pytest.mark.parametrize("options", ["", "twocolumn"])
def test_the_table_fits_a_page(tmp_path, options: str) -> None:
    (tmp_path / FILE).write_text(TABLE)
    packages = r"\usepackage{booktabs}\usepackage{amsmath}"
    host = rf"\documentclass[{options}]{{article}}{packages}\begin{{document}}x\input{{{FILE}}}\end{{document}}"
    (tmp_path / "host.tex").write_text(host)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "host.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert "Output written" in done.stdout, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "Float too large" not in done.stdout


def in_phase(name: str, phase: str) -> Communication:
    """The exchanges of a scheme as if they all took place in one phase."""
    found = measured(name)
    return replace(found, items=tuple(replace(i, phase=phase) for i in found.items))


def test_exchanges_of_an_optimizer_step_get_their_line_and_recomputed_ones_go_backward() -> None:
    update, again = (row(SCHEMES["Data"], in_phase("Data", p))["lines"] for p in ("update", "recompute"))
    assert [line[0] for line in update] == ["optimizer step"]
    assert [line[0] for line in again] == ["backward"]
    assert update[0][1:] == again[0][1:]


def test_an_unknown_phase_is_refused() -> None:
    with pytest.raises(GraphError, match="phase 'sideways' has no line"):
        row(SCHEMES["Data"], in_phase("Data", "sideways"))


# The command line.

SIZES = {"P_t": 4, "B": 2, "m": 8, "L": 3, "d": 16, "h": 4, "d_ff": 32, "V": 20}
SET = [word for name, value in SIZES.items() for word in ("--set", f"{name}={value}")]


def derive(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.main, ["communication", *words])
    return done.exit_code, done.stdout, done.stderr


def data(*words: str):
    code, out, err = derive(*words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_choices_are_those_there_are() -> None:
    (found,) = (o.type for o in costs.communication.params if o.name == "algorithm")
    assert isinstance(found, click.Choice)
    assert tuple(found.choices) == ALGORITHMS


def test_numbers_come_out_as_numbers_and_add_up() -> None:
    found = data("--scheme", "tensor", *SET)
    activation = 2 * 8 * 16
    forward = found["totals"]["forward"]
    assert forward["per_rank"]["volume"] == Fraction(2 * 3, 4) * (activation * (2 * 3 + 1) + 3 * 2 * 8)
    assert forward["global"]["volume"] == 4 * forward["per_rank"]["volume"]
    assert forward["per_rank"]["messages"] == forward["per_rank"]["steps"] == 6 * (2 * 3 + 4)
    step = sum(i["per_rank"]["volume"] for i in found["items"])
    assert found["totals"]["step"]["per_rank"]["volume"] == step


def test_formulas_stay_formulas_where_no_number_is_given() -> None:
    found = data("--scheme", "data", "--set", "P_d=4")
    (loss,) = (i for i in found["items"] if i["phase"] == "forward")
    assert (loss["per_rank"]["volume"], loss["global"]["volume"]) == ("3/2", 6)
    assert "V*d" in found["totals"]["backward"]["per_rank"]["volume"]


def test_bytes_are_elements_times_the_width_of_their_role() -> None:
    plain, wide = data("--scheme", "tensor", *SET), data("--scheme", "tensor", *SET, "--bytes", "2")
    mixed = data("--scheme", "tensor", *SET, "--bytes", "2", "--bytes", "gradient=4")
    assert (plain["unit"], wide["unit"]) == ("elements", "bytes")
    volume = {name: d["totals"]["step"]["global"]["volume"] for name, d in (("p", plain), ("w", wide))}
    assert volume["w"] == 2 * volume["p"]
    backward = plain["totals"]["backward"]["global"]["volume"]
    assert mixed["totals"]["backward"]["global"]["volume"] == 4 * backward
    assert wide["totals"]["step"]["global"]["messages"] == plain["totals"]["step"]["global"]["messages"]


def test_a_tree_takes_fewer_messages_for_as_many_elements() -> None:
    ring, tree = (data("--scheme", "tensor", *SET, "--algorithm", a)["totals"]["step"] for a in ("ring", "tree"))
    assert ring["global"]["volume"] == tree["global"]["volume"]
    assert ring["per_rank"]["messages"] * 2 == tree["per_rank"]["messages"] * 3


@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_measured(model: str) -> None:
    found = data("--scheme", "tensor", "--model", model)
    assert found["model"] == model
    assert ("expert_down" in json.dumps(found["items"])) == model.endswith("experts")


def test_the_text_names_every_exchange_and_the_depth_on_request() -> None:
    code, out, _ = derive("--scheme", "pipeline", "--depth")
    assert code == 0
    assert all(word in out for word in ("blocks/x.hand_on", "elements per rank", "step, global:", "alpha"))
    assert "alpha" not in derive("--scheme", "pipeline")[1]


def test_a_scheme_without_exchanges_has_empty_totals() -> None:
    found = data("--scheme", "none")
    assert found["items"] == []
    assert found["totals"]["step"]["global"] == {"volume": 0, "messages": 0}


def exchanged(found, action: str) -> dict[str, int]:
    """How many exchanges of that kind each phase has."""
    return Counter(i["phase"] for i in found["items"] if i["action"] == action)


def test_policies_of_a_scheme_can_be_asked_for_and_name_it() -> None:
    with forgetting():
        again, kept = (data("--scheme", "zero-3", "--gathered", way) for way in ("again", "kept"))
        shards, partial = (
            data("--scheme", "zero-3", "--micro-batches", "--accumulated", way) for way in ("shards", "partial")
        )
    assert (again["scheme"], kept["scheme"]) == ("zero-3", "zero-3 kept")
    assert exchanged(again, "all_gather")["backward"] == exchanged(again, "all_gather")["forward"]
    assert exchanged(kept, "all_gather") == {"forward": exchanged(again, "all_gather")["forward"]}
    scattered = [{i["count"] for i in found["items"] if i["action"] == "reduce_scatter"} for found in (shards, partial)]
    assert partial["scheme"] == "zero-3 partial"
    assert all("n_mb" in str(count) for count in scattered[0])
    assert not any("n_mb" in str(count) for count in scattered[1])


def test_what_the_backward_pass_computes_again_it_exchanges_again() -> None:
    plain, again = (data("--scheme", "tensor", "--recompute", how) for how in ("none", "layer-boundary"))
    assert exchanged(again, "all_reduce") == exchanged(plain, "all_reduce") | {"recompute": 1}


@pytest.mark.parametrize("words", [["5d"], ["hsdp"], ["sequence"], ["zero-3", "--micro-batches"]])
def test_exchanges_of_parameters_gradients_and_no_others_are_named_by_the_parameter(words: list[str]) -> None:
    question = measured({"5d": "5D", "hsdp": "HSDP", "sequence": "Sequence"}.get(words[0], "ZeRO-3")).question
    axes = {name: tensor.names for name, tensor in graph_of(question).parameters()}
    for item in data("--scheme", *words)["items"]:
        name = item["gradient_of"]
        assert (name is not None) == (item["role"] == Role.PARAMETER_GRADIENT.value)
        if name:
            assert tuple(item["axes"]) in (axes[name], axes[name][1:])
    text = derive("--scheme", *words)[1]
    assert re.search(r"^  grad gain_1 +(all_reduce|reduce_scatter) ", text, re.MULTILINE)


def test_integers_that_json_readers_round_are_strings() -> None:
    found = communication(Question(scheme="Data")).at({"P_d": 2, "V": 2**60, "d": 2, "h": 1, "L": 1, "d_ff": 1})
    volume = communication_report(found, {})["totals"]["step"]["global"]["volume"]
    assert isinstance(volume, str)
    assert int(volume) > 2**60


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scheme", "x"], "no scheme is called 'x'"),
        (["--scheme", "tensor", "--set", "P_t"], "a size is a positive integer"),
        (["--scheme", "tensor", "--set", "P_t=2", "--set", "P_t=4"], "P_t has a value already"),
        (["--scheme", "tensor", "--set", "P_t=3", "--set", "h=4"], "does not divide"),
        (["--scheme", "tensor", "--bytes", "weights=2"], "write a width, or one for a role"),
        (["--scheme", "tensor", "--bytes", "gradient=2"], "first give one for all"),
        (["--scheme", "tensor", "--bytes", "0"], "an element cannot take 0 bytes; write at least 1"),
        (["--scheme", "sequence", "--algorithm", "central"], "reduce_scatter has no central rule"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], message: str) -> None:
    code, out, err = derive(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_words_become_widths() -> None:
    widths = widths_given(["2", "parameter-gradient=4"])
    assert (widths[Role.PARAMETER_GRADIENT], widths[Role.ACTIVATION]) == (4, 2)
    assert widths_given([]) == {}
