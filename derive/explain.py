"""Where a derived cost comes from, occurrence by occurrence, and which cells rest on which assumption."""

from __future__ import annotations

from typing import Any

from derive import cells, expr, published, published_check
from derive.check import check, foundations, in_force
from derive.claims import load
from derive.render.typeset import display
from derive.workers import for_each


def explanation(cell: str) -> dict[str, Any]:
    """The cell's record, its contributions and the assumptions in force, as plain data; or a published form's."""
    if cell in published.load():
        found = published_check.check(published.load()[cell])
        return {k: v for k, v in found.json().items() if k != "certificate"}
    instances = cells.instances(cell)
    found = check(cell)
    book = load()
    parts = cells.derive(instances[0], found.assumptions).parts
    scopes = in_force(cell, book)
    return {
        **{k: v for k, v in found.json().items() if k != "certificate"},
        "parts": [{"from": where, "contributes": expr.text(display(amount))} for where, amount in parts],
        "assumed": [
            {"id": n, "origin": scopes[n].origin, "where": scopes[n].where, "text": book.assumption(n).text}
            for n in found.assumptions
        ],
    }


def to_text(data: dict[str, Any]) -> str:
    lines = [f"{data['id']}: {data['verdict']}", f"  {data['detail']}", ""]
    rows = [("printed", "printed_expr"), ("derived", "derived"), ("reduced", "derived_order"), ("expanded", "expanded")]
    lines += [
        f"  {label:<8} {data[key]}" for label, key in [*rows, ("slack", "slack"), ("regime", "regime")] if data.get(key)
    ]
    return "\n".join(lines + (_of_a_form(data) if "residual" in data else _of_a_cell(data))) + "\n"


def _of_a_form(data: dict[str, Any]) -> list[str]:
    """The residual with what contributes to each of its terms, and where the form is printed."""
    lines = ["", f"  residual {data['residual'] or 'none'}"]
    for term in data["made_of"]:
        lines.append(f"    {term['term']}")
        width = max(len(p["from"]) for p in term["of"])
        lines += [f"      {p['from']:<{width}}  {p['amount']}" for p in term["of"]]
    spoken = f"; it leaves out {', '.join(data['leaves_out'])}" if data["leaves_out"] else ""
    per = "" if data["per"] == "batch" else f" per {data['per']}"
    asked = ", ".join(f"{key} {value}" for key, value in data["asked"].items())
    return [
        *lines,
        "",
        f"  of        {data['column']}{per}: {asked}{spoken}",
        f"  source    {data['source']}, {data['place']}",
    ]


def _of_a_cell(data: dict[str, Any]) -> list[str]:
    lines = ["", "  made of"]
    width = max((len(p["from"]) for p in data["parts"]), default=0)
    lines += [f"    {p['from']:<{width}}  {p['contributes']}" for p in data["parts"]]
    if data["witness"]:
        family = data["witness"].get("family") or data["witness"].get("sizes") or {}
        lines += ["", "  witness " + ", ".join(f"{k} = {v}" for k, v in family.items())]
    lines += ["", "  under"]
    for a in data["assumed"]:
        mark = " (the verdict leans on it)" if a["id"] in data["implied"] else ""
        place = "" if a["origin"] == "implied" else f": {a['where']}"
        lines.append(f"    {a['id']}: {a['text']} [{a['origin']}{place}]{mark}")
    return lines


def ledger_report(jobs: int = 1) -> dict[str, Any]:
    """Every assumption, and for every printed cell what happens without it: load-bearing or idle."""
    book = load()
    listed = [
        {"id": a.id, "text": a.text, "origin": s.origin, "where": s.where, "cells": list(s.cells)}
        for a in book.assumptions.values()
        for s in a.scopes
    ]
    printed = [c for c in cells.cell_ids() if c in book.claims]
    return {"assumptions": listed, "cells": dict(zip(printed, for_each(printed, foundations, jobs), strict=True))}


def ledger_text(data: dict[str, Any]) -> str:
    lines = []
    for a in data["assumptions"]:
        lines += [f"{a['id']} ({a['origin']}: {a['where']})", f"  {a['text']}"]
        bearing = [c for c, names in data["cells"].items() if names.get(a["id"]) == "load-bearing"]
        covered = [c for c in bearing if any(_covers(p, c) for p in a["cells"])]
        lines.append(f"  load-bearing for {', '.join(covered) or 'no cell'}")
    return "\n".join(lines) + "\n"


def _covers(pattern: str, cell: str) -> bool:
    from fnmatch import fnmatchcase

    return fnmatchcase(cell, pattern)
