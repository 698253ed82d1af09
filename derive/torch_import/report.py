"""What the import command prints: the work of a layer as a formula in its sizes, contraction by contraction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from derive.costs.model import PAPER
from derive.forms import Form, total
from derive.torch_import.capture import capture, counted
from derive.torch_import.convert import Imported, convert
from derive.torch_import.load import Layer, load
from derive.work import Term, work_terms
from graphs.errors import GraphError
from graphs.ir import Node
from graphs.ops.contraction import Contraction
from graphs.ops.foreign import NATURES, Foreign


@dataclass(frozen=True)
class Work:
    """An imported layer, what its contractions cost, and what PyTorch's counter says of the example."""

    layer: Layer
    imported: Imported
    terms: tuple[Term, ...]
    counted: Mapping[str, int]

    def form(self, *phases: str) -> Form:
        return total(t.amount for t in self.terms if t.phase in phases)

    @property
    def forms(self) -> dict[str, Form]:
        each = {"forward": self.form("forward"), "backward": self.form("backward")}
        return each | {"total": self.form("forward", "backward")}

    @property
    def at_example(self) -> dict[str, int]:
        return {name: int(form.evaluate(self.imported.extents.example)) for name, form in self.forms.items()}


def imported(spec: str) -> Work:
    """Import ``module:factory``; GraphError where that fails or where PyTorch's counter disagrees on the example."""
    layer = load(spec)
    found = convert(capture(layer))
    try:
        terms = tuple(work_terms(found.graph, PAPER))
    except ValueError as error:
        raise GraphError(f"{spec}: {error}") from error
    work = Work(layer, found, terms, counted(layer))
    for name, number in work.counted.items():
        if number != work.at_example[name]:
            raise GraphError(
                f"{spec}: PyTorch counts {number} FLOPs ({name}), the graph has {work.at_example[name]}; take products "
                "out of the layer that nothing uses"
            )
    return work


def to_data(work: Work) -> dict[str, Any]:
    graph, extents = work.imported.graph, work.imported.extents
    foreign = Counter(n.op.nature for n in graph.nodes if isinstance(n.op, Foreign))
    equal = {name.name: str(value) for name, value in extents.equal.items() if not value.is_Integer}
    amounts = {t.where: t.amount for t in work.terms}
    free = {name: places for name, places in extents.where.items() if name not in {*equal, *extents.fixed}}
    return {
        "layer": work.layer.place,
        "sizes": [{"name": n, "example": extents.example[n], "where": w} for n, w in free.items()],
        "equal": equal,
        "fixed": extents.fixed,
        "conditions": sorted(extents.conditions),
        "work": {name: form.text for name, form in work.forms.items()},
        "at_example": work.at_example,
        "pytorch": dict(work.counted),
        "contractions": [_row(work, n, amounts[n.name]) for n in graph.nodes if isinstance(n.op, Contraction)],
        "others": {nature: foreign[nature] for nature in NATURES},
    }


def _row(work: Work, node: Node, amount: Form) -> dict[str, Any]:
    shapes = [[str(a.size) for a in work.imported.graph.type(v).axes] for v in node.operands]
    return {
        "where": node.name,
        "source": work.imported.source[node.name],
        "phase": node.phase,
        "operands": shapes,
        "result": [str(a.size) for a in node.types[0].axes],
        "work": amount.text,
    }


def to_text(data: Mapping[str, Any]) -> str:
    rows = [
        (r["phase"], r["where"], f"{' x '.join(map(_shape, r['operands']))} -> {_shape(r['result'])}", r["work"])
        for r in data["contractions"]
    ]
    sources = [r["source"] for r in data["contractions"]]
    lines = [f"{data['layer']}: work of one forward and backward pass", ""]
    lines += [f"  {s['name']} = {s['example']} in the example, {_places(s['where'])}" for s in data["sizes"]]
    lines += [f"  {name} = {n} is a number in the layer, no symbol" for name, n in data["fixed"].items()]
    lines += [f"  {name} = {value} throughout the layer" for name, value in data["equal"].items()]
    lines += [f"  where {condition}" for condition in data["conditions"]]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    lines += ["", *(f"  {_columns(row, widths)}  {source}".rstrip() for row, source in zip(rows, sources, strict=True))]
    lines += ["", *(f"{name:<9} {form}" for name, form in data["work"].items())]
    lines += [
        "",
        f"At the example {data['at_example']['total']} FLOPs, {data['at_example']['forward']} of them forward,",
    ]
    lines += ["as PyTorch counts. Not counted: " + ", ".join(f"{n} {nature}" for nature, n in data["others"].items())]
    return "\n".join(lines) + "\n"


def _shape(sizes: Sequence[str]) -> str:
    return f"({', '.join(sizes)})"


def _places(where: Sequence[str]) -> str:
    return where[0] if len(where) == 1 else f"{where[0]} and {len(where) - 1} more"


def _columns(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
