"""Loops in the pass: bodies are partitioned by themselves, and what goes round comes back in the form it came in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from graphs.axes import Role, Split
from graphs.ir import Graph, Value
from graphs.ops.constant import Broadcast, Constant
from graphs.ops.relabel import Relabel
from graphs.ops.repeat import Repeat
from graphs.schemes.scheme import LAYER
from graphs.transforms.partition.forms import Form
from graphs.transforms.partition.layouts import meshes_of, without

if TYPE_CHECKING:
    from graphs.transforms.partition.spmd import Occurrence, Spmd, Target


def place_loop(spmd: Spmd, at: Occurrence, op: Repeat) -> list[Form]:
    layers = spmd.layouts.splits((op.axis.name,), at.node.name).get(op.axis.name, ())
    if layers and op.axis.name != LAYER:
        spmd.refuse(
            f"the iterations of {at.node.name} follow each other on every rank; leave {op.axis.name!r} unmapped"
        )
    sums = _open_sums(spmd, at, op)
    while True:  # a sum that one iteration completes is complete in all: try again with fewer
        inner = type(spmd)(op.body, replace(spmd.layouts, in_blocks=spmd.layouts.in_blocks or op.axis.name == LAYER))
        forms = _enter(spmd, at, op, inner, layers, sums)
        results = _body(op, inner, sums)
        left = {i: frozenset(results[i].partial) for i in sums}
        if left == sums:
            break
        sums = left
    axis = replace(op.axis, splits=layers)
    placed = spmd.append(at, replace(op, body=inner.build.graph(), axis=axis), forms, None)
    if layers:
        spmd.stage = "first" if op.reverse else "last"
    stages = [spmd.stage if i < op.carried or not layers else None for i in range(len(placed))]
    return [replace(f, partial=r.partial, stage=s) for f, r, s in zip(placed, results, stages, strict=True)]


def _open_sums(spmd: Spmd, at: Occurrence, op: Repeat) -> dict[int, frozenset[str]]:
    """Carried gradients that start at zero may stay partial: over which mesh dimensions at most."""
    out = {}
    for i, value in enumerate(at.operands[: op.carried]):
        if at.given[i].role is Role.PARAMETER_GRADIENT and _is_zero(spmd.graph, value):
            cut = meshes_of(spmd.home(at.given[i], "a gradient"))
            shards = spmd.layouts.scheme.accumulated == "shards"
            out[i] = frozenset(spmd.layouts.scheme.meshes) - (cut if shards else set())
    return out


def _enter(
    spmd: Spmd, at: Occurrence, op: Repeat, inner: Spmd, layers: tuple[Split, ...], sums: dict[int, frozenset[str]]
) -> list[Form]:
    boundary = ("last" if op.reverse else "first") if layers and spmd.pipeline else spmd.stage
    forms = []
    for i, (name, value) in enumerate(zip(op.body.inputs, at.operands, strict=True)):
        target = without(_operand(spmd, op, i, value, inner, layers), sums.get(i, frozenset()))
        form = spmd.bring(value, target, frozenset(), at.node.phase, boundary if i < op.carried else None)
        if layers and i >= op.carried and form.stage is not None:
            spmd.refuse(f"all stages run {at.node.name}, but only one has its {name!r}; move it into the loop")
        inside = {a: s for a, s in target.items() if a != op.axis.name or i >= op.carried + op.stacked}
        inner.enter(name, inside, sums.get(i, ()))
        forms.append(form)
    return forms


def _operand(spmd: Spmd, op: Repeat, i: int, value: Value, inner: Spmd, layers: tuple[Split, ...]) -> Target:
    """Carried values come in the body's home layout, others in the form in which they were produced.

    Parameters that are kept as gathered come as they are used.
    """
    tensor = list(op.body.inputs.values())[i]
    if i < op.carried:
        return inner.home(tensor, "a carried value")
    target = dict(spmd.settled(value))
    if tensor.role is Role.PARAMETER and spmd.layouts.keeps_gathered:
        target = inner.layouts.splits(tensor.names, "a parameter in use")
    if i < op.carried + op.stacked:
        target[op.axis.name] = layers
    return target


def _body(op: Repeat, inner: Spmd, sums: dict[int, frozenset[str]]) -> list[Form]:
    """Partition the body; gradients may leave it partial, other carried values return to their home layout."""
    inner.run()
    out, roots = [], [_root(op.body, v) for v in op.body.outputs.values()]
    for i, (name, value) in enumerate(op.body.outputs.items()):
        form = inner.forms[value][0]
        if i < op.carried:
            home = inner.home(list(op.body.inputs.values())[i], "a carried value")
            kept = sums.get(i, frozenset()) & set(form.partial)
            out.append(inner.output(name, without(home, kept), kept))
        elif op.body.type(value).role is Role.PARAMETER_GRADIENT:
            out.append(inner.output(name, *_gradient_target(inner, form)))
        else:
            out.append(inner.output(name, _saved(inner, value, viewed=roots.count(_root(op.body, value)) > 1)))
    return out


def _saved(inner: Spmd, value: Value, viewed: bool) -> Target:
    """The form in which a value leaves a loop: as it was last exchanged or, where that is kept, gathered.

    Of a value that is ``viewed``, kept under another name too, an exchanged form would be a second copy.
    """
    kept = inner.layouts.keeps_gathered
    moved = [f for f in inner.forms[value] if not f.partial and (kept if f.gathered else f.exchanged and not viewed)]
    return {a.name: a.splits for a in moved[-1].tensor.axes} if moved else inner.settled(value)


def _gradient_target(inner: Spmd, form: Form) -> tuple[Target, frozenset[str]]:
    """Where stored gradients are cut, a gradient leaves the loop complete and cut; elsewhere it stays partial."""
    home = inner.home(form.tensor, "a gradient")
    shards = inner.layouts.scheme.accumulated == "shards"
    completed = meshes_of(home) & set(form.partial) if shards else set()
    target = home if completed else {a.name: a.splits for a in form.tensor.axes}
    return target, frozenset(form.partial) - completed


def _root(graph: Graph, value: Value) -> Value:
    """The value of which this one is a view under other names."""
    while value.node in graph.by_name and isinstance(graph.by_name[value.node].op, Relabel):
        value = graph.by_name[value.node].operands[0]
    return value


def _is_zero(graph: Graph, value: Value) -> bool:
    """Is the value zero whatever the inputs are?"""
    node = graph.by_name.get(value.node)
    if node is None:
        return False
    return node.op == Constant(0.0) or (isinstance(node.op, Broadcast) and _is_zero(graph, node.operands[0]))
