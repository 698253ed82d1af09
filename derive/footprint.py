"""What a training step holds on one rank, by group and by layer, in elements or bytes, at sizes where given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from derive import expr
from derive.forms import Form, Max, total
from derive.interchange import from_sympy
from derive.measure import Question, gather, graph_of, held, layers_of
from derive.memory import Widths, group_of, in_bytes
from derive.render.typeset import display
from derive.units import BYTES, ELEMENTS, Quantity
from derive.work import Term
from graphs.axes import Tensor
from graphs.errors import GraphError
from graphs.ir import Graph
from graphs.ops.repeat import Repeat

Sizes = Mapping[str, int]
STATE = ("weights", "gradients", "optimizer")
SAVED = ("activations", "masks", "statistics")


@dataclass(frozen=True)
class Footprint:
    """The terms of one rank in one unit; ``layers`` is how many layers the rank has."""

    question: Question
    unit: str
    terms: tuple[Term, ...]
    layers: Form

    def total(self, *groups: str) -> Quantity:
        """All of the named groups, or of every one; on the pipeline stage that has most of it."""
        chosen = [t for t in self.terms if not groups or group_of(t) in groups]
        return Quantity.of(gather(replace(self.question, blocks_only=False), chosen).value, self.unit)

    def per_layer(self, *groups: str) -> Quantity:
        """What one layer saves of the named groups, or of every one."""
        return Quantity.of(total(t.amount for t in self.layer_terms(*groups)), self.unit)

    def layer_terms(self, *groups: str) -> list[Term]:
        """What one layer saves, value by value."""
        chosen = [t for t in self.terms if t.phase == "saved" and t.in_loop and (not groups or group_of(t) in groups)]
        return [replace(t, amount=t.amount / self.layers) for t in chosen]


def footprint(q: Question, widths: Widths | None = None) -> Footprint:
    """In bytes where the width of every group is given, else in elements."""
    terms = held(q) if widths is None else [in_bytes(t, widths) for t in held(q)]
    return Footprint(q, ELEMENTS if widths is None else BYTES, tuple(terms), layers_of(q))


# -- sizes ------------------------------------------------------------------------------------------------------------
def check_sizes(graph: Graph, sizes: Sizes) -> None:
    """Every axis of known size has a whole number of entries on every rank; GraphError names the first that has not."""
    for axis in dict.fromkeys(a for t in tensors_of(graph) for a in t.axes):
        extent = from_sympy(axis.extent)
        if extent.symbols <= sizes.keys() and extent.evaluate(sizes).denominator != 1:
            raise GraphError(
                f"axis {axis.name!r} has {axis.extent} = {extent.evaluate(sizes)} entries on a rank; change the sizes"
            )


def tensors_of(graph: Graph) -> Iterator[Tensor]:
    """The type of every value, loops included."""
    for node in graph.nodes:
        if isinstance(node.op, Repeat):
            yield from tensors_of(node.op.body)
    yield from (*graph.inputs.values(), *(t for n in graph.nodes for t in n.types))


# -- the report -------------------------------------------------------------------------------------------------------
def report(found: Footprint, sizes: Sizes, widths: Widths | None) -> dict[str, Any]:
    """Totals, one layer's share and every term as plain data; with values where sizes are given.

    A value is a number, or what is left of the formula where some of its sizes are not given.
    """
    q = found.question
    if sizes:
        check_sizes(graph_of(q), sizes)

    def shown(amount: Form | Max) -> dict[str, Any]:
        text = {"amount": expr.text(display(amount))}
        return text | ({"value": _value(amount, sizes)} if sizes else {})

    return {
        "model": q.role.name,
        "scheme": q.scheme.lower(),
        "recompute": q.recompute.value.replace("_", "-"),
        "dropout": bool(q.dropout),
        "unit": found.unit,
        "widths": None if widths is None else asdict(widths),
        "values_per_parameter": q.copies,
        "sizes": dict(sorted(sizes.items())),
        "totals": {name: shown(found.total(name).amount) for name in (*STATE, *SAVED)}
        | {"total": shown(found.total().amount)},
        "per_layer": {name: shown(found.per_layer(name).amount) for name in SAVED}
        | {"total": shown(found.per_layer().amount)},
        "terms": [{"from": t.where, "group": group_of(t), "stage": t.stage, **shown(t.amount)} for t in found.terms],
    }


def _value(amount: Form | Max, sizes: Sizes) -> int | str:
    if not amount.symbols <= sizes.keys():
        return expr.text(display(amount.substitute({name: Form.constant(n) for name, n in sizes.items()})))
    value = amount.evaluate(sizes)
    if value.denominator != 1:
        raise GraphError(f"a rank would hold {value} of something, not a whole number; change the sizes")
    return value.numerator


def to_text(data: dict[str, Any]) -> str:
    """The report for reading."""
    with_dropout = " with dropout" if data["dropout"] else ""
    where = f"{data['model']}{with_dropout}, scheme {data['scheme']}, recompute {data['recompute']}"
    lines = [f"{data['unit']} on a rank: {where}"]
    if data["widths"]:
        lines.append("  bytes of an element: " + ", ".join(f"{k} {v}" for k, v in data["widths"].items()))
    for title, rows in (("in all", data["totals"]), ("saved by one layer", data["per_layer"])):
        lines += ["", f"  {title}"]
        lines += [_line(name, 12, row) for name, row in rows.items() if row["amount"] != "0" or name == "total"]
    lines += ["", "  made of"]
    width = max(len(t["from"]) for t in data["terms"])
    lines += [_line(f"{t['from']:<{width}}  {t['group']:<11}", width + 13, t) for t in data["terms"]]
    return "\n".join(lines) + "\n"


def _line(label: str, width: int, row: Mapping[str, Any]) -> str:
    stage = f"  ({row['stage']} stage)" if row.get("stage") else ""
    number = row.get("value")
    shown = f"{number:,}" if isinstance(number, int) else number
    value = f" = {shown}" if shown not in (None, row["amount"]) else ""
    return f"    {label:<{width}}  {row['amount']}{value}{stage}"
