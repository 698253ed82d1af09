"""Partition: a graph and a scheme become the graph that every rank runs, with its collectives."""

from __future__ import annotations

from graphs.axes import Role
from graphs.ir import Graph
from graphs.ops.repeat import Repeat
from graphs.schemes.scheme import LAYER, Scheme
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
        parameter = name.removeprefix("grad:")
        if parameter != name and parameter in graph.inputs:
            gradient = graph.inputs[parameter].with_role(Role.PARAMETER_GRADIENT)
            spmd.output(name, spmd.home(gradient, f"the gradient of {parameter!r}"))
        else:
            spmd.output(name, spmd.settled(value))
    return spmd.build.graph()


def _pipeline(graph: Graph, scheme: Scheme) -> str | None:
    """The mesh dimension whose ranks hold different layers."""
    loops = any(isinstance(n.op, Repeat) and n.op.axis.name == LAYER for n in graph.nodes)
    return scheme.pipeline if loops else None
