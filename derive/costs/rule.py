"""One cost rule per kind of operation; a kind without a rule is an error, a second rule for a kind is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from derive.costs.model import CostModel
from derive.forms import Form, ceil_log2, log2
from graphs.axes import Restriction, Role, Tensor
from graphs.discovery import modules
from graphs.errors import GraphError
from graphs.ir import Graph, Node, Op

ZERO = Form.constant(0)


@dataclass(frozen=True)
class Site:
    """One occurrence as a cost rule sees it: types of operands and results on one rank, and the cost model."""

    node: Node
    operands: tuple[Tensor, ...]
    model: CostModel

    @property
    def results(self) -> tuple[Tensor, ...]:
        return self.node.types

    @property
    def restrictions(self) -> tuple[Restriction, ...]:
        return tuple(r for t in (*self.operands, *self.results) for r in t.domain)

    @property
    def accumulates_parameter_gradient(self) -> bool:
        return self.results[0].role is Role.PARAMETER_GRADIENT

    def chain(self, length: Form) -> Form:
        """Depth of the balanced reduction of ``length`` values."""
        return ceil_log2(length) if self.model.exact_depth else log2(length)


@dataclass(frozen=True)
class Cost:
    """FLOPs, and arithmetic steps on the longest path through the occurrence."""

    work: Form = ZERO
    depth: Form = ZERO


FREE = Cost()
Rule = Callable[[Site], Cost]
RULES: dict[type[Op], Rule] = {}


def rule(*kinds: type[Op]) -> Callable[[Rule], Rule]:
    """Register the cost rule of one or more kinds of operation."""

    def register(function: Rule) -> Rule:
        for kind in kinds:
            if kind in RULES:
                raise GraphError(f"{kind.__name__} already has a cost rule; remove one of the two")
            RULES[kind] = function
        return function

    return register


@cache
def load_rules() -> None:
    """Import every file of this folder, in sorted order, so that its rules are known."""
    list(modules("derive.costs"))


def cost(graph: Graph, node: Node, model: CostModel) -> Cost:
    """Cost of one occurrence on one rank."""
    load_rules()
    found = RULES.get(type(node.op))
    if found is None:
        raise GraphError(f"{type(node.op).__name__} has no cost rule; write derive/costs/{node.op.kind}.py")
    return found(Site(node, tuple(graph.type(v) for v in node.operands), model))
