"""Which parameter's gradient an exchange completes, read off a partitioned graph of an optimizer step."""

from __future__ import annotations

from collections.abc import Iterator

from graphs.axes import Role
from graphs.ir import Graph, Value
from graphs.ops.collective import Collective
from graphs.ops.repeat import Repeat
from graphs.transforms.optimizer import FIRST

#: what lies on the way from a gradient's parts to the moments of its parameter
ON_THE_WAY = (Role.PARAMETER_GRADIENT, Role.OPTIMIZER)


def completions(graph: Graph) -> dict[str, str]:
    """The places of exchanges of parameters' gradients, as in `derive.communication`, and the parameters."""
    out: dict[str, str] = {}
    for name, value in graph.outputs.items():
        if name.startswith(FIRST):
            parameter = name.removeprefix(FIRST).partition("@")[0]
            out.update((where, parameter) for where in _exchanges(graph, value, "", set()))
    return out


def _exchanges(graph: Graph, value: Value, place: str, seen: set[tuple[str, Value]]) -> Iterator[str]:
    """Collectives before a value, as far as values are gradients of parameters or optimizer state; loops included."""
    node = graph.by_name.get(value.node)
    if node is None or graph.type(value).role not in ON_THE_WAY or (place, value) in seen:
        return
    seen.add((place, value))
    if isinstance(node.op, Repeat):
        result = list(node.op.body.outputs.values())[value.index]
        yield from _exchanges(node.op.body, result, f"{place}{node.name}/", seen)
        return
    if isinstance(node.op, Collective):
        yield f"{place}{node.name}"
    for operand in node.operands:
        yield from _exchanges(graph, operand, place, seen)
