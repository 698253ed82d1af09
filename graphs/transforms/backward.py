"""Reverse mode: a forward graph with a scalar loss becomes a training graph.

Each op's vector-Jacobian rule says what the backward pass computes and, by what it asks the tape for, which forward
values must be kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphs.axes import Role
from graphs.errors import GraphError
from graphs.ir import Builder, Graph, Value
from graphs.ops.constant import Constant
from graphs.ops.scan import Scan
from graphs.transforms.prune import prune
from graphs.transforms.recompute import Recompute
from graphs.transforms.reversed_loops import keeping, plan_loops
from graphs.transforms.tape import Tape, sweep


def training(graph: Graph, loss: str = "loss", recompute: Recompute = Recompute.NONE) -> Graph:
    """Forward and backward of a graph whose output ``loss`` is a scalar.

    Outputs are those of the graph and ``grad:<name>`` for each parameter.
    """
    if graph.type(graph.outputs[loss]).axes:
        raise GraphError(f"graph {graph.name}: output {loss!r} is not a scalar; sum it first")
    return _differentiated(graph, loss, recompute, ())


def part_of_training(graph: Graph, out: str, received: Sequence[str], recompute: Recompute = Recompute.NONE) -> Graph:
    """The same of a part of a graph, whose output ``out`` others go on from and whose inputs ``received`` they made.

    The cotangent of ``out`` comes as the input ``d:<out>``, those of ``received`` are outputs too.  An ``out`` that is
    a scalar is the loss itself.
    """
    return _differentiated(graph, out, recompute, received)


def _differentiated(graph: Graph, out: str, recompute: Recompute, received: Sequence[str]) -> Graph:
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            raise GraphError(f"{node.name}: generation is not differentiated; train on a forward pass over its tokens")
    loops = plan_loops(graph, recompute)
    build = Builder(f"{graph.name}/training")
    for name, tensor in graph.inputs.items():
        build.input(name, tensor)
    for node in keeping(graph, loops).nodes:
        build.append(node)
    build.phase = "backward"
    tape = Tape(build, graph, lambda value, _reader: value, loops)
    end = graph.type(graph.outputs[out])
    handed = end.axes and build.input(f"d:{out}", end.with_role(Role.GRADIENT))
    cotangents = {graph.outputs[out]: handed or tape.apply(Constant(1.0), name="seed")}
    sweep(tape, graph.nodes, cotangents)
    for name, value in graph.outputs.items():
        build.output(name, value)
    for name, _ in graph.parameters():
        if Value(name) in cotangents:
            build.output(f"grad:{name}", cotangents[Value(name)])
    for name in received:
        build.output(f"d:{name}", cotangents[Value(name)])
    return prune(build.graph())


def saved_values(graph: Graph) -> list[Value]:
    """Values of the forward phase that later phases of a training graph read, but no parameters and no indices.

    A parameter that the forward phase gathered and that is read as gathered is such a value.  A cotangent that comes as
    an input is none.
    """
    forward = {n.name for n in graph.nodes if n.phase == "forward"} | set(graph.inputs)
    parameters = {Value(name) for name, _ in graph.weights()}
    out: dict[Value, None] = {}
    for node in graph.nodes:
        if node.phase != "forward":
            for v in node.operands:
                own = graph.type(v).role not in (Role.INDEX, Role.GRADIENT)
                if v.node in forward and v not in parameters and own:
                    out[v] = None
    return list(out)
