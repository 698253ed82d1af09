"""What `derive operations` prints: the graphs that carry out the stages of an algorithm, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from derive.costs.model import PAPER
from derive.forms import Max, total
from derive.interchange import from_sympy
from derive.stage_report import shown
from derive.work import work_terms
from graphs.axes import Role
from graphs.rl.links import Operation

WEIGHTS = (Role.PARAMETER, Role.OPTIMIZER)


def operations_report(algorithm: str, operations: Sequence[Operation]) -> dict[str, Any]:
    """For each graph the nodes that it carries out, what it reads and gives, and the work of all its trips."""
    return {"algorithm": algorithm.upper(), "operations": [_row(op) for op in operations]}


def _row(op: Operation) -> dict[str, Any]:
    graph = op.graph
    amount = from_sympy(op.trips) * total(t.amount for t in work_terms(graph, PAPER))
    given = [op.gives.get(name, name) for name, v in graph.outputs.items() if graph.type(v).role not in WEIGHTS]
    return {
        "nodes": list(op.nodes),
        "role": op.role if any(graph.parameters()) else None,
        "trips": shown(Max.of(from_sympy(op.trips))),
        "reads": [name for name, tensor in graph.inputs.items() if tensor.role not in WEIGHTS],
        "gives": given,
        "occurrences": len(graph.nodes),
        "work": shown(Max.of(amount)),
    }


def operations_text(data: dict[str, Any]) -> str:
    lines = [data["algorithm"]]
    for row in data["operations"]:
        times = "" if row["trips"] == "1" else f", {row['trips']} times"
        model = f" ({row['role']}{times})" if row["role"] else ""
        lines += ["", f"{', '.join(row['nodes'])}{model}"]
        lines += [f"  reads  {', '.join(row['reads'])}", f"  gives  {', '.join(row['gives'])}"]
        lines += [f"  work   {row['work']}"]
    return "\n".join(lines) + "\n"
