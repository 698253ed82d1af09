"""The JSON object of all cells, and the record of verdicts that `derive check` compares with."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from derive.cell import Cell
from derive.files import write_atomically
from derive.verdict import VERDICTS

CONVENTIONS = {"log": "log2", "dot_product": "2k"}
ABOUT_THE_PAPER = {"paper": "arXiv:2608.27046v1", "conventions": CONVENTIONS | {"causal": "half"}}
#: a published form says itself how attention is counted
ABOUT_PUBLISHED_FORMS = {"conventions": CONVENTIONS}
SCHEMA = 1
EXACT_IN_JSON = 2**53


class RecordError(ValueError):
    """The recorded verdicts cannot be read or written; one sentence."""


def report(cells: Sequence[Cell], about: Mapping[str, Any] = ABOUT_THE_PAPER) -> dict[str, Any]:
    summary = {v: sum(c.verdict == v for c in cells) for v in VERDICTS}
    return {"cells": [safe(c.json()) for c in cells], "schema": SCHEMA, **about, "summary": summary}


def safe(value: Any) -> Any:
    """Integers that a JSON reader may round become strings."""
    if isinstance(value, dict):
        return {k: safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [safe(v) for v in value]
    return str(value) if isinstance(value, int) and abs(value) > EXACT_IN_JSON else value


def to_json(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def recorded(path: Path) -> dict[str, dict[str, str]]:
    """Cell id -> its recorded verdict and regime; empty where nothing was recorded yet."""
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise RecordError(f"{path.name}: not valid TOML ({error}); run `derive record` to write it anew") from None


def record_of(cell: Cell) -> dict[str, str]:
    """What is recorded of a cell: everything a change of which somebody should look at."""
    out = {"verdict": cell.verdict, "derived": cell.derived}
    if cell.regime and cell.regime_verdict:
        out |= {"regime": cell.regime, "regime_verdict": cell.regime_verdict}
    if cell.context and "corrected" in cell.context:
        out["corrected"] = ", ".join(f"{key} {value}" for key, value in cell.context["corrected"].items() if value)
    if cell.weakest:
        out["weakest"] = cell.weakest
    if cell.slack:
        out["slack"] = cell.slack
    if cell.context and cell.context.get("residual"):
        out["residual"] = cell.context["residual"]
    if cell.directions:
        out["directions"] = ", ".join(cell.directions)
    if cell.implied:
        out["implied"] = ", ".join(cell.implied)
    return out


def differences(cells: Iterable[Cell], path: Path) -> list[str]:
    """One sentence for each cell that is not as recorded."""
    known = recorded(path)
    out = []
    for cell in cells:
        before, now = known.get(cell.id), record_of(cell)
        if before is None:
            out.append(f"{cell.id}: {cell.verdict} is not recorded")
        elif before != now:
            keys = [k for k in sorted({*before, *now}) if before.get(k) != now.get(k)]
            changes = "; ".join(f"{k} was {before.get(k, 'none')}, is {now.get(k, 'none')}" for k in keys)
            out.append(f"{cell.id}: {changes}")
    return out


def write_record(cells: Iterable[Cell], path: Path) -> None:
    lines = ["# Recorded verdicts; written by `derive record`, compared by `derive check`.\n"]
    for cell in cells:
        lines.append(f'\n["{cell.id}"]\n')
        lines += [f"{key} = {json.dumps(value)}\n" for key, value in record_of(cell).items()]
    write_atomically(path, "".join(lines))
