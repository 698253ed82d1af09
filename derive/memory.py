"""Memory of a training step in elements: parameters with their gradients and optimizer state, and saved activations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from derive.costs.counting import volume
from derive.costs.model import PAPER, CostModel
from derive.forms import Form
from derive.work import Term
from graphs.axes import Tensor
from graphs.ir import Graph, Value
from graphs.ops.fold import Fold, Unfold
from graphs.ops.relabel import Relabel
from graphs.ops.repeat import Repeat
from graphs.transforms.backward import saved_values

#: parameters, gradients, and Adam's two moments
ADAM_COPIES = 4


def parameter_terms(graph: Graph, copies: int = ADAM_COPIES) -> Iterator[Term]:
    """Elements per rank of each parameter and its training state; one term per boundary stage that reads it."""
    for name, tensor in graph.parameters():
        users = [n for n in graph.nodes if Value(name) in n.operands]
        looped = any(isinstance(n.op, Repeat) for n in users)
        for stage in sorted({n.stage for n in users}, key=str) if not looped else [None]:
            yield Term(name, copies * elements(tensor, PAPER), "parameters", stage, looped)


def saved_terms(graph: Graph, model: CostModel) -> Iterator[Term]:
    """Elements per rank of each forward value that the backward phase reads."""
    seen: set[Stored] = set()
    for value in saved_values(graph):
        storage = stored(graph, value)
        if storage not in seen:
            seen.add(storage)
            loop, inner = storage
            where = f"{loop}/{inner.node}[{inner.index}]" if loop else f"{inner.node}[{inner.index}]"
            stage = None if loop else _stage_of(graph, value)
            yield Term(where, elements(graph.type(value), model), "saved", stage, bool(loop))


#: kinds whose result is their operand, seen otherwise
VIEWS = (Relabel, Unfold, Fold)

#: (name of the loop that stacks the value, or "", and the value that owns the memory)
Stored = tuple[str, Value]


def stored(graph: Graph, value: Value) -> Stored:
    """Where a saved value lies: a stacked one in its loop's body; another view of the same data shares its memory."""
    value = _unlabelled(graph, value)
    node = graph.by_name.get(value.node)
    if node is not None and isinstance(node.op, Repeat) and value.index >= node.op.carried:
        body = node.op.body
        loop, inner = stored(body, list(body.outputs.values())[value.index])
        return (f"{node.name}/{loop}" if loop else node.name), inner
    return "", value


def _unlabelled(graph: Graph, value: Value) -> Value:
    while value.node in graph.by_name and isinstance(graph.by_name[value.node].op, VIEWS):
        value = graph.by_name[value.node].operands[0]
    return value


def _stage_of(graph: Graph, value: Value) -> str | None:
    """The boundary stage whose backward phase reads the value."""
    return next((n.stage for n in graph.nodes if n.phase != "forward" and value in n.operands), None)


def elements(tensor: Tensor, model: CostModel) -> Form:
    """Stored entries of one rank: masked entries are stored too, those of experts that serve no token are not."""
    return volume(tensor.axes, tensor.domain, replace(model, causal="dense"))
