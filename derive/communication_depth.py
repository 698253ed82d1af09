"""Depth with communication: the longest path when every exchange takes alpha per step and beta per element.

A measure of its own.  Exchanges that do not wait for each other overlap, as if a rank had a port for each.  Stages of a
pipeline follow each other, without micro-batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from derive.communication import check_sizes
from derive.costs.traffic import Traffic, handed_on, traffic_of
from derive.depth import DepthRule, depth
from derive.forms import Form, symbol, total
from derive.maxplus import ZERO
from derive.measure import Measured, Question, depth_rule, graph_of, longest
from graphs.ir import Graph, Node
from graphs.ops.collective import Collective
from graphs.ops.repeat import Repeat


def time(exchange: Traffic) -> Form:
    """alpha*steps + beta*elements of one exchange."""
    return symbol("alpha") * exchange.steps + symbol("beta") * exchange.serial


@dataclass(frozen=True)
class CommunicationRule(DepthRule):
    """Charges exchanges, and arithmetic besides where ``arithmetic`` says so.

    Then alpha and beta are in units of the time of one operation, and at least 1: paths are compared on that domain.
    ``sizes`` are the numbers that are put in for some sizes.
    """

    algorithm: str = "ring"
    arithmetic: bool = False
    sizes: tuple[tuple[str, int], ...] = ()

    def charge(self, graph: Graph, node: Node) -> Form:
        own = super().charge(graph, node) if self.arithmetic else ZERO
        exchange = traffic_of(graph, node, self.algorithm) if self.counted(graph, node) else None
        if exchange is not None and not self._alone(node):
            own = own + time(exchange)
        return self._at(own)

    def toll(self, loop: Repeat) -> Form:
        """A pipeline hands what the loop carries over each of its boundaries, value by value."""
        if not loop.axis.splits:
            return ZERO
        boundaries = symbol(loop.axis.splits[0].mesh) - 1
        return self._at(boundaries * total(time(moved) for _, _, moved in handed_on(loop, self.algorithm)))

    def trips(self, loop: Repeat) -> Form:
        return self._at(super().trips(loop))

    def _alone(self, node: Node) -> bool:
        return isinstance(node.op, Collective) and all((mesh, 1) in self.sizes for mesh in node.op.meshes)

    def _at(self, form: Form) -> Form:
        return form.substitute({name: Form.constant(value) for name, value in self.sizes})


def communication_depth(
    q: Question, algorithm: str = "ring", arithmetic: bool = False, sizes: Mapping[str, int] | None = None
) -> Measured:
    """Time of the longest path of one training step over all ranks, with numbers for the sizes that are given."""
    given = dict(sizes or {})
    check_sizes(q, given, algorithm)
    graph = graph_of(q)
    base = depth_rule(replace(q, over_all_ranks=True), graph)
    settings = {f.name: getattr(base, f.name) for f in fields(DepthRule)}
    rule = CommunicationRule(**settings, algorithm=algorithm, arithmetic=arithmetic, sizes=tuple(sorted(given.items())))
    return longest(depth(graph, rule))
