"""Depth: the longest path through a graph in max-plus algebra over forms.

Each value has an arrival time: a maximum of incomparable forms, each with the path that attains it.  Loops are not
unrolled: their arrival times follow from one traversal of the body per input (derive/loops).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from derive.costs.counting import product
from derive.costs.model import CostModel
from derive.costs.rule import cost
from derive.dominance import Factors
from derive.forms import Form, ceil_log2, log2, symbol
from derive.interchange import from_sympy
from derive.loops import Loop
from derive.maxplus import ONE, START, ZERO, Arrival, Arrivals, Step, as_max, join
from derive.scans import Pace
from graphs.axes import Role
from graphs.errors import GraphError
from graphs.ir import Graph, Node, Value
from graphs.ops.collective import REDUCING, Collective
from graphs.ops.contraction import Contraction
from graphs.ops.repeat import Repeat
from graphs.ops.scan import Scan

__all__ = ["Arrival", "DepthRule", "Step", "arrivals", "as_max", "depth"]


@dataclass(frozen=True)
class DepthRule:
    """What a traversal charges.

    ``collectives``: reducing collectives count.  ``counted`` is False for occurrences outside the question: they pass
    values on at no cost.  ``over_all_ranks``: a loop split into pipeline stages runs through all of them.  ``at_most``:
    where no formula says when a loop's result is ready, one that it is never later than will do.
    """

    model: CostModel
    factors: Factors = ()
    collectives: bool = False
    counted: Callable[[Graph, Node], bool] = lambda graph, node: True
    over_all_ranks: bool = False
    at_most: bool = False

    def charge(self, graph: Graph, node: Node) -> Form:
        if isinstance(node.op, Collective):
            return self._collective(graph, node, node.op)
        return cost(graph, node, self.model).depth if self.counted(graph, node) else ZERO

    def _collective(self, graph: Graph, node: Node, op: Collective) -> Form:
        """A reducing collective completes the reduction of the occurrences that left the partial results."""
        if not self.collectives or op.action not in REDUCING:
            return ZERO
        if not any(self.counts_towards_depth(graph, origin) for origin in node.origins):
            return ZERO
        degree = product(map(symbol, op.meshes))
        return ceil_log2(degree) if self.model.exact_depth else log2(degree)

    def counts_towards_depth(self, graph: Graph, origin: Node) -> bool:
        if not self.counted(graph, origin):
            return False
        role = origin.types[0].role
        return not self.model.gemm_only or isinstance(origin.op, Contraction) or role is Role.PARAMETER_GRADIENT

    def toll(self, loop: Repeat) -> Form:
        """What the values that a loop carries pay on their way, once for all iterations together."""
        return ZERO

    def trips(self, loop: Repeat) -> Form:
        return from_sympy(loop.axis.size if self.over_all_ranks else loop.axis.extent)


def arrivals(graph: Graph, rule: DepthRule, start: Mapping[Value, Arrivals] | None = None) -> dict[Value, Arrivals]:
    """Arrival times of all values that depend on a started one; without ``start`` all inputs start at zero.

    Constants count as started at zero where no value is given.
    """
    at: dict[Value, Arrivals] = dict(start) if start is not None else {Value(n): START for n in graph.inputs}
    for node in graph.nodes:
        if isinstance(node.op, Repeat):
            at.update(_loop(node, node.op, at, rule, constants=not start))
            continue
        before = [a for v in node.operands for a in at.get(v, ())]
        if not before and (node.operands or start):
            continue
        amount = rule.charge(graph, node)
        step = Arrival(amount, (Step(node.name, ONE, amount),) if amount else ())
        latest = tuple(a.then(step) for a in join(before or START, rule.factors))
        at.update({Value(node.name, i): latest for i in range(len(node.types))})
    return at


def _inside(found: Arrivals, node: Node) -> Arrivals:
    return tuple(x.repeated(ONE, node.name) for x in found)


def _loop(
    node: Node, op: Repeat, at: Mapping[Value, Arrivals], rule: DepthRule, constants: bool
) -> dict[Value, Arrivals]:
    """Arrival times after all iterations; what no started value (or constant, if wanted) reaches is left out."""
    starts = [*(at.get(v, ()) for v in node.operands), START if constants else ()]
    names = [*op.body.inputs, None]

    def reach(i: int, rule: DepthRule = rule) -> Mapping[Value, Arrivals]:
        """From an input to the outputs of the body; the last is what it makes of constants alone."""
        name = names[i]
        found = arrivals(op.body, rule, {Value(name): START} if name is not None else {})
        return {v: _inside(found.get(v, ()), node) for v in op.body.outputs.values()}

    def reaches(rule: DepthRule) -> tuple[Mapping[Value, Arrivals], ...]:
        return tuple(reach(i, rule) if i < op.carried or starts[i] else {} for i in range(len(names)))

    loop: Loop | Pace
    if isinstance(op, Scan):
        bounds = reaches(replace(rule, at_most=True))
        loop = Pace(node, op, tuple(starts), bounds, reach, rule.trips(op), rule.factors)
    else:
        inside = reaches(rule)
        loop = Loop(node, op, tuple(starts), inside, rule.trips(op), rule.factors, rule.toll(op), rule.at_most)
    ready = {Value(node.name, o): loop.ready(o) for o in range(len(op.body.outputs))}
    return {v: found for v, found in ready.items() if found}


def depth(
    graph: Graph,
    rule: DepthRule,
    outputs: Sequence[str] | None = None,
    start: Mapping[Value, Arrivals] | None = None,
) -> Arrivals:
    """The latest arrival over the named outputs (default: all); GraphError where no one formula says so."""
    at = arrivals(graph, rule, start)
    wanted = [graph.outputs[n] for n in (outputs or graph.outputs)]
    found = join((a for v in wanted for a in at.get(v, ())), rule.factors)
    for arrival in found:
        if arrival.doubt:
            raise GraphError(arrival.doubt)
    return found or START
