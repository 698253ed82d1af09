"""Run a graph on numpy arrays: sequentially, or rank by rank over a mesh with its collectives.

A value is held as one array per rank coordinate.  The sequential machine is the mesh with no dimension and one rank.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import cast

import numpy as np
import numpy.typing as npt
import sympy

from graphs.axes import Axis, Split, Tensor
from graphs.errors import GraphError
from graphs.ir import Array, Graph, Node, Place, Value
from graphs.ops.collective import Collective
from graphs.ops.repeat import Repeat
from graphs.ops.scan import Scan

Coordinate = tuple[int, ...]
Held = dict[Coordinate, Array]


class Machine:
    """Numeric sizes and mesh degrees; checks that every degree divides what it splits."""

    def __init__(self, sizes: Mapping[str, int], mesh: Mapping[str, int] | None = None) -> None:
        self.mesh = dict(mesh or {})
        self.dimensions = tuple(self.mesh)
        self.values = dict(sizes) | self.mesh
        self.coordinates = list(itertools.product(*(range(p) for p in self.mesh.values())))
        self._numbers: dict[sympy.Expr, sympy.Expr] = {}

    def number(self, expr: sympy.Expr) -> sympy.Expr:
        if expr not in self._numbers:
            self._numbers[expr] = self._evaluate(expr)
        return self._numbers[expr]

    def _evaluate(self, expr: sympy.Expr) -> sympy.Expr:
        missing = sorted(s.name for s in expr.free_symbols if s.name not in self.values)
        if missing:
            raise GraphError(f"no value for {', '.join(missing)} in {expr}; give one with the sizes")
        return expr.subs({s: self.values[s.name] for s in expr.free_symbols})

    def within(self, op: Repeat, i: int) -> Machine:
        """The machine inside iteration ``i`` (from 0) of a loop, which may count its iterations (from 1)."""
        return Machine({**self.values, op.index.name: i + 1}, self.mesh) if isinstance(op, Scan) else self

    def count(self, axis: Axis) -> int:
        size = self.number(axis.size)
        if not size.is_Integer:
            raise GraphError(f"axis {axis.name!r} has size {axis.size} = {size}, not a whole number; change the sizes")
        return int(size)

    def positions(self, axis: Axis, at: Mapping[str, int]) -> npt.NDArray[np.int64]:
        """Global positions of the part of ``axis`` that the rank at ``at`` holds, ascending."""
        here = np.arange(self.count(axis))
        for split in axis.splits:
            here = self._part(here, split, at[split.mesh], axis)
        return here

    def _part(self, here: npt.NDArray[np.int64], split: Split, rank: int, axis: Axis) -> npt.NDArray[np.int64]:
        degree = self.mesh[split.mesh]
        chunks = 2 * degree if split.layout == "zigzag" and degree > 1 else degree
        if len(here) % chunks:
            raise GraphError(
                f"{split.mesh}={degree} does not divide axis {axis.name!r} of size {len(here)}; change one"
            )
        parts = np.split(here, chunks)
        return parts[rank] if chunks == degree else np.concatenate((parts[rank], parts[chunks - 1 - rank]))

    def at(self, coordinate: Coordinate) -> dict[str, int]:
        return dict(zip(self.dimensions, coordinate, strict=True))

    def scatter(self, array: Array, tensor: Tensor) -> Held:
        """Cut a global array into what each rank holds of it."""
        held = {}
        for coordinate in self.coordinates:
            part = array
            for i, axis in enumerate(tensor.axes):
                if axis.splits:
                    part = np.take(part, self.positions(axis, self.at(coordinate)), axis=i)
            held[coordinate] = part
        return held

    def assemble(self, held: Held, tensor: Tensor) -> Array:
        """Put the ranks' parts together; replicas must agree (GraphError where they do not)."""
        out = np.full([self.count(a) for a in tensor.axes], np.nan)
        for coordinate, part in held.items():
            index = np.ix_(*(self.positions(a, self.at(coordinate)) for a in tensor.axes)) if tensor.axes else ()
            seen = out[index]
            if not np.allclose(np.where(np.isnan(seen), part, seen), part, rtol=1e-9, atol=1e-9):
                raise GraphError(f"ranks disagree on a value over ({', '.join(tensor.names)}); a collective is missing")
            out[index] = part
        return out


class _Rank(Place):
    def __init__(self, machine: Machine, coordinate: Coordinate) -> None:
        self.machine, self.where = machine, machine.at(coordinate)

    def positions(self, axis: Axis) -> npt.NDArray[np.int64]:
        return self.machine.positions(axis, self.where)

    def value(self, expr: sympy.Expr) -> float:
        return float(self.machine.number(expr))


def run(
    graph: Graph, inputs: Mapping[str, npt.ArrayLike], sizes: Mapping[str, int], mesh: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """Outputs of the graph as global arrays, from global input arrays."""
    machine = Machine(sizes, mesh)
    held = {}
    for name, tensor in graph.inputs.items():
        if name not in inputs:
            raise GraphError(f"graph {graph.name}: no array for the input {name!r}; give one")
        array = np.asarray(inputs[name], dtype=np.float64)
        shape = tuple(machine.count(a) for a in tensor.axes)
        if array.shape != shape:
            raise GraphError(f"input {name!r} has shape {array.shape}, its axes say {shape}; change one")
        held[Value(name)] = machine.scatter(array, tensor)
    results = _run_nodes(graph, held, machine, machine.coordinates)
    return {name: machine.assemble(results[v], graph.type(v)) for name, v in graph.outputs.items()}


def _run_nodes(graph: Graph, held: dict[Value, Held], machine: Machine, ranks: list[Coordinate]) -> dict[Value, Held]:
    values = dict(held)
    for node in graph.nodes:
        operands = [values[v] for v in node.operands]
        if isinstance(node.op, Collective):
            results = [_collective(node, node.op, operands[0], machine)]
        elif isinstance(node.op, Repeat):
            results = _repeat(node.op, operands, machine, ranks)
        else:
            results = _everywhere(graph, node, operands, machine, _bound(graph, node, machine, ranks))
        values.update({Value(node.name, i): r for i, r in enumerate(results)})
    return values


def _bound(graph: Graph, node: Node, machine: Machine, ranks: list[Coordinate]) -> list[Coordinate]:
    """Those of the ranks that run the occurrence: all, or a pipeline's boundary stage."""
    if node.stage is None:
        return ranks
    loops = [n.op.axis for n in graph.nodes if isinstance(n.op, Repeat) and n.op.axis.splits]
    if not loops:
        raise GraphError(f"{node.name} is bound to a pipeline stage, but no loop is split; remove its stage")
    wanted = _boundary(node.stage, loops[0].splits[0].mesh, machine)
    return [r for r in ranks if _stage(r, loops[0], machine) == wanted]


def _boundary(stage: str, mesh: str, machine: Machine) -> int:
    return 0 if stage == "first" else machine.mesh[mesh] - 1


def _everywhere(
    graph: Graph, node: Node, operands: list[Held], machine: Machine, ranks: list[Coordinate]
) -> list[Held]:
    """Run one op on every rank that holds all its operands."""
    types = [graph.type(v) for v in node.operands]
    results: list[Held] = [{} for _ in node.types]
    for rank in ranks:
        if all(rank in held for held in operands):
            outs = node.op.run([held[rank] for held in operands], types, _Rank(machine, rank))
            for held, out in zip(results, outs, strict=True):
                held[rank] = out
    return results


def _repeat(op: Repeat, operands: list[Held], machine: Machine, ranks: list[Coordinate]) -> list[Held]:
    """Iterate; where the loop axis is split over a mesh dimension its stages take turns and hand on what is carried."""
    count = machine.count(op.axis)
    stage_of = _stages(op.axis, machine, count)
    names, outputs = list(op.body.inputs), list(op.body.outputs.values())
    carried = operands[: op.carried]
    stacks: list[dict[Coordinate, dict[int, Array]]] = [{r: {} for r in ranks} for _ in outputs[op.carried :]]
    previous: int | None = None
    for i in reversed(range(count)) if op.reverse else range(count):
        stage, local = stage_of[i]
        inside = machine.within(op, i)
        here = [r for r in ranks if stage is None or _stage(r, op.axis, machine) == stage]
        if stage is not None and previous is not None and stage != previous:
            carried = [_hand_on(c, op.axis.splits[0].mesh, here, previous, machine) for c in carried]
        held = {Value(n): _present(c, here, n) for n, c in zip(names, carried, strict=False)}
        for n, given in zip(names[op.carried :], operands[op.carried :], strict=True):
            is_stacked = names.index(n) < op.carried + op.stacked
            held[Value(n)] = {r: a[local] if is_stacked else a for r, a in _present(given, here, n).items()}
        values = _run_nodes(op.body, held, inside, here)
        carried = [values[v] for v in outputs[: op.carried]]
        for stack, v in zip(stacks, outputs[op.carried :], strict=True):
            for r in here:
                stack[r][local] = values[v][r]
        previous = stage
    types = [op.body.type(v) for v in outputs[op.carried :]]
    return [*carried, *(_stacked(stack, t, machine) for stack, t in zip(stacks, types, strict=True))]


def _stacked(stack: dict[Coordinate, dict[int, Array]], entry: Tensor, machine: Machine) -> Held:
    """What the iterations left on each rank, in order; a loop of no iterations leaves an axis without entries."""
    out: Held = {}
    for rank, entries in stack.items():
        shape = [len(machine.positions(a, machine.at(rank))) for a in entry.axes]
        out[rank] = np.stack([entries[i] for i in sorted(entries)]) if entries else np.empty((0, *shape))
    return out


def _present(held: Held, ranks: list[Coordinate], name: str) -> Held:
    """What the ranks that run an iteration hold of a loop input."""
    if any(r not in held for r in ranks):
        raise GraphError(f"a rank that runs the loop does not hold its input {name!r}; send it there")
    return {r: held[r] for r in ranks}


def _stages(axis: Axis, machine: Machine, count: int) -> list[tuple[int | None, int]]:
    """For each iteration, the pipeline stage that runs it (None: all ranks) and its index there."""
    if not axis.splits:
        return [(None, i) for i in range(count)]
    out: dict[int, tuple[int | None, int]] = {}
    for stage in range(machine.mesh[axis.splits[0].mesh]):
        for local, i in enumerate(machine.positions(axis, {axis.splits[0].mesh: stage})):
            out[int(i)] = (stage, local)
    return [out[i] for i in range(count)]


def _stage(rank: Coordinate, axis: Axis, machine: Machine) -> int:
    return machine.at(rank)[axis.splits[0].mesh]


def _peer(rank: Coordinate, mesh: str, position: int, machine: Machine) -> Coordinate:
    where = machine.dimensions.index(mesh)
    return (*rank[:where], position, *rank[where + 1 :])


def _hand_on(held: Held, mesh: str, here: list[Coordinate], previous: int, machine: Machine) -> Held:
    return {r: held[_peer(r, mesh, previous, machine)] for r in here}


def _collective(node: Node, op: Collective, held: Held, machine: Machine) -> Held:
    if op.action == "send":
        return _send(node, op, held, machine)
    degree = machine.mesh[op.mesh]
    tensor = node.types[0]
    out: Held = {}
    for rank in held:
        if op.action == "permute":
            out[rank] = held[_peer(rank, op.mesh, (machine.at(rank)[op.mesh] - op.step) % degree, machine)]
            continue
        group = [held[_peer(rank, op.mesh, i, machine)] for i in range(degree)]
        if op.action == "shard":
            out[rank] = _own_part(held[rank], op, tensor, rank, machine)
        elif op.action == "all_gather":
            out[rank] = _gathered(group, cast(str, op.axis), op, tensor, rank, machine)
        elif op.action == "all_to_all":
            whole = _gathered(group, cast(str, op.source), op, tensor, rank, machine)
            out[rank] = _own_part(whole, op, tensor, rank, machine)
        else:
            combined = cast(Array, (np.add if op.fn == "sum" else np.maximum).reduce(group))
            out[rank] = combined if op.action == "all_reduce" else _own_part(combined, op, tensor, rank, machine)
    return out


def _own_part(array: Array, op: Collective, tensor: Tensor, rank: Coordinate, machine: Machine) -> Array:
    """This rank's entries of an array that is whole over the op's mesh dimension."""
    where = tensor.names.index(cast(str, op.axis))
    axis = tensor.axes[where]
    whole = Axis(axis.name, axis.size, tuple(s for s in axis.splits if s.mesh != op.mesh))
    before, after = machine.positions(whole, machine.at(rank)), machine.positions(axis, machine.at(rank))
    return np.take(array, np.searchsorted(before, after), axis=where)


def _gathered(
    group: list[Array], name: str, op: Collective, tensor: Tensor, rank: Coordinate, machine: Machine
) -> Array:
    """The axis called ``name``, put together from the parts that the op's mesh dimension holds."""
    where = tensor.names.index(name)
    axis = tensor.axes[where]
    split = Axis(axis.name, axis.size, (*axis.splits, Split(op.mesh, op.layout)))
    places = [machine.positions(split, machine.at(rank) | {op.mesh: i}) for i in range(len(group))]
    order = np.argsort(np.concatenate(places), kind="stable")
    return np.take(np.concatenate(group, axis=where), order, axis=where)


def _send(node: Node, op: Collective, held: Held, machine: Machine) -> Held:
    """Move a value that one boundary stage holds to the stage the occurrence is bound to."""
    (source,) = {machine.at(r)[op.mesh] for r in held}
    target = _boundary(cast(str, node.stage), op.mesh, machine)
    return {_peer(r, op.mesh, target, machine): a for r, a in held.items() if machine.at(r)[op.mesh] == source}
