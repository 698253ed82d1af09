"""What docs/parallelism.md says of axes, fields and places is what there is, and its example is a scheme."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import sympy
from click.testing import CliRunner

from derive import cli
from graphs.schemes import Mapping, Scheme
from graphs.schemes.scheme import PLACES
from graphs.sizes import Sizes
from graphs.symbols import size
from tests.loading import forgetting

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "parallelism.md").read_text(encoding="utf-8")


def table(head: str) -> list[tuple[str, ...]]:
    """The rows under a heading, without backquotes."""
    _, _, after = TEXT.partition(f"\n| {head} |")
    lines = after.partition("\n\n")[0].splitlines()[2:]
    return [tuple(c.strip().replace("`", "") for c in line.strip("|").split("|")) for line in lines]


def test_every_axis_is_listed_with_its_entries() -> None:
    named = {name: size(name) for name in ("B", "m", "d", "h", "d_ff", "V", "E", "d_e", "L", "P_c")}
    listed = {
        axis: sympy.Mul(*(named[n] ** p for n, p in quotient(entries)))
        for axis, entries, _ in table("axis | entries | what")
    }
    assert listed == {name: axis.extent for name, axis in Sizes.canonical().axes().items()}


def quotient(entries: str) -> list[tuple[str, int]]:
    above, *below = entries.split("/")
    return [(above, 1), *((name, -1) for name in below)]


def test_every_field_and_every_place_is_listed() -> None:
    for kind in (Scheme, Mapping):
        rows = table(f"field of `{kind.__name__}` | meaning")
        assert [name for row in rows for name in row[0].split(", ")] == [f.name for f in fields(kind)]
    assert tuple(row[0] for row in table("`where` | in force")) == PLACES


def test_the_example_is_a_scheme_that_gives_the_sequential_result(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    file = tmp_path / "mine.py"
    file.write_text(code)
    with forgetting():
        done = CliRunner().invoke(cli.main, ["simulate", "--scheme", str(file), "--json"])
    assert (done.exit_code, json.loads(done.stdout)["agrees"]) == (0, True)
