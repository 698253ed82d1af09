"""The simulator: a training step run sequentially and rank by rank on the same numbers, and how far apart they end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from derive.communication import Communication, Item, items
from derive.domains import factors_of
from derive.forms import symbol
from derive.measure import Question
from graphs.axes import Role
from graphs.blocks.decoder import ATTENTIONS, FEED_FORWARDS
from graphs.errors import GraphError
from graphs.execute import Machine, run
from graphs.gallery import step
from graphs.ir import Array, Graph, Node
from graphs.ops.repeat import Repeat
from graphs.schemes import Declaration, Scheme
from graphs.sizes import Sizes
from graphs.transforms.partition import partition

SIZES = ("B", "m", "L", "h", "d", "d_ff", "V", "E", "E_a", "d_e")
DEGREE = 2
#: what a size, or what the degrees leave of it, is unless set
SMALL = {"m": 4, "m_1": 4, "V": 4, "V_1": 4}
OTHERS = 2
#: scalar operations on all ranks together, about a minute's worth
MOST = 10**9
#: an occurrence costs at least as much as so many scalar operations
OVERHEAD = 1000
#: largest difference from the sequential result, relative to its largest entry (or to 1)
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Simulation:
    """What was run, how often one rank sent (phase, action, mesh dimension) -> times, and how far outputs are apart.

    The rank is one of the pipeline stage that sends most often; what a stage hands to the next counts.
    """

    scheme: str
    model: str
    ffn: str
    sizes: Mapping[str, int]
    degrees: Mapping[str, int]
    collectives: Mapping[tuple[str, str, str], int]
    differences: Mapping[str, float]

    @property
    def ranks(self) -> int:
        return math.prod(self.degrees.values())

    @property
    def agrees(self) -> bool:
        return all(d <= TOLERANCE for d in self.differences.values())

    def json(self) -> dict[str, Any]:
        exchanged = [
            {"phase": phase, "action": action, "mesh": mesh, "times": times}
            for (phase, action, mesh), times in self.collectives.items()
        ]
        return {
            "scheme": self.scheme.lower(),
            "model": self.model,
            "ffn": self.ffn,
            "sizes": dict(self.sizes),
            "degrees": dict(self.degrees),
            "ranks": self.ranks,
            "collectives": exchanged,
            "outputs": [{"name": n, "difference": d if isfinite(d) else None} for n, d in self.differences.items()],
            "tolerance": TOLERANCE,
            "agrees": self.agrees,
        }


def simulate(
    one: Declaration, model: str, ffn: str, degrees: Mapping[str, int], given: Mapping[str, int], seed: int = 0
) -> Simulation:
    """Run both and compare; sizes that are not given are small and divisible.

    GraphError where a name is unknown, a degree does not divide what it cuts, or the run would take too long.
    """
    scheme = one.scheme
    mesh = _mesh(scheme, degrees)
    sizes = sizes_for(scheme, mesh, given)
    graph = step(model, FEED_FORWARDS[ffn], ATTENTIONS[one.attention])
    _refuse_long_runs(graph, sizes | mesh, mesh)
    part = partition(graph, scheme)
    inputs = random_inputs(graph, sizes | mesh, seed)
    wanted, got = run(graph, inputs, sizes | mesh), run(part, inputs, sizes, mesh)
    apart = {name: _difference(got[name], wanted[name]) for name in wanted}
    return Simulation(scheme.name, model, ffn, sizes, mesh, _exchanges(part, scheme, sizes | mesh), apart)


def to_text(found: Simulation) -> str:
    numbers = {**found.degrees, **found.sizes}
    lines = [
        f"{found.scheme}, {found.model} model, {found.ffn} feed-forward: {found.ranks} ranks",
        "  " + ", ".join(f"{name} = {n}" for name, n in numbers.items()),
        "  exchanges of one rank (of the busiest pipeline stage), loops counted",
        *(f"    {phase:<9} {action:<15} {mesh:<6} {n}" for (phase, action, mesh), n in found.collectives.items()),
        "  largest difference from the sequential result",
        *(f"    {name:<14} {d:.1e}" for name, d in found.differences.items()),
        "equal" if found.agrees else f"DIFFERENT: beyond the tolerance of {TOLERANCE}",
    ]
    return "\n".join(lines) + "\n"


# -- sizes ------------------------------------------------------------------------------------------------------------
def _mesh(scheme: Scheme, degrees: Mapping[str, int]) -> dict[str, int]:
    if strange := sorted(degrees.keys() - set(scheme.meshes)):
        has = f"it has {', '.join(scheme.meshes)}" if scheme.meshes else "it has none"
        raise GraphError(f"scheme {scheme.name} has no mesh dimension {strange[0]}; {has}")
    return {name: degrees.get(name, DEGREE) for name in scheme.meshes}


def sizes_for(scheme: Scheme, mesh: Mapping[str, int], given: Mapping[str, int]) -> dict[str, int]:
    """The given sizes, and for the others small multiples of the degrees that divide them (of the heads, for d)."""
    if strange := sorted(given.keys() - set(SIZES)):
        raise GraphError(f"no size is called {strange[0]!r} here; set one of {', '.join(SIZES)}")
    factors = factors_of(Sizes.canonical(), scheme)
    out: dict[str, int] = {}
    for name in SIZES:  # h comes before d
        form = factors.get(name, symbol(name))
        if name == "d":
            form = form / factors.get("h", symbol("h")) * symbol("heads")
        known = {"heads": out.get("h", 1), **mesh}
        default = form.evaluate({s: known.get(s, SMALL.get(s, OTHERS)) for s in form.symbols})
        out[name] = given.get(name, int(default))
    if out["E_a"] > out["E"]:
        raise GraphError(f"E_a = {out['E_a']} experts of E = {out['E']} cannot be active; lower E_a or raise E")
    return out


def _refuse_long_runs(graph: Graph, sizes: Mapping[str, int], mesh: Mapping[str, int]) -> None:
    machine, ranks = Machine(sizes), math.prod(mesh.values())
    amount = ranks * sum(times * (OVERHEAD + _points(n, g, machine)) for g, n, times in _occurrences(graph, machine))
    if amount > MOST:
        raise GraphError(
            f"{ranks} ranks at these sizes would take about {amount:.1e} operations, and {MOST:.0e} is the limit; "
            "lower the degrees or the sizes"
        )


def _points(node: Node, graph: Graph, machine: Machine) -> int:
    """Index points over all axes of an occurrence."""
    types = (*(graph.type(v) for v in node.operands), *node.types)
    return math.prod({a.name: machine.count(a) for t in types for a in t.axes}.values())


def _occurrences(graph: Graph, machine: Machine, times: int = 1) -> Iterator[tuple[Graph, Node, int]]:
    """Every occurrence that is no loop, and how often a rank runs it."""
    for node in graph.nodes:
        if isinstance(node.op, Repeat):
            trips = int(machine.number(node.op.axis.extent))
            yield from _occurrences(node.op.body, machine, times * trips)
        else:
            yield graph, node, times


# -- running ----------------------------------------------------------------------------------------------------------
def random_inputs(graph: Graph, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
    rng, machine, out = np.random.default_rng(seed), Machine(sizes), {}
    for name, tensor in graph.inputs.items():
        shape = tuple(machine.count(a) for a in tensor.axes)
        index = tensor.role is Role.INDEX
        out[name] = rng.integers(0, sizes["V"], shape).astype(float) if index else rng.normal(size=shape) / 2
    return out


def _exchanges(graph: Graph, scheme: Scheme, numbers: Mapping[str, int]) -> dict[tuple[str, str, str], int]:
    moved = Communication(Question(scheme=scheme.name), "ring", tuple(items(graph, scheme.meshes))).at(numbers)
    counts = max((_counted(moved.at_stage(stage).items) for stage in moved.stages), key=Counter.total)
    return dict(sorted(counts.items(), key=lambda item: (moved.phases.index(item[0][0]), item[0])))


def _counted(found: Iterable[Item]) -> Counter[tuple[str, str, str]]:
    counts = Counter[tuple[str, str, str]]()
    for item in found:
        counts[item.phase, item.action, item.mesh] += int(item.count.evaluate({}))
    return counts


def _difference(got: Array, wanted: Array) -> float:
    return float(np.max(np.abs(got - wanted), initial=0.0) / max(1.0, np.max(np.abs(wanted), initial=0.0)))
