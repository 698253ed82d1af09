"""Depth of loops inside loops: what is in doubt inside is settled outside, or refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.costs.model import FULL, PAPER, CostModel
from derive.depth import DepthRule, arrivals, as_max, depth
from derive.forms import Form, Max
from derive.maxplus import START, Arrival, join
from graphs.axes import Axis, Role, Tensor
from graphs.errors import GraphError
from graphs.ir import Builder, Graph, Value
from graphs.ops.pointwise import Pointwise
from graphs.ops.repeat import Repeat
from graphs.symbols import size
from tests.derive.test_depth import REFUSALS, Unrolled, close, loop_sizes
from tests.strategies import FACTORS, HIDDEN, LAYER, VECTOR, C, Recipe, recipes

ROUND = Axis("round", size("E"))


def nested(recipe: Recipe) -> Graph:
    """The recipe's loop over layers, run E times; each round delays what it carries on its way in."""
    body = Builder("round")
    operands = []
    for i, late in enumerate(recipe.late):
        x = body.input(f"x{i}", VECTOR if i < recipe.carried else VECTOR.prepend(LAYER))
        for _ in range(late if i < recipe.carried else 0):
            (x,) = body.add(Pointwise("gelu"), x)
        operands.append(x)
    weights = [body.input(w, Tensor((C, hidden), Role.PARAMETER)) for w, hidden in HIDDEN.items()]
    inner = recipe.graph().by_name["loop"].op
    for i, value in enumerate(body.add(inner, *operands, *weights, name="inner")):
        body.output(f"out{i}", value)
    build = Builder("nested")
    values = [build.input(name, tensor) for name, tensor in body.inputs.items()]
    loop = Repeat(body.graph(), ROUND, recipe.carried, 0)
    for i, value in enumerate(build.add(loop, *values, name="outer")[: recipe.carried]):
        build.output(f"out{i}", value)
    return build.graph()


def agrees_or_is_refused(graph: Graph, sizes: Mapping[str, int], model: CostModel) -> bool:
    unrolled = Unrolled(graph, sizes, model)
    try:
        found = {name: as_max(depth(graph, DepthRule(model, FACTORS), [name])) for name in graph.outputs}
    except GraphError as error:
        if not any(reason in str(error) for reason in REFUSALS):
            raise
        return False
    for name, value in found.items():
        assert close(value.evaluate(sizes), unrolled.depth([name])), (name, value)
    return True


@pytest.mark.parametrize("model", [PAPER, FULL], ids=["paper", "full"])
@settings(max_examples=30)
@given(recipe=recipes(carried=(1, 3)), sizes=loop_sizes, rounds=st.integers(1, 4))
def test_a_random_loop_in_a_loop_agrees_with_its_unrolling_or_is_refused(
    model: CostModel, recipe: Recipe, sizes: dict[str, int], rounds: int
) -> None:
    agrees_or_is_refused(nested(recipe), sizes | {"E": rounds}, model)


def side_door(late: int) -> Graph:
    """x <- x + w and y <- y + x, E times in each of L rounds: w reaches y in the second iteration at the soonest.

    In every round x comes ``late`` steps later than w does.
    """
    inner = Builder("inner")
    x, y, w = (inner.input(n, VECTOR) for n in "xyw")
    inner.output("x", inner.add(Pointwise("add"), x, w)[0])
    inner.output("y", inner.add(Pointwise("add"), y, x)[0])
    body = Builder("outer")
    x, y, w = (body.input(n, VECTOR) for n in "xyw")
    for _ in range(late):
        (x,) = body.add(Pointwise("gelu"), x)
    for name, value in zip("xy", body.add(Repeat(inner.graph(), ROUND, 2, 0), x, y, w, name="inner"), strict=True):
        body.output(name, value)
    build = Builder("side door")
    values = [build.input(n, VECTOR) for n in "xyw"]
    build.output("y", build.add(Repeat(body.graph(), LAYER, 2, 0), *values, name="outer")[1])
    return build.graph()


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_a_path_in_doubt_inside_a_loop_is_harmless_where_another_comes_later_outside(layers: int, rounds: int) -> None:
    graph, sizes = side_door(late=3), {"L": layers, "E": rounds, "d": 2}
    outer = graph.by_name["outer"].op
    assert isinstance(outer, Repeat)
    inside = arrivals(outer.body, DepthRule(FULL), {Value("w"): START})[Value("inner", 1)]
    assert [bool(a.doubt) for a in inside] == [True]
    assert as_max(depth(graph, DepthRule(FULL))).evaluate(sizes) == Unrolled(graph, sizes, FULL).depth()


def test_what_is_in_doubt_never_displaces_what_is_not() -> None:
    sure, doubtful = Arrival(Form.constant(2)), Arrival(Form.constant(3), doubt="perhaps")
    assert join([sure, doubtful], ()) == (sure, doubtful)
    assert join([Arrival(Form.constant(4)), doubtful], ()) == (Arrival(Form.constant(4)),)
    assert join([doubtful, Arrival(Form.constant(5), doubt="hardly")], ()) == (
        Arrival(Form.constant(5), doubt="hardly"),
    )


def test_a_loop_of_no_iterations_hands_its_operands_on() -> None:
    build, body = Builder("none"), Builder("body")
    x, w = body.input("x", VECTOR), body.input("w", VECTOR)
    body.output("x", body.add(Pointwise("add"), x, w)[0])
    (late,) = build.add(Pointwise("gelu"), build.input("x", VECTOR))
    loop = Repeat(body.graph(), Axis("none", size("E") - size("E")), 1, 0)
    build.output("x", build.add(loop, late, build.input("w", VECTOR))[0])
    assert as_max(depth(build.graph(), DepthRule(FULL))) == Max.of(Form.constant(1))
