"""One cell of an emitted table: the derived formula, its mark, and the note under the table.

A cell is a mapping in the form of ``derive check --json``; what is set is the derived expression, not the printed one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from derive.claims import load
from derive.expr import Call, Expr, Order, free_symbols
from derive.forms import Form, Max
from derive.normal import to_form
from derive.render.printer import latex
from derive.render.prose import escape, prose
from derive.render.typeset import ORDER_TABLES, SEQUENCE_TABLES, display, with_m, with_sequence, with_updates
from derive.textform import parse_text
from graphs.symbols import MODELS

Cell = Mapping[str, Any]

MARKS = {
    "EQUAL": ("=", "the printed formula is equal to the derived one"),
    "LEADING": (r"\sim", "the printed formula is the leading part"),
    "TIGHT": (r"\Theta", "the printed formula has the same order"),
    "UPPER": (r"\leq", "the printed formula is an upper bound, not tight"),
    "CONDITIONAL": (r"\ast", "the printed formula holds under a condition, below"),
    "REFUTED": (r"\times", "the printed formula does not hold, see below"),
    "NOT_PRINTED": (r"\circ", "no printed formula to compare with"),
    "UNDECIDED": (r"?", "not decided"),
}
IMPLIED = (r"\dagger", "rests on an assumption that the paper does not state")
COLUMNS = ("Work", "Depth", "Memory")
ALGORITHMS = ("PPO", "GRPO", "DPO")
BLOCKS = {
    "C_f": "C_f_tok", "C_b": "C_b_tok", "C_gen/prefill": "C_pf_roll", "C_gen/decode": "C_dec_roll",
    "C_gen/total": "C_gen_roll", "D_f": "D_f", "D_f_TP": "D_f_TP", "D_b": "D_b", "D_gen": "D_gen",
}  # fmt: skip
ROLES = {"policy": "pi", "reference": "ref", "reward": "R", "value": "V"}
REMAINDER = "/remainder"
EXPLAINED = ("CONDITIONAL", "REFUTED")


@dataclass(frozen=True)
class Note:
    """Why a printed formula fails or when it holds, and the cells for which that is so."""

    cells: str
    body: str


def formula(cell: Cell, form: Form | Max | None = None) -> str:
    """LaTeX of the derived expression; in the tables of orders, of its order."""
    order = is_order(cell)
    expr = _arranged(cell, form, order)
    if cell["table"] in SEQUENCE_TABLES:
        expr = with_updates(with_sequence(expr))
    return latex(Order(expr) if order else expr)


def is_order(cell: Cell) -> bool:
    return cell["kind"] == "order" or cell["table"] in ORDER_TABLES


def _arranged(cell: Cell, form: Form | Max | None, order: bool) -> Expr:
    """The expression in the paper's manner; one that has no normal form stays as it is written."""
    if form is not None:
        return display(form, order)
    key = "derived_order" if order else "derived"
    if not cell.get(key):
        raise ValueError(f"cell {cell['id']}: it has no {key}, so there is nothing to print")
    expr = with_m(parse_text(cell[key]))
    if isinstance(expr, Order):
        expr = expr.arg
    try:
        return display(to_form(expr), order)
    except ValueError:
        return expr


def mark(cell: Cell) -> str:
    """Superscript after the formula: the verdict, and a dagger for an implied assumption."""
    if cell["verdict"] not in MARKS:
        raise ValueError(f"cell {cell['id']}: unknown verdict {cell['verdict']!r}")
    dagger = IMPLIED[0] if cell.get("implied") else ""
    return rf"~\textsuperscript{{${{{MARKS[cell['verdict']][0]}}}{{{dagger}}}$}}"


def legend(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """The marks that occur, in a fixed order, with their meaning."""
    used = {c["verdict"] for c in cells}
    out = [entry for verdict, entry in MARKS.items() if verdict in used]
    return [*out, IMPLIED] if any(c.get("implied") for c in cells) else out


def notes(cells: Sequence[Cell]) -> list[Note]:
    """One note per distinct explanation, naming all its cells; then what the assumptions named there say."""
    grouped: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell["verdict"] in EXPLAINED:
            grouped.setdefault(_explanation(cell), []).append(cell)
    named = [a for a in load().assumptions.values() if any(a.id in body for body in grouped)]
    unstated = [a for a in load().assumptions.values() if any(a.id in c.get("implied", ()) for c in cells)]
    out = [Note(_names(members), prose(body)) for body, members in grouped.items()]
    against = " The captions of the paper say the opposite."
    out += [Note(escape(a.id), escape(a.text + (against if a.contradicts else ""))) for a in named]
    return out + [Note(f"${IMPLIED[0]}$~{escape(a.id)}", escape(a.text)) for a in unstated if a not in named]


def _explanation(cell: Cell) -> str:
    """The condition where there is one, else the reason; the occurrences behind it are for `derive explain`."""
    if cell["verdict"] == "CONDITIONAL" and cell.get("regime"):
        return f"the printed formula holds if {_condition(cell)}."
    detail = re.sub(r"\s*\(from [^)]*\)", "", str(cell.get("detail") or "no reason given"))
    return detail.rstrip(".") + "."


def _condition(cell: Cell) -> str:
    """The regime; an assumption in it is spelled out below the table."""
    directions = cell.get("directions") or ()
    rest = f", in leading order as {' or '.join(directions)} grows" if directions else ""
    return f"{cell['regime']}{rest}"


def _names(cells: Sequence[Cell]) -> str:
    """``Data, Context memory``: the rows of each column."""
    columns: dict[str, list[str]] = {}
    for cell in cells:
        inner = block_symbol(cell) if cell["table"] == "III" else escape(str(cell["row"]).replace("/", " "))
        columns.setdefault(str(cell["column"]), []).append(inner)
    return "; ".join(", ".join(rows) + _column(column) for column, rows in columns.items())


def _column(column: str) -> str:
    return f" {escape(column.lower())}" if column in COLUMNS else f" of {column}" if column in ALGORITHMS else ""


# -- Table III --------------------------------------------------------------------------------------------------------
def block_symbol(cell: Cell) -> str:
    """The left-hand side of a row of Table III, with the model that the derived expression is about."""
    name = block_name(cell)
    rest = name.endswith(REMAINDER)
    name = name.removesuffix(REMAINDER)
    block, role = (name, "") if name in BLOCKS else name.rpartition("/")[::2]
    if block not in BLOCKS or (role and role not in ROLES):
        raise ValueError(f"cell {cell['id']}: Table III has no such building block")
    sizes = [s for s in free_symbols(parse_text(str(cell["derived"]))) if "_" in s]
    models = {s.rpartition("_")[2] for s in sizes} & set(MODELS)
    model = ROLES[role] if role else models.pop() if len(models) == 1 else "M"
    return f"${latex(Call(BLOCKS[block], (model,)))}$" + (", rest" if rest else "")


def block_name(cell: Cell) -> str:
    return str(cell["id"]).removeprefix("III/")


def is_work(cell: Cell) -> bool:
    return block_name(cell).startswith("C")
