"""Decoders with and without dropout, and what a run of a training graph is seen to keep."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from graphs import execute
from graphs.axes import Role
from graphs.execute import Coordinate, Held, Machine
from graphs.ir import Graph, Node, Value
from graphs.models.roles import ROLES, forward
from graphs.ops.repeat import Repeat
from graphs.sizes import Sizes
from graphs.transforms.backward import training
from graphs.transforms.recompute import Recompute
from tests.graphs.test_partition import EVEN, FFNS, arrays

RATE = Fraction(1, 3)
#: every expert is active, so that arrays over all experts are as large as what is counted of them
EVERY_EXPERT = EVEN | {"E_a": EVEN["E"]}


@cache
def trained(
    ffn: str = "dense", rate: Fraction = RATE, recompute: Recompute = Recompute.NONE, role: str = "policy"
) -> Graph:
    graph = forward(Sizes.canonical(), ROLES[role], FFNS[ffn], loss=True, dropout=rate)
    return training(graph, recompute=recompute)


def inputs_of(graph: Graph, sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Random arrays, and seeds that differ from layer to layer."""
    out = arrays(graph, sizes, seed)
    return out | ({"seed": np.arange(sizes["L"]) + 10 * seed} if "seed" in out else {})


class Watch:
    """Runs a training graph on a mesh and notes, rank by rank, which arrays of the forward phase are read later.

    It looks at arrays, not at the graph's edges: an array counts once, however many occurrences read it and under
    whatever names of its axes, also if it is one of a loop.  Index data is not counted, nor are the inputs.
    """

    def __init__(self, graph: Graph, sizes: Mapping[str, int], mesh: Mapping[str, int], seed: int = 0) -> None:
        self.graph, self.machine = graph, Machine(sizes, mesh)
        self.outer = {id(n): n for n in graph.nodes} | {id(n.op): n for n in graph.nodes if isinstance(n.op, Repeat)}
        self.made: dict[tuple[Coordinate, int], np.ndarray] = {}
        self.kept: dict[Coordinate, dict[int, int]] = {r: {} for r in self.machine.coordinates}
        inputs = inputs_of(graph, sizes, seed)
        held = {Value(n): self.machine.scatter(np.asarray(inputs[n], float), t) for n, t in graph.inputs.items()}
        with pytest.MonkeyPatch.context() as patch:
            for name in ("_everywhere", "_collective", "_repeat"):
                patch.setattr(execute, name, self._watching(getattr(execute, name)))
            patch.setattr(np, "stack", self._stack_once(np.stack))
            self.values = execute._run_nodes(graph, held, self.machine, self.machine.coordinates)

    @staticmethod
    def _stack_once(stack):
        """The same arrays stacked again are the same stack; they stay alive, so that no other has their identity."""
        known: dict[tuple[int, ...], tuple[list[np.ndarray], np.ndarray]] = {}

        def once(entries: list[np.ndarray]) -> np.ndarray:
            return known.setdefault(tuple(map(id, entries)), (entries, stack(entries)))[1]

        return once

    def _watching(self, original):
        """The function, noting the outermost occurrences that it runs; ``_collective`` has one operand, not a list."""

        def run(*arguments):
            node = next((self.outer[id(a)] for a in arguments if id(a) in self.outer), None)
            results = original(*arguments)
            if node is not None:
                operands = next(a for a in arguments if isinstance(a, dict | list))
                self._note(node, *(x if isinstance(x, list) else [x] for x in (operands, results)))
            return results

        return run

    def _note(self, node: Node, operands: list[Held], results: list[Held]) -> None:
        if node.phase == "forward":
            for value, held in zip(node.types, results, strict=True):
                if value.role is not Role.INDEX:
                    self.made.update({(rank, id(array)): array for rank, array in held.items()})
            return
        ran = set().union(*results)
        for held in operands:
            for rank in ran & set(held):
                if (rank, id(held[rank])) in self.made:
                    self.kept[rank][id(held[rank])] = held[rank].size

    def elements(self, rank: Coordinate) -> int:
        return sum(self.kept[rank].values())

    def gradients(self, rank: Coordinate) -> int:
        """Elements of parameter gradients that the rank has at the end."""
        outputs = {v for name, v in self.graph.outputs.items() if name.startswith("grad:")}
        return sum(self.values[v][rank].size for v in outputs if rank in self.values[v])

    def weights(self, rank: Coordinate) -> int:
        return sum(self.machine.scatter(np.empty(self._shape(t)), t)[rank].size for _, t in self.graph.parameters())

    def _shape(self, tensor) -> list[int]:
        return [self.machine.count(a) for a in tensor.axes]
