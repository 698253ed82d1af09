"""Depth with communication is the longest path of the partitioned graph run trip by trip, each exchange charged."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.communication import items
from derive.communication_depth import CommunicationRule, communication_depth
from derive.costs.model import PAPER
from derive.depth import as_max, depth
from derive.forms import Form, Max, symbol
from derive.measure import Question, training_depth
from graphs.axes import Axis, Role, Tensor, TopK
from graphs.blocks.decoder import EXPERTS
from graphs.errors import GraphError
from graphs.execute import Machine
from graphs.ir import Builder, Graph, Node, Value
from graphs.ops.collective import Collective
from graphs.ops.repeat import Repeat
from graphs.symbols import size
from tests.graphs.test_partition import EVEN, FFNS, SCHEMES, degrees, divisible, split

ALPHA, BETA = 7, 3
TIMES = {"alpha": ALPHA, "beta": BETA}
B, m, d, L = map(symbol, ("B", "m", "d", "L"))


class Clock:
    """Arrival times in numbers, every trip of every loop walked."""

    def __init__(self, sizes: dict[str, int], mesh: dict[str, int]) -> None:
        self.machine, self.mesh = Machine(sizes, mesh), mesh

    def elements(self, tensor: Tensor) -> Fraction:
        """One rank's entries; of a routed axis its share of the active ones."""
        out = Fraction(1)
        for axis in tensor.axes:
            out *= self.number(axis.extent)
        for restriction in tensor.domain:
            assert isinstance(restriction, TopK)
            out *= self.number(restriction.active) / self.number(tensor.axis(restriction.axis).size)
        return out

    def number(self, expr) -> Fraction:
        value = self.machine.number(expr)
        return Fraction(int(value.p), int(value.q))

    def exchange(self, graph: Graph, node: Node, op: Collective) -> Fraction:
        operand, result, p = graph.type(node.operands[0]), node.types[0], math.prod(self.mesh[m] for m in op.meshes)
        if p == 1 or op.action == "shard" or result.role is Role.INDEX:
            return Fraction(0)
        if op.action == "send":
            return ALPHA + BETA * self.elements(operand)
        chunk = max(self.elements(operand), self.elements(result)) / p
        if op.action == "all_to_all":
            chunk = self.elements(operand) / p
        return (2 if op.action == "all_reduce" else 1) * (p - 1) * (ALPHA + BETA * chunk)

    def walk(self, graph: Graph, start: dict[Value, Fraction]) -> dict[Value, Fraction]:
        at = dict(start)
        for node in graph.nodes:
            if isinstance(node.op, Repeat):
                results = self.loop(node.op, [at[v] for v in node.operands])
            else:
                own = self.exchange(graph, node, node.op) if isinstance(node.op, Collective) else 0
                results = [max((at[v] for v in node.operands), default=Fraction(0)) + own] * len(node.types)
            at |= {Value(node.name, i): t for i, t in enumerate(results)}
        return at

    def loop(self, op: Repeat, given: list[Fraction]) -> list[Fraction]:
        count = self.machine.count(op.axis)
        per_stage = count // self.mesh[op.axis.splits[0].mesh] if op.axis.splits else count
        names, outputs = list(op.body.inputs), list(op.body.outputs.values())
        carried, latest = given[: op.carried], [Fraction(0)] * (len(outputs) - op.carried)
        for i in range(count):
            if i and i % per_stage == 0:
                moved = [op.body.inputs[n] for n in names[: op.carried]]
                carried = [c + ALPHA + BETA * self.elements(t) for c, t in zip(carried, moved, strict=True)]
            at = self.walk(op.body, dict(zip(map(Value, names), [*carried, *given[op.carried :]], strict=True)))
            carried = [at[v] for v in outputs[: op.carried]]
            latest = [max(old, at[v]) for old, v in zip(latest, outputs[op.carried :], strict=True)]
        return [*carried, *latest]

    def depth(self, graph: Graph) -> Fraction:
        at = self.walk(graph, {Value(n): Fraction(0) for n in graph.inputs})
        return max(at[v] for v in graph.outputs.values())


def walked(name: str, ffn: str, sizes: dict[str, int], mesh: dict[str, int]) -> Fraction:
    return Clock(sizes, mesh).depth(split(name, "policy", ffn))


@pytest.mark.parametrize("name", SCHEMES)
@given(data=st.data())
@settings(max_examples=8)
def test_the_depth_is_that_of_the_graph_walked_trip_by_trip(name: str, data: st.DataObject) -> None:
    sizes, mesh = data.draw(divisible(SCHEMES[name].meshes))
    if "P_p" in mesh:
        sizes, mesh = sizes | {"L": 6}, mesh | {"P_p": data.draw(st.integers(2, 3))}
    ffn = data.draw(st.sampled_from(sorted(FFNS)))
    found = communication_depth(Question(scheme=name, ffn=FFNS[ffn]), sizes=sizes | mesh | TIMES).value
    assert found.evaluate({}) == walked(name, ffn, sizes, mesh)


@pytest.mark.parametrize("name", ["Data", "Tensor", "Sequence", "Context", "Pipeline"])
def test_the_formula_at_numbers_is_the_walk_at_numbers(name: str) -> None:
    mesh = degrees(SCHEMES[name])
    formula = communication_depth(Question(scheme=name)).value
    assert formula.evaluate(EVEN | mesh | TIMES) == walked(name, "dense", EVEN, mesh)


def test_tensor_parallelism_waits_for_two_all_reduces_per_layer_each_way() -> None:
    (form,) = communication_depth(Question(scheme="Tensor", blocks_only=True)).value.members
    p, alpha, beta = map(symbol, ("P_t", "alpha", "beta"))
    assert form == 8 * L * (p - 1) * (alpha + beta * B * m * d / p)


def test_a_pipeline_waits_for_every_boundary_on_the_way_there_and_back() -> None:
    found = communication_depth(Question(scheme="Pipeline")).value
    hop = symbol("alpha") + symbol("beta") * B * m * d
    assert 2 * (symbol("P_p") - 1) * hop in found.members


def test_the_steps_of_a_ring_are_visible_and_a_tree_has_fewer() -> None:
    ring, tree = (communication_depth(Question(scheme="Context"), a).value for a in ("ring", "tree"))
    assert all("alpha*P_c" in f.text.replace("P_c*alpha", "alpha*P_c") for f in ring.members)
    assert all("alpha*log(P_c)" in f.text for f in tree.members)


def ring_loop(trips: int) -> Graph:
    """A value passed to the next rank in every trip of a loop."""
    step, block = Axis("step", size("P_c") - trips), Tensor((Axis("k", size("d_h")),))
    inner = Builder("pass")
    x = inner.input("x", block)
    inner.append(Node("next", Permute("permute", "P_c"), (x,), (block,)))
    inner.output("x", Value("next"))
    build = Builder("ring")
    x = build.input("x", block)
    build.output("x", build.add(Repeat(inner.graph(), step, carried=1, stacked=0), x)[0])
    return build.graph()


class Permute(Collective):
    """To the next rank: the type stays."""

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        return operands


def test_a_loop_of_permutes_takes_a_step_per_trip() -> None:
    graph, p = ring_loop(1), symbol("P_c")
    hop = symbol("alpha") + symbol("beta") * symbol("d_h")
    assert as_max(depth(graph, CommunicationRule(PAPER))) == Max.of((p - 1) * hop)
    (item,) = items(graph, ("P_c",))
    assert item.total.amount == Max.of(p * (p - 1) * symbol("d_h"))
    assert item.steps.amount == Max.of(p - 1)


@pytest.mark.parametrize("name", SCHEMES)
def test_degrees_of_one_take_no_time(name: str) -> None:
    ones = degrees(SCHEMES[name], 1)
    assert communication_depth(Question(scheme=name, ffn=EXPERTS), sizes=EVEN | ones).value == Max.of(Form.constant(0))


@pytest.mark.parametrize("name", ["None", "Data", "Tensor", "Pipeline"])
def test_with_arithmetic_it_is_at_least_either_and_at_most_their_sum(name: str) -> None:
    values = EVEN | degrees(SCHEMES[name]) | TIMES
    q = Question(scheme=name, over_all_ranks=True)
    both = communication_depth(q, arithmetic=True, sizes=values).value.evaluate({})
    waiting = communication_depth(q, sizes=values).value.evaluate({})
    arithmetic = training_depth(q).value.evaluate(values)
    assert max(waiting, arithmetic) <= both <= waiting + arithmetic


def test_sizes_are_checked() -> None:
    with pytest.raises(GraphError, match="P_t=3 does not divide"):
        communication_depth(Question(scheme="Tensor"), sizes={"P_t": 3, "h": 4})
