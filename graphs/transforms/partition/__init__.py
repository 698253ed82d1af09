"""Partition: a graph and a scheme become the graph that every rank runs, with its collectives."""

from __future__ import annotations

from typing import cast

from graphs.errors import GraphError
from graphs.ir import Graph
from graphs.ops.repeat import Repeat
from graphs.schemes.scheme import LAYER, STORED, Scheme
from graphs.transforms.optimizer import UPDATED
from graphs.transforms.partition.layouts import Layouts, check_axes
from graphs.transforms.partition.spmd import Spmd

__all__ = ["partition"]


def partition(graph: Graph, scheme: Scheme) -> Graph:
    """The graph of one rank under ``scheme``; executed on all ranks of a mesh it gives what ``graph`` gives.

    A value that the backward pass reads again is kept in the form in which it was produced and gathered again, or kept
    as gathered, as the scheme says.  A parameter's gradient is completed once, at the end, in the layout in which
    gradients are stored; over a mesh dimension that cuts stored gradients it is completed where it arises.
    """
    check_axes(graph, scheme)
    spmd = Spmd(graph, Layouts(scheme), _pipeline(graph, scheme))
    for name, tensor in graph.inputs.items():
        spmd.enter(name, spmd.home(tensor, f"input {name!r}"))
    spmd.run()
    for name, value in graph.outputs.items():
        tensor = graph.type(value)
        spmd.output(name, spmd.home(tensor, f"output {name!r}") if tensor.role in STORED else spmd.settled(value))
        if name.startswith(UPDATED):
            for stage in spmd.readers(name.removeprefix(UPDATED)):
                spmd.deliver(name, stage)
    return spmd.build.graph()


def _pipeline(graph: Graph, scheme: Scheme) -> str | None:
    """The mesh dimension whose ranks hold different layers."""
    loops = [n for n in graph.nodes if isinstance(n.op, Repeat)]
    for loop in loops if scheme.pipeline else ():
        if _has_layers(cast(Repeat, loop.op).body):
            raise GraphError(
                f"scheme {scheme.name}: {loop.name} would run a pipeline once per iteration; leave its layers uncut"
            )
    return scheme.pipeline if _has_layers(graph) else None


def _has_layers(graph: Graph) -> bool:
    loops = [n.op for n in graph.nodes if isinstance(n.op, Repeat)]
    return any(op.axis.name == LAYER or _has_layers(op.body) for op in loops)
