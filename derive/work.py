"""Work: the sum of what every occurrence does; a loop multiplies its body's sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from derive.costs.model import CostModel
from derive.costs.rule import cost
from derive.forms import Form
from derive.interchange import from_sympy
from graphs.axes import Role
from graphs.ir import Graph
from graphs.ops.repeat import Repeat


@dataclass(frozen=True)
class Term:
    """What one occurrence contributes to a measure on one rank; ``role`` is that of a value held in memory."""

    where: str
    amount: Form
    phase: str
    stage: str | None
    in_loop: bool
    role: Role | None = None


def work_terms(graph: Graph, model: CostModel) -> Iterator[Term]:
    """Contributions of one rank, occurrence by occurrence, in order of execution; free occurrences are left out."""
    for node in graph.nodes:
        if isinstance(node.op, Repeat):
            trips = from_sympy(node.op.axis.extent)
            for t in work_terms(node.op.body, model):
                yield Term(f"{node.name}/{t.where}", trips * t.amount, t.phase, node.stage, in_loop=True)
        else:
            amount = cost(graph, node, model).work
            if amount:
                yield Term(node.name, amount, node.phase, node.stage, in_loop=False)
