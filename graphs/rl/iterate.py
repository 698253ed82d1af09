"""Run one iteration of post-training in numpy: every operation of an algorithm in order, on data and weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from graphs.axes import Role
from graphs.errors import GraphError
from graphs.execute import Machine, run
from graphs.ir import Array
from graphs.rl.links import Operation
from graphs.transforms.optimizer import UPDATED

Arrays = dict[str, Array]
WEIGHTS = (Role.PARAMETER, Role.OPTIMIZER)


def iterate(
    operations: Iterable[Operation],
    data: Mapping[str, Array],
    models: Mapping[str, Mapping[str, Array]],
    sizes: Mapping[str, int],
    mesh: Mapping[str, int] | None = None,
) -> tuple[Arrays, dict[str, Arrays]]:
    """Values and weights after the iteration.

    ``models`` has for each role its parameters and, where it is trained, the optimizer's ``first:`` and ``second:``
    moments; ``data`` has what no operation gives: prompts and uniform numbers (or pairs), and the ``rate``.  An
    operation of several trips goes through the sequences in as many parts as they are longer than its batch, and over
    again in each epoch.
    """
    values = dict(data)
    weights = {role: dict(arrays) for role, arrays in models.items()}
    for op in operations:
        machine = Machine(sizes, mesh)
        for trip in range(int(machine.number(op.trips))):
            inputs = {name: _input(op, name, trip, values, weights, machine) for name in op.graph.inputs}
            for name, array in run(op.graph, inputs, sizes, mesh).items():
                if op.graph.type(op.graph.outputs[name]).role in WEIGHTS:
                    role, own = _owner(op, name.removeprefix(UPDATED))
                    weights[role][own] = array
                else:
                    values[op.gives.get(name, name)] = array
    return values, weights


def _owner(op: Operation, name: str) -> tuple[str, str]:
    """The role that has a weight, and its name there: ``first:critic/W_e`` is the critic's ``first:W_e``."""
    state, colon, rest = name.rpartition(":")
    role, _, own = rest.rpartition("/")
    return role or op.role, f"{state}{colon}{own}"


def _input(
    op: Operation, name: str, trip: int, values: Arrays, weights: Mapping[str, Arrays], machine: Machine
) -> Array:
    tensor = op.graph.inputs[name]
    role, own = _owner(op, name)
    known = weights.get(role, {}) if tensor.role in WEIGHTS else values
    if own not in known:
        raise GraphError(f"{op.nodes[0]}: neither data nor an earlier operation gives {own!r} of the {role}; give it")
    if "b" not in tensor.names or tensor.role in WEIGHTS:
        return known[own]
    where, count = tensor.names.index("b"), machine.count(tensor.axis("b"))
    array = np.asarray(known[name])
    parts = array.shape[where] // count if array.ndim == len(tensor.axes) else 1
    first = trip % max(parts, 1) * count
    return array if parts <= 1 else array[(slice(None),) * where + (slice(first, first + count),)]
