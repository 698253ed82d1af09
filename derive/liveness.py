"""Inference buffers: what a forward pass that keeps nothing for a backward pass holds at the same time.

Occurrences run one after the other in the order of the graph.  An occurrence's operands and results exist together; a
value goes after its last reader.  Relabelled values share memory, and a loop's iterations reuse theirs.  Parameters and
token ids are not buffers; scores that a causal mask hides are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from derive.costs.model import PAPER
from derive.dominance import below_any
from derive.forms import Form, Max, total
from derive.measure import FORWARD, Measured, Question, graph_of
from derive.memory import elements, unlabelled
from graphs.axes import WEIGHTS, Role
from graphs.errors import GraphError
from graphs.ir import Graph, Value
from graphs.ops.repeat import Repeat

#: what is alive at one moment, by where it was made
Alive = dict[str, Form]
ELSEWHERE = frozenset({*WEIGHTS, Role.INDEX})


def inference_buffers(q: Question) -> Measured:
    """Elements alive at once on one rank, at most; with ``blocks_only`` while a decoder block runs."""
    graph = graph_of(replace(q, model=PAPER), FORWARD)  # what is stored does not depend on how operations are counted
    peaks: dict[Form, Alive] = {}
    for place, alive in moments(graph):
        if "/" in place or not q.blocks_only:
            peaks.setdefault(total(alive.values()), alive)
    kept = list(peaks)
    for form in peaks:
        rest = [f for f in kept if f is not form]
        kept = rest if below_any(form, rest, q.factors) else kept
    parts = [(place, amount) for form in kept for place, amount in peaks[form].items()]
    return Measured(Max.of(*kept), tuple(dict(parts).items()))


def moments(graph: Graph) -> Iterator[tuple[str, Alive]]:
    """Each occurrence with what is alive while it runs; those of a loop stand for all iterations."""
    owner = {v: unlabelled(graph, v) for n in graph.nodes for v in n.operands}
    last = {owner[v]: i for i, n in enumerate(graph.nodes) for v in n.operands}
    last |= {unlabelled(graph, v): len(graph.nodes) for v in graph.outputs.values()}
    alive = {Value(name) for name in graph.inputs}
    for i, node in enumerate(graph.nodes):
        made = {Value(node.name, k) for k in range(len(node.types))}
        alive |= {v for v in made if unlabelled(graph, v) == v}
        if isinstance(node.op, Repeat):
            if len(node.types) > node.op.carried:
                raise GraphError(f"{node.name} keeps values of every iteration, which inference does not; drop them")
            carried = {owner[v] for v in node.operands[: node.op.carried] if last[owner[v]] == i}
            outside = _sizes(graph, alive - made - carried)
            for place, inside in moments(node.op.body):
                yield f"{node.name}/{place}", outside | {f"{node.name}/{x}": size for x, size in inside.items()}
        else:
            yield node.name, _sizes(graph, alive)
        alive -= {v for v in alive if last.get(v, i) <= i}


def _sizes(graph: Graph, values: set[Value]) -> Alive:
    held = sorted((v for v in values if graph.type(v).role not in ELSEWHERE), key=str)
    return {f"{v.node}[{v.index}]": elements(graph.type(v), PAPER) for v in held}
