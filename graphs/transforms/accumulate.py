"""Gradient accumulation: a training graph runs once per micro-batch and its gradients are summed up.

The batch of the graph becomes that of one micro-batch; data gets a further axis ``u`` of ``n_mb`` micro-batches.
"""

from __future__ import annotations

from graphs.axes import Axis, Role, Tensor
from graphs.errors import GraphError
from graphs.ir import UPDATE, Builder, Graph, Value
from graphs.ops.constant import Broadcast, Constant
from graphs.ops.pointwise import Pointwise
from graphs.ops.repeat import Repeat
from graphs.symbols import size
from graphs.transforms.optimizer import GRADIENT

DATA = (Role.INDEX, Role.INPUT)
MICRO_BATCHES = Axis("u", size("n_mb"))


def accumulate(graph: Graph, loss: str = "loss") -> Graph:
    """Mean loss and mean gradients over the micro-batches, from a training graph's mean over one."""
    summed = [name for name in graph.outputs if name == loss or name.startswith(GRADIENT)]
    if loss not in summed or len(summed) < 2:
        raise GraphError(f"graph {graph.name}: no output {loss!r} with gradients to accumulate; differentiate it first")
    build = Builder(f"{graph.name}/accumulated")
    data = [name for name, tensor in graph.inputs.items() if tensor.role in DATA]
    shared = [name for name in graph.inputs if name not in data]
    for name, tensor in graph.inputs.items():
        build.input(name, tensor.prepend(MICRO_BATCHES) if name in data else tensor)
    zeros = [_zero(build, name, graph.type(graph.outputs[name])) for name in summed]
    loop = Repeat(_body(graph, summed, data, shared), MICRO_BATCHES, carried=len(summed), stacked=len(data))
    totals = build.add(loop, *zeros, *(Value(n) for n in (*data, *shared)), name="micro_batches")
    build.phase = UPDATE  # so that it waits for the one reduction that the optimizer step needs
    for name, value in zip(summed, totals, strict=True):
        role = graph.type(graph.outputs[name]).role
        mean = build.add(Pointwise("scale", 1 / MICRO_BATCHES.size), value, name=f"{name}.mean", role=role)
        build.output(name, mean[0])
    return build.graph()


def _zero(build: Builder, name: str, tensor: Tensor) -> Value:
    (zero,) = build.add(Constant(0.0), name=f"{name}.zero")
    if not tensor.axes:
        return zero
    return build.add(Broadcast(tensor.axes), zero, name=f"{name}.zeros", role=tensor.role)[0]


def _body(graph: Graph, summed: list[str], data: list[str], shared: list[str]) -> Graph:
    """One micro-batch: the graph, and what it gives added to what there is."""
    body = Builder(graph.name)
    for name in summed:
        body.input(f"sum:{name}", graph.type(graph.outputs[name]))
    for name in (*data, *shared):
        body.input(name, graph.inputs[name])
    for node in graph.nodes:
        body.append(node)
    body.phase = "backward"
    for name in summed:
        value, role = graph.outputs[name], graph.type(graph.outputs[name]).role
        total = body.add(Pointwise("add"), Value(f"sum:{name}"), value, name=f"{name}.sum", role=role)
        body.output(f"sum:{name}", total[0])
    return body.graph()
