"""A user's own scheme: from a file or an installed package to rows, tables and the simulator, or to one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from derive import cli
from derive.check import check_all
from derive.latex import parse
from derive.render.tables import read_back
from derive.textform import parse_text
from graphs import schemes
from graphs.axes import Role
from graphs.blocks.decoder import DENSE
from graphs.errors import GraphError
from graphs.gallery import step
from graphs.ir import Graph
from graphs.ops.collective import Collective
from graphs.ops.repeat import Repeat
from graphs.transforms.partition import partition
from tests.loading import HYBRID, TENSOR_2D, forgetting, named

HEAD = "from graphs.schemes import Mapping as M, Scheme\n"
GRID = [f"{table}/{{}}/{column}" for table in ("V", "VI", "VII", "VIII") for column in ("Work", "Depth", "Memory")]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with forgetting():
        yield


def run(*words: str) -> tuple[int, str, str]:
    jobs = ["--jobs", "1"] if words[0] in ("check", "tables") and "--jobs" not in words else []
    done = CliRunner().invoke(cli.main, [*words, *jobs])
    return done.exit_code, done.stdout, done.stderr


def written(folder: Path, body: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(HEAD + body)
    return str(path)


# A row of one's own.


@pytest.mark.parametrize(("file", "name"), [(TENSOR_2D, "Tensor 2D"), (HYBRID, "Attention data + experts")])
def test_check_derives_the_whole_row_and_compares_nothing(file: str, name: str) -> None:
    code, out, err = run("check", "--scheme", file, "--json")
    cells = {c["id"]: c for c in json.loads(out)["cells"]}
    assert (code, err) == (0, "")
    assert list(cells) == [i.format(name) for i in GRID]
    assert {c["verdict"] for c in cells.values()} == {"NOT_PRINTED"}
    assert all(c["derived_order"] for i, c in cells.items() if i.startswith(("V/", "VI/")))
    for cell in cells.values():
        parse_text(cell["derived"])


def test_the_same_row_comes_from_worker_processes_that_have_never_seen_the_file() -> None:
    one, many = (run("check", "--scheme", TENSOR_2D, "--table", "VII", "--json", "--jobs", n) for n in ("1", "2"))
    assert one == many
    assert one[0] == 0


def test_work_of_the_grid_is_the_sequential_work_over_both_of_its_sides() -> None:
    cells = {c["id"]: c for c in json.loads(run("check", "--scheme", TENSOR_2D, "--json")[1])["cells"]}
    assert cells["VII/Tensor 2D/Work"]["derived"] == "6*B*m*L/(P_x*P_y)*(4*d**2 + 2*d*d_ff + m*d)"
    assert cells["VIII/Tensor 2D/Work"]["derived"] == "6*B*m*L*(4*d**2 + 2*d*d_ff + m*d)"


def test_a_built_in_scheme_without_a_printed_row_has_one_too() -> None:
    code, out, _ = run("check", "--scheme", "ulysses", "--table", "VII")
    assert code == 0
    assert out.splitlines()[0].split()[:2] == ["VII/Ulysses/Work", "NOT_PRINTED"]


def test_assumptions_that_a_scheme_declares_are_in_force_where_the_ledger_has_them() -> None:
    cells = {c["id"]: c for c in json.loads(run("check", "--scheme", HYBRID, "--json")[1])["cells"]}
    row = "VII/Attention data + experts"
    assert "balanced-routing" in cells[f"{row}/Work"]["assumptions"]
    assert "experts-per-rank" in cells[f"{row}/Depth"]["assumptions"]
    assert "balanced-routing" not in cells[f"{row}/Depth"]["assumptions"]
    dropped = json.loads(run("check", "--scheme", HYBRID, "--json", "--drop", "balanced-routing")[1])["cells"]
    assert dropped[6]["derived"] != cells[f"{row}/Work"]["derived"]


def test_a_pipeline_on_a_mesh_dimension_of_ones_own_counts_its_boundary_stages_once(tmp_path: Path) -> None:
    body = "SCHEME = Scheme('Stages', (M('layer', 'P_y'),), 'test', dimensions=(('P_y', 'stages'),))"
    mine = json.loads(run("check", "--scheme", written(tmp_path, body), "--json")[1])["cells"]
    paper = json.loads(run("check", "--scheme", "pipeline", "--json")[1])["cells"]
    assert [c["derived"].replace("P_y", "P_p") for c in mine] == [c["derived"] for c in paper]


def test_show_explain_and_schemes_know_the_file() -> None:
    assert "W_q                      parameter      [c/P_y, h/P_x, k]" in run("show", "block", "--scheme", TENSOR_2D)[1]
    assert "B*m**2*L*h/(P_x*P_y)" in run("explain", "VII/Tensor 2D/Memory", "--scheme", TENSOR_2D)[1]
    (listed,) = json.loads(run("schemes", "--scheme", TENSOR_2D, "--json")[1])["schemes"]
    assert (listed["name"], listed["mapping"]["c"], listed["mapping"]["h"]) == ("tensor 2d", "P_y", "P_x, P_y")


def test_schemes_shows_priorities_places_layouts_nesting_and_policies(tmp_path: Path) -> None:
    lines = [line.strip() for line in run("schemes")[1].splitlines()]
    assert "s -> P_c, h -> P_c (attention, priority 1)" in "\n".join(lines)
    assert "b is cut over P_d, then P_e; gathered again; accumulated shards" in lines
    body = "SCHEME = Scheme('Mine', (M('s', 'P_c', layout='zigzag'),), 'test', gathered='kept')"
    listed = {s["name"]: s for s in json.loads(run("schemes", "--json")[1])["schemes"]}
    assert listed["5d"]["nesting"] == {"b": ["P_d", "P_e"]}
    shown = run("schemes", "--scheme", written(tmp_path, body))[1]
    assert shown.split("\n")[:2] == ["mine       s -> P_c (zigzag)", f"{'':<11}gathered kept; accumulated shards"]


def test_tables_have_the_row_after_those_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("derive.check.check_all", partial(check_all, table="VII"))  # one table of the paper will do
    code, _, err = run("tables", "--scheme", TENSOR_2D, "--out", str(tmp_path))
    assert (code, err) == (0, "")
    text = (tmp_path / "table_vii.tex").read_text()
    assert text.index("\nExpert\n") < text.index("\n3D\n") < text.index("\nTensor 2D\n")
    formulas = read_back(text)
    assert set(formulas) >= {i.format("Tensor 2D") for i in GRID if i.startswith("VII/")}
    for latex in formulas.values():
        parse(latex)
    assert r"\circ" in text.partition("\nTensor 2D\n")[2].partition(r"\tabularnewline")[0]
    cells = json.loads((tmp_path / "verdicts.json").read_text())["cells"]
    assert [c["id"] for c in cells[-12:]] == [i.format("Tensor 2D") for i in GRID]


def test_the_tables_of_the_repository_are_not_written_over() -> None:
    code, out, err = run("tables", "--scheme", TENSOR_2D)
    assert (code, out) == (2, "")
    assert "--out" in err


# Claims of one's own.

CLAIMS = r"""
table = "VII"
kind = "equal"
[[claim]]
id = "VII/Tensor 2D/Work"
latex = '\frac{6BmL}{P_{x}P_{y}}(4d^2+2d d_{\text{ff}}+md)'
"""


def claims(folder: Path, text: str) -> str:
    path = folder / "claims.toml"
    path.write_text(text)
    return str(path)


def test_a_users_claim_is_judged_with_a_certificate_that_the_checker_accepts(tmp_path: Path) -> None:
    words = ("check", "--scheme", TENSOR_2D, "--claims", claims(tmp_path, CLAIMS), "--json")
    code, out, _ = run(*words)
    cells = {c["id"]: c for c in json.loads(out)["cells"]}
    assert code == 0
    assert cells["VII/Tensor 2D/Work"]["verdict"] == "EQUAL"
    assert cells["VII/Tensor 2D/Depth"]["verdict"] == "NOT_PRINTED"
    file = tmp_path / "verdicts.json"
    file.write_text(out)
    checker = ROOT / "derive" / "asymptotics" / "checker.py"
    done = subprocess.run([sys.executable, str(checker), str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "12 cells checked\n")


def test_a_false_claim_is_refuted_and_the_exit_code_says_so(tmp_path: Path) -> None:
    wrong = CLAIMS.replace("6BmL", "2BmL")
    code, out, err = run("check", "--scheme", TENSOR_2D, "--table", "VII", "--claims", claims(tmp_path, wrong))
    assert code == 1
    assert out.startswith("VII/Tensor 2D/Work   REFUTED ")
    assert err.startswith("VII/Tensor 2D/Work: refuted: Derived minus printed")


BAD_CLAIMS = {
    "an unknown symbol": (("{x}P", "{q}P"), "unknown symbol"),
    "an unbound index": (("+md", "+t d"), "the index t occurs outside a sum"),
    "another row": (("VII/Tensor 2D/Work", "VII/Tensor/Work"), "not a cell of the row Tensor 2D"),
    "another column": (("2D/Work", "2D/Speed"), "not a cell of the row Tensor 2D; write one of V/Tensor 2D/Work, "),
    "twice the same": (("[[claim]]", "[[claim]]\nid = 'VII/Tensor 2D/Work'\nlatex = 'L'\n[[claim]]"), "occurs twice"),
    "a misspelt key": (("latex", "latecks"), "unknown key 'latecks'"),
    "no TOML": (("[[claim]]", "[[claim"), "not valid TOML"),
}


@pytest.mark.parametrize("case", BAD_CLAIMS)
def test_an_ill_formed_claim_is_an_input_error_with_its_place(case: str, tmp_path: Path) -> None:
    (old, new), says = BAD_CLAIMS[case]
    file = claims(tmp_path, CLAIMS.replace(old, new))
    done = run("check", "--scheme", TENSOR_2D, "--claims", file)
    refused(done, says)
    assert "claims.toml" in done[2]


def test_claims_need_a_scheme(tmp_path: Path) -> None:
    refused(run("check", "--claims", claims(tmp_path, CLAIMS)), "name it with --scheme")


# What is refused.


def refused(done: tuple[int, str, str], says: str) -> None:
    code, out, err = done
    assert (code, out) == (2, ""), err
    assert says in err
    assert len(err.strip().splitlines()) == 1


def scheme(entries: str, rest: str = "") -> str:
    return f"SCHEME = Scheme('Mine', ({entries},), 'test'{rest})"


BAD = {
    "unknown axis": (scheme("M('q', 'P_d')"), "unknown axis 'q'"),
    "unknown mesh dimension": (scheme("M('b', 'P_zz')"), "unknown mesh 'P_zz'"),
    "two axes, no priority": (scheme("M('b', 'P_d'), M('s', 'P_d')"), "give the one that shall stay cut a higher"),
    "two meshes, no nesting": (scheme("M('b', 'P_d'), M('b', 'P_t')"), "declare the nesting, outermost first"),
    "the same, by alias": (scheme("M('s', 'P_c'), M('t', 'P_t')"), "s and t name one axis"),
    "an idle dimension": (scheme("M('e', 'P_e')"), "nothing of the dense training step is cut over P_e"),
    "a name that is no text": (scheme("M('b', 'P_d')").replace("'Mine'", "5"), "a scheme cannot be called 5"),
    "no source": (scheme("M('b', 'P_d')").replace("'test'", "7"), "its source is 7; write"),
    "an axis that is no text": (scheme("M(3, 'P_d')"), "an entry cuts the axis 3"),
    "a nesting that is none": (scheme("M('b', 'P_d')", ", nesting=3"), "its nesting is 3; write one like"),
    "a nesting of no pairs": (scheme("M('b', 'P_d')", ", nesting=('h',)"), "its nesting is ('h',); write one like"),
    "a nesting of nothing": (scheme("M('b', 'P_d')", ", nesting=(('h', ('P_d',)),)"), "axis 'h', which no entry cuts"),
    "a nesting too deep": (scheme("M('b', 'P_d')", ", nesting=(('b', ('P_d', 'P_t')),)"), "has 'P_t', over which"),
    "dimensions that are none": (scheme("M('b', 'P_d')", ", dimensions=3"), "its dimensions are 3; write names"),
    "dimensions without meaning": (scheme("M('b', 'P_d')", ", dimensions=('P_x',)"), "its dimensions are ('P_x',)"),
    "a meaning that is no text": (scheme("M('b', 'P_d')", ", dimensions=(('P_x', 3),)"), "names and meanings like"),
    "blocks and no ranks": (scheme("M('b', 'P_d')") + "\nATTENTION = 'ring'", "map axis 's' to it, or leave ATTENTION"),
    "an assumption nobody knows": (scheme("M('b', 'P_d')") + "\nASSUMES = ('nope',)", "unknown assumption 'nope'"),
    "a name with a slash": (scheme("M('b', 'P_d')").replace("Mine", "a/b"), "a scheme cannot be called 'a/b'"),
    "a taken name": (scheme("M('b', 'P_d')").replace("Mine", "tensor"), "a scheme is called 'Tensor' already"),
    "a taken dimension": (scheme("M('b', 'P_d')", ", dimensions=(('P_d', 'mine'),)"), "P_d already means"),
    "no entries": (scheme("('b', 'P_d')"), "its entries must be a tuple"),
    "no priority number": (scheme("M('b', 'P_d', 'high')"), "has priority 'high'"),
    "no scheme": ("X = 1", "declares no SCHEME"),
    "a wrong type": ("SCHEME = 3", "SCHEME is a int"),
    "a wrong layer": (scheme("M('b', 'P_d')") + "\nFFN = 'sparse'", "FFN is 'sparse'; use one of dense, experts"),
    "wrong assumptions": (scheme("M('b', 'P_d')") + "\nASSUMES = 'x'", "make it a tuple"),
    "an import error": ("import nowhere_to_be_found", "ModuleNotFoundError"),
    "a syntax error": ("SCHEME = (", "not valid Python ("),
    "an exit": ("raise SystemExit(0)", "SystemExit"),
    "an end of another kind": ("class End(BaseException): ...\nraise End('now')", "(End: now); mend the file"),
    "bytes that are no text": ("X = '\0'", "not valid Python (source code string cannot contain null bytes"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("command", [["check"], ["tables", "--out", "OUT"], ["simulate"], ["schemes"]])
def test_a_wrong_declaration_is_one_sentence_and_nothing_is_written(command, case: str, tmp_path: Path) -> None:
    body, says = BAD[case]
    words = [str(tmp_path / "out") if w == "OUT" else w for w in command]
    done = run(*words, "--scheme", written(tmp_path, body))
    refused(done, says)
    assert done[2].startswith(f"derive: {tmp_path / 'mine.py'}: ")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.py"]


@pytest.mark.parametrize(
    ("name", "says"),
    [("gravity", "unknown assumption 'gravity'"), ("sequence-parallel", "puts another scheme in its place")],
)
def test_an_assumption_that_a_scheme_cannot_make_is_refused_by_name(name: str, says: str, tmp_path: Path) -> None:
    body = scheme("M('b', 'P_d')") + f"\nASSUMES = ({name!r},)"
    refused(run("check", "--scheme", written(tmp_path, body)), says)


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("Sideways", "no scheme is called 'Sideways'"),
        ("no.py", "no.py: no such file; name the Python file that declares the scheme"),
        ("/", "no scheme is called '/'"),
    ],
)
def test_what_is_neither_a_scheme_nor_a_file_is_refused(word: str, says: str) -> None:
    refused(run("check", "--scheme", word), says)
    refused(run("check", "--scheme", TENSOR_2D, "--table", "III"), "table III has no rows of schemes")


def test_a_folder_is_no_scheme(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    refused(run("schemes", "--scheme", str(tmp_path / "folder.py")), "not a file; name the Python file")


def test_what_a_scheme_file_prints_stays_out_of_what_the_command_prints(tmp_path: Path) -> None:
    file = written(tmp_path, "print('hello')\n" + scheme("M('b', 'P_d')"))
    code, out, err = run("schemes", "--scheme", file, "--json")
    assert (code, err) == (0, "hello\n")
    assert json.loads(out)["schemes"][0]["name"] == "mine"


def test_a_file_loaded_again_is_the_same_scheme_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, scheme("M('b', 'P_d')"))
    assert schemes.load(Path(file)) is schemes.load(Path(file))
    written(tmp_path, scheme("M('b', 'P_c')"))
    with pytest.raises(GraphError, match="has changed since it was loaded"):
        schemes.load(Path(file))


# The simulator.


@pytest.mark.parametrize("word", ["None", "3d", "ulysses", TENSOR_2D])
def test_the_simulator_finds_every_rank_equal_to_the_sequential_run(word: str) -> None:
    code, out, _ = run("simulate", "--scheme", word, "--model", "value", "--experts", "--json")
    data = json.loads(out)
    assert (code, data["agrees"]) == (0, True)
    assert data["ranks"] == 2 ** len(data["degrees"])
    assert {o["name"] for o in data["outputs"]} >= {"loss", "grad:W_1e"}


def sent_on(graph: Graph, stage: str, trips: int) -> Counter[tuple[str, str]]:
    """What a rank of a stage sends, read off the graph: its collectives, and what its loops hand on."""
    out: Counter[tuple[str, str]] = Counter()
    for node in graph.nodes:
        sends = isinstance(node.op, Collective) and node.op.action == "send"
        here = node.stage is None or (node.stage == stage) != sends
        if isinstance(node.op, Repeat):
            out.update({key: trips * n for key, n in sent_on(node.op.body, stage, trips).items()})
            final = "first" if node.op.reverse else "last"
            carried = list(node.op.body.inputs.values())[: node.op.carried]
            out[node.phase, "send"] += sum(t.role is not Role.INDEX for t in carried) * (stage != final)
        elif isinstance(node.op, Collective) and node.op.action != "shard" and here:
            out[node.phase, node.op.action] += 1
    return +out


def test_the_exchanges_that_the_simulator_counts_are_those_of_the_busiest_stage_of_a_pipeline() -> None:
    data = json.loads(run("simulate", "--scheme", "3d", "--set", "L=6", "--json")[1])
    counted: Counter[tuple[str, str]] = Counter()
    for row in data["collectives"]:
        counted[row["phase"], row["action"]] += row["times"]
    part = partition(step("policy", DENSE), schemes.schemes()["3D"])
    stages = [sent_on(part, stage, trips=3) for stage in ("first", "last")]
    assert stages[0] != stages[1]
    assert counted == max(stages, key=Counter.total)
    inner = json.loads(run("simulate", "--scheme", "pipeline", "--degree", "P_p=3", "--json")[1])["collectives"]
    assert [(r["phase"], r["action"], r["times"]) for r in inner] == [("forward", "send", 1), ("backward", "send", 1)]


def test_one_rank_alone_exchanges_nothing() -> None:
    words = [w for p in ("P_d", "P_p", "P_t") for w in ("--degree", f"{p}=1")]
    assert json.loads(run("simulate", "--scheme", "3d", *words, "--json")[1])["collectives"] == []


@pytest.mark.parametrize("word", ["zero-3", "sequence"])
def test_a_scheme_under_another_policy_is_simulated_under_a_name_of_its_own(word: str) -> None:
    code, out, _ = run("simulate", "--scheme", word, "--gathered", "kept", "--json")
    kept, again = json.loads(out), json.loads(run("simulate", "--scheme", word, "--gathered", "again", "--json")[1])
    assert (code, kept["scheme"], again["scheme"]) == (0, f"{word} kept", word)
    gathers = [sum(r["times"] for r in found["collectives"] if r["action"] == "all_gather") for found in (kept, again)]
    assert gathers[0] < gathers[1]


def test_the_simulator_notices_a_partition_that_computes_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from derive import simulate

    monkeypatch.setattr(simulate, "_difference", lambda got, wanted: 1e-3)
    code, out, _ = run("simulate", "--scheme", "data")
    assert code == 1
    assert out.splitlines()[-1].startswith("DIFFERENT")


def test_sizes_and_degrees_are_set_by_name() -> None:
    out = run("simulate", "--scheme", "tensor", "--degree", "P_t=3", "--set", "B=3", "--set", "h=6", "--json")[1]
    data = json.loads(out)
    assert (data["degrees"], data["sizes"]["B"], data["sizes"]["h"], data["sizes"]["d"]) == ({"P_t": 3}, 3, 6, 12)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--degree", "P_t=3", "--set", "h=4"], "P_t=3 does not divide axis"),
        (["--degree", "P_q=3"], "no size is called 'P_q'"),
        (["--degree", "P_t=0"], "'P_t=0': a size is a positive integer"),
        (["--degree", "P_t"], "'P_t': a size is a positive integer"),
        (["--set", "B=2**9"], "'B=2**9': a size is a positive integer"),
        (["--set", "B=2", "--set", "B=4"], "B has a value already"),
        (["--set", "W=2"], "no size is called 'W'"),
        (["--set", "E_a=9"], "E_a = 9 experts of E = 2 cannot be active"),
        (["--set", "h=4", "--set", "d=6"], "not a whole number"),
        (["--set", "B=999999999"], "is the limit; lower the degrees or the sizes"),
        (["--degree", "P_t=999999999"], "is the limit; lower the degrees or the sizes"),
    ],
)
def test_the_simulator_refuses_what_cannot_be_run(words: list[str], says: str) -> None:
    refused(run("simulate", "--scheme", "tensor", *words), says)


# Installed packages.


def distribution(folder: Path, module: str, points: str) -> None:
    """What an installer leaves of a package with one module."""
    (folder / "their_scheme.py").write_text(module)
    info = folder / "their_scheme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-scheme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rlm_workdepth.schemes]\n{points}\n")


THEIRS = HEAD + "SCHEME = Scheme('Theirs', (M('b', 'P_d'), M('h', 'P_t')), 'test')\n"


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ("theirs = their_scheme", ["check", "--scheme", "theirs", "--table", "VII", "--jobs", "2"]),
        ("theirs = their_scheme:SCHEME", ["simulate", "--scheme", "THEIRS"]),
    ],
)
def test_the_scheme_of_an_installed_package_is_known_by_name(point: str, words: list[str], tmp_path: Path) -> None:
    distribution(tmp_path, THEIRS, point)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "derive.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Theirs" in done.stdout


@pytest.mark.parametrize(
    ("module", "point", "says"),
    [
        (
            THEIRS,
            "theirs = missing_module",
            "theirs = missing_module (group rlm_workdepth.schemes): cannot be imported",
        ),
        (THEIRS, "theirs = their_scheme:Scheme", "declares no SCHEME"),
        (THEIRS.replace("Theirs", "data"), "theirs = their_scheme", "called 'Data' already"),
    ],
)
def test_a_broken_entry_point_is_refused_by_name(module, point, says, tmp_path, monkeypatch) -> None:
    distribution(tmp_path, module, point)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "their_scheme", raising=False)
    schemes._installed.cache_clear()
    refused(run("schemes"), says)


def test_forgetting_leaves_no_trace() -> None:
    with named(TENSOR_2D) as one:
        assert one.scheme.name in schemes.schemes()
    assert one.scheme.name not in schemes.schemes()
