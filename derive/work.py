"""Work: the sum of what every occurrence does; a loop multiplies its body's sum, a scan adds it up over its index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from derive.costs.model import CostModel
from derive.costs.rule import cost
from derive.forms import Form
from derive.interchange import from_sympy
from derive.sums import sum_over
from graphs.axes import Role
from graphs.errors import GraphError
from graphs.ir import Graph
from graphs.ops.repeat import Repeat
from graphs.ops.scan import Scan


@dataclass(frozen=True)
class Term:
    """What one occurrence contributes to a measure on one rank.

    ``in_loop`` says if it is in a decoder block; ``role`` is that of a value held in memory.
    """

    where: str
    amount: Form
    phase: str
    stage: str | None
    in_loop: bool
    role: Role | None = None


def work_terms(graph: Graph, model: CostModel) -> Iterator[Term]:
    """Contributions of one rank, occurrence by occurrence, in order of execution; free occurrences are left out."""
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            for t in work_terms(node.op.body, model):
                yield replace(t, where=f"{node.name}/{t.where}", amount=over_iterations(t.amount, node.op))
        elif isinstance(node.op, Repeat):
            trips = from_sympy(node.op.axis.extent)
            for t in work_terms(node.op.body, model):
                yield Term(f"{node.name}/{t.where}", trips * t.amount, t.phase, node.stage, in_loop=True)
        else:
            amount = cost(graph, node, model).work
            if amount:
                yield Term(node.name, amount, node.phase, node.stage, in_loop=False)


def over_iterations(amount: Form, op: Scan) -> Form:
    """What all iterations of a scan contribute together, in closed form; GraphError where there is none."""
    try:
        return sum_over(amount, op.index.name, Form.constant(1), from_sympy(op.axis.extent))
    except ValueError as error:
        raise GraphError(f"{error}; give the steps a number, or count under another convention") from None
