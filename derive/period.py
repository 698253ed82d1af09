"""Iterations in steady state: how often one is finished where they overlap.

The average is the maximum cycle mean of the dependences between iterations (a max-plus eigenvalue): around a cycle of
passes that spans k iterations, k of them take the cycle's length.
"""

from __future__ import annotations

from dataclasses import replace

import networkx as nx

from derive.convex import pruned
from derive.forms import Form, Max
from derive.maxplus import START, combine
from derive.measure import Measured
from derive.placements import StageQuestion, delay, queues, schedule, stage_depth
from graphs.stages.stage import TRAINED, TRAINING

ZERO = Form.constant(0)


def dependences(q: StageQuestion) -> nx.DiGraph:
    """The schedule with the edges between iterations: ``tokens`` is how many iterations apart the two ends are.

    An exclusive group starts the next iteration after the last; a trained model's weights are read by the next
    training, and by sampling and assessment up to ``staleness`` updates later.
    """
    out = schedule(q)
    nx.set_edge_attributes(out, 0, "tokens")
    for queue in queues(q).values():
        _link(out, queue[-1].name, queue[0].name, 1)
    age = q.placement.staleness or 0
    for node in (n for n in q.graph.invocations if n.role in TRAINED):
        role = TRAINED[0] if q.graph.shared else node.role
        if f"update_{role}" in q.graph.by_name:
            _link(out, f"update_{role}", node.name, 1 if node.stage == TRAINING else age + 1)
    return out


def _link(order: nx.DiGraph, source: str, target: str, tokens: int) -> None:
    """An edge, unless a tighter one is there."""
    present = order.get_edge_data(source, target, {"tokens": tokens})["tokens"]
    order.add_edge(source, target, tokens=min(tokens, present))


def period(q: StageQuestion) -> Measured:
    """Average time between iterations in steady state: the maximum cycle mean of the dependences.

    Where iterations do not overlap it is the depth of one.
    """
    q = replace(q, stage=None)
    if q.placement.staleness is None:
        return stage_depth(q)
    order = _without_waiting(q, dependences(q))
    best: dict[Form, tuple[str, ...]] = {}
    for cycle in nx.simple_cycles(order):
        tokens = sum(order.edges[pair]["tokens"] for pair in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        length, label = START, tuple(sorted(cycle))
        for name in cycle:
            length = combine(length, delay(q, q.graph.by_name[name]), q.factors)
        for form in (a.form / tokens for a in length):  # cycles come in no fixed order
            best[form] = min(best.get(form, label), label)
    value = pruned(Max.of(*best, ZERO), q.factors)
    return Measured(value, tuple((" and ".join(best[f]), f) for f in value.members if f))


def _without_waiting(q: StageQuestion, order: nx.DiGraph) -> nx.DiGraph:
    """Nodes that take no time are replaced by edges from each predecessor to each successor."""
    for name in list(order):
        node = q.graph.by_name.get(name)
        if node is not None and delay(q, node) != START:
            continue
        for source, _, early in list(order.in_edges(name, data="tokens")):
            for _, target, late in list(order.out_edges(name, data="tokens")):
                _link(order, source, target, early + late)
        order.remove_node(name)
    return order
