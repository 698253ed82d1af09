"""Case A18: time on p processors from work and depth.

Counted: scalar additions and multiplications, a sum of n numbers as n - 1 of them (a matrix product of inner length k
does 2k - 1 for each result, not 2k).
"""

from __future__ import annotations

from fractions import Fraction

import networkx as nx
import pytest
import sympy

from derive.brent import bounds, level_by_level
from derive.costs.model import FULL
from derive.costs.rule import cost
from graphs.axes import Axis, Tensor
from graphs.errors import GraphError
from graphs.ir import Builder, Graph, Op
from graphs.ops.contraction import Contraction
from graphs.ops.reduction import Reduction
from tests.oracle import Scalars, expand_node


def single(op: Op, *shapes: dict[str, int]) -> Graph:
    build = Builder("single")
    tensors = [Tensor(tuple(Axis(n, sympy.Integer(k)) for n, k in shape.items())) for shape in shapes]
    build.output("y", build.add(op, *(build.input(f"x{i}", t) for i, t in enumerate(tensors)))[0])
    return build.graph()


def levels(scalars: Scalars) -> list[int]:
    """How many operations stand at each distance from the inputs."""
    at: dict[int, int] = {}
    for node in nx.topological_sort(scalars.graph):
        before = max((at[p] for p in scalars.graph.predecessors(node)), default=0)
        at[node] = before + scalars.graph.nodes[node]["cost"]
    counted = [at[n] for n, c in scalars.graph.nodes(data="cost") if c]
    return [counted.count(level) for level in range(1, max(counted) + 1)]


def greedy(graph: nx.DiGraph, processors: int) -> int:
    """Steps when in each of them as many ready operations as there are processors run."""
    waiting = {n: graph.in_degree(n) for n in graph}
    ready, steps = [n for n, k in waiting.items() if k == 0], 0
    while ready:
        now, ready = ready[:processors], ready[processors:]
        steps += 1
        for node in now:
            for after in graph.successors(node):
                waiting[after] -= 1
                if waiting[after] == 0:
                    ready.append(after)
    return steps


@pytest.mark.parametrize("n", [8, 1024])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 16])
def test_a18_a_sum_as_a_balanced_tree(n: int, p: int) -> None:
    graph = single(Reduction("sum", ("c",)), {"c": n})
    found = cost(graph, graph.nodes[0], FULL)
    work, depth = found.work.evaluate({}), found.depth.evaluate({})
    assert work == n - 1
    assert depth == n.bit_length() - 1
    time = level_by_level(levels(expand_node(graph, graph.nodes[0], {})), p)
    between = bounds(work, depth, p)
    assert between.lower <= time <= between.upper <= Fraction(work) / p + depth
    if (n, p) in ((8, 2), (1024, 16)):
        assert (time, between.upper) == {8: (4, 5), 1024: (67, Fraction("73.3125"))}[n]


@pytest.mark.parametrize("p", [1, 2, 3, 4, 16])
def test_a18_a_chain_takes_its_work_whatever_the_processors(p: int) -> None:
    chain = nx.path_graph(7, create_using=nx.DiGraph)
    assert greedy(chain, p) == bounds(7, 7, p).lower == bounds(7, 7, p).upper == 7


@pytest.mark.parametrize(("shape", "lower", "time"), [((3, 1, 1), 3, 4), ((3, 3, 1), Fraction(7, 2), 5)])
def test_a18_levels_can_take_longer_than_the_lower_bound(shape: tuple[int, ...], lower: Fraction, time: int) -> None:
    """On 2 processors; each operation of a level waits for all of the level before."""
    nodes = [(i, j) for i, k in enumerate(shape) for j in range(k)]
    graph = nx.DiGraph((a, b) for a in nodes for b in nodes if b[0] == a[0] + 1)
    between = bounds(sum(shape), len(shape), 2)
    assert (between.lower, greedy(graph, 2), level_by_level(shape, 2)) == (lower, time, time)
    assert time <= between.upper


def test_a18_a_matrix_product_of_4_by_8_by_4() -> None:
    graph = single(Contraction(("a", "c")), {"a": 4, "b": 8}, {"b": 8, "c": 4})
    found, scalars = cost(graph, graph.nodes[0], FULL), expand_node(graph, graph.nodes[0], {})
    assert found.work.evaluate({}) == scalars.work == 240
    assert found.depth.evaluate({}) == scalars.depth == 4


def test_a18_what_is_no_computation_is_refused() -> None:
    for work, depth, p in ((1, 2, 1), (2, 1, 0)):
        with pytest.raises(GraphError, match=r"is no computation; check the numbers$"):
            bounds(work, depth, p)
