"""LaTeX tables from checked cells, one file per table and one document that compiles by itself.

Each formula stands on a line of its own that ends in its cell id as a comment, which `read_back` uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import jinja2

from derive.data import templates_folder
from derive.files import write_atomically
from derive.forms import Form, Max
from derive.render.cells import ALGORITHMS, COLUMNS, Cell, block_symbol, formula, is_work, legend, mark, notes
from derive.render.prose import escape
from graphs.schemes import schemes

TABLES = ("III", "IV", "V", "VI", "VII", "VIII", "IX")
ROWS = ("None", "Data", "Pipeline", "Tensor", "Context", "Expert", "3D", "5D")
DOCUMENT = "tables.tex"
FORMULA_LINE = re.compile(r"\$(?P<latex>[^$\n]+)\$[^%\n]*% (?P<id>[IVX]+/[^\n]+)$", re.MULTILINE)

#: the document numbers its tables as the paper does
NUMERALS = {"iii": 3, "iv": 4, "v": 5, "vi": 6, "vii": 7, "viii": 8, "ix": 9}

Forms = Mapping[str, Form | Max]


class Checked(Protocol):
    """A checked cell that is not a mapping yet."""

    def json(self) -> dict[str, Any]: ...


def render_tables(
    cells: Sequence[Cell | Checked],
    *,
    plain: bool = False,
    forms: Forms | None = None,
    others: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """File name -> LaTeX for every table that has cells, and the document; `plain` leaves marks and notes out.

    `others` are ready tables without cells (file name -> LaTeX); the document numbers them after the paper's.

    `forms` may hold the derived form of a cell (of its order, in the tables of orders) by id; otherwise the text form
    in the cell is read.
    """
    data = [c if isinstance(c, Mapping) else c.json() for c in cells]
    unknown = sorted({str(c["table"]) for c in data} - set(TABLES))
    if unknown:
        raise ValueError(f"table {unknown[0]} has no template; there are templates for {', '.join(TABLES)}")
    out = {}
    for table in TABLES:
        own = [c for c in data if c["table"] == table]
        if own:
            name = f"table_{table.lower()}.tex"
            out[name] = render(f"{name}.jinja", _context(table, own, plain, forms))
    bodies = [(NUMERALS[name.removeprefix("table_").removesuffix(".tex")], text) for name, text in out.items()]
    bodies += [(max(NUMERALS.values()) + 1, text) for text in (others or {}).values()]
    out |= others or {}
    out[DOCUMENT] = render("document.tex.jinja", {"bodies": bodies})
    return out


def write_tables(
    cells: Sequence[Cell | Checked],
    out: Path,
    *,
    plain: bool = False,
    forms: Forms | None = None,
    others: Mapping[str, str] | None = None,
) -> list[Path]:
    """Render everything first, then put each file in place whole."""
    texts = render_tables(cells, plain=plain, forms=forms, others=others)
    for name, text in texts.items():
        write_atomically(out / name, text)
    return [out / name for name in texts]


def read_back(tex: str) -> dict[str, str]:
    """Cell id -> LaTeX of its formula, from an emitted file."""
    return {m["id"]: m["latex"] for m in FORMULA_LINE.finditer(tex)}


# -- what the templates see -------------------------------------------------------------------------------------------
def _context(table: str, cells: Sequence[Cell], plain: bool, forms: Forms | None) -> dict[str, Any]:
    shown = {str(c["id"]): _shown(c, plain, (forms or {}).get(str(c["id"]))) for c in cells}
    return {
        "table": table,
        "plain": plain,
        "rows": LAYOUTS.get(table, _grid)(table, cells, shown),
        "legend": [] if plain else legend(cells),
        "notes": [] if plain else notes(cells),
    }


def _shown(cell: Cell, plain: bool, form: Form | Max | None) -> str:
    body = f"${formula(cell, form)}$"
    return body if plain else body + mark(cell)


def _grid(table: str, cells: Sequence[Cell], shown: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows in the paper's order, then those of other schemes; a row with a missing column is an error, not a gap."""
    present = {str(c["row"]) for c in cells}
    known = dict.fromkeys((*ROWS, *schemes()))
    if strange := sorted(present - set(known)):
        raise ValueError(f"table {table} has no row {strange[0]!r}")
    rows = []
    for row in (r for r in known if r in present):
        ids = [f"{table}/{row}/{column}" for column in COLUMNS]
        if missing := [i for i in ids if i not in shown]:
            raise ValueError(f"cell {missing[0]} is missing: a row is printed whole or not at all")
        rows.append({"name": row, "cells": [(i, shown[i]) for i in ids]})
    return rows


def _stages(table: str, cells: Sequence[Cell], shown: Mapping[str, str]) -> list[dict[str, Any]]:
    """Tables IV and IX: a line for each stage of a section (a measure or a placement); nothing to do is a dash."""
    columns = ALGORITHMS if table == "IV" else COLUMNS
    place = {(str(c["row"]), str(c["column"])): c for c in cells}
    rows = []
    for row in dict.fromkeys(row for row, _ in place):
        if missing := [c for c in columns if (row, c) not in place]:
            raise ValueError(f"table {table}, {row}: {missing[0]} is missing: a row is printed whole or not at all")
        section, _, stage = row.partition("/")
        found = [place[row, c] for c in columns]
        entries = [(c["id"], "--" if c["derived"] == "0" else shown[str(c["id"])]) for c in found]
        rows.append({"section": section, "name": stage, "cells": entries})
    return rows


def _blocks(_table: str, cells: Sequence[Cell], shown: Mapping[str, str]) -> list[dict[str, Any]]:
    """Table III: one line per building block, work before depth."""
    ordered = sorted(cells, key=lambda c: not is_work(c))
    return [
        {"kind": "Work" if is_work(c) else "Depth", "symbol": block_symbol(c), "cells": [(c["id"], shown[c["id"]])]}
        for c in ordered
    ]


LAYOUTS = {"III": _blocks, "IV": _stages, "IX": _stages}


# -- templates --------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    """Delimiters that LaTeX does not use; a name that a template misspells is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_folder()),
        block_start_string="<%", block_end_string="%>", variable_start_string="<<", variable_end_string=">>",
        comment_start_string="<#", comment_end_string="#>",
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined, autoescape=False,
    )  # fmt: skip
    environment.filters["tex"] = escape
    return environment


def render(template: str, context: Mapping[str, Any]) -> str:
    return _environment().get_template(template).render(context)
