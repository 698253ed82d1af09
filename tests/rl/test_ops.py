"""What the operations of the stages refuse, and what a graph made a part of another does."""

from __future__ import annotations

import numpy as np
import pytest
import sympy

from graphs.axes import Axis, Causal, Role, Tensor
from graphs.errors import GraphError
from graphs.execute import run
from graphs.ir import Builder, Graph, Op
from graphs.models.roles import VALUE, forward
from graphs.ops.excerpt import Excerpt, Insert
from graphs.ops.fold import Blocks, Fold, Unfold
from graphs.ops.pointwise import Pointwise
from graphs.schemes import Mapping, Scheme
from graphs.sizes import Sizes
from graphs.symbols import size
from graphs.transforms.inline import inline
from graphs.transforms.partition import partition
from tests.strategies import arrays_for

SIZES = Sizes.canonical()
B, S, C = (SIZES.axes()[n] for n in "bsc")
THREE, PAIR = Axis("i", sympy.Integer(3)), Axis("y", sympy.Integer(2))
PAIRS = Unfold(Blocks.of(B, PAIR))
CAUSAL = Tensor((S, S.renamed("t")), domain=(Causal("s", "t"),))


def single(op: Op, tensor: Tensor) -> Graph:
    build = Builder("g")
    build.output("y", build.add(op, build.input("x", tensor), name="here")[0])
    return build.graph()


@pytest.mark.parametrize(
    ("op", "length"),
    [
        (Excerpt("s", THREE, sympy.Integer(2)), 4),
        (Excerpt("s", THREE, sympy.Integer(-1)), 4),
        (Insert("s", THREE, sympy.Integer(1)), 3),
    ],
    ids=["window past the end", "window before the start", "too much to insert"],
)
def test_entries_that_are_not_there_are_refused_when_it_runs(op: Op, length: int) -> None:
    with pytest.raises(GraphError, match=r"has \d entries, so -?\d to \d are not within; change start or size"):
        run(single(op, Tensor((S,))), {"x": np.zeros(length)}, {"m": length})


def test_groups_of_a_size_that_does_not_divide_are_refused_when_it_runs() -> None:
    with pytest.raises(GraphError, match="axis 'b' has size B/2 = 3/2, not a whole number; change the sizes"):
        run(single(PAIRS, Tensor((B,))), {"x": np.zeros(3)}, {"B": 3})


@pytest.mark.parametrize(
    ("op", "tensor", "says"),
    [
        (Excerpt("s", THREE, sympy.Integer(0)), CAUSAL, "here in graph g: the entries along 's' are restricted"),
        (Insert("t", THREE, sympy.Integer(0)), CAUSAL, "here in graph g: the entries along 't' are restricted"),
        (Unfold(Blocks.of(S, PAIR)), CAUSAL, "here in graph g: a restriction speaks of s, which are seen otherwise"),
        (Fold(Blocks.joined(*CAUSAL.axes)), CAUSAL, "here in graph g: a restriction speaks of s and t, which are seen"),
        (Fold(Blocks.joined(B, C)), Tensor((B, S, C)), r"here in graph g: the operand over \(b, s, c\) has no b, c of"),
        (Excerpt("h", THREE, sympy.Integer(0)), Tensor((B, S)), "no axis 'h' in a tensor over"),
    ],
)
def test_operands_that_do_not_fit_are_refused(op: Op, tensor: Tensor, says: str) -> None:
    with pytest.raises(GraphError, match=says):
        single(op, tensor)


def test_members_of_a_group_stay_on_one_rank() -> None:
    """Groups may be cut over ranks, members only after they are told apart."""
    graph, data = single(PAIRS, Tensor((B,))), {"x": np.arange(8.0)}
    cut = partition(graph, Scheme("groups", (Mapping("b", "P_d"),), "test"))
    np.testing.assert_array_equal(run(cut, data, {"B": 8}, {"P_d": 4})["y"], np.arange(8).reshape(4, 2))
    late = partition(graph, Scheme("members", (Mapping("y", "P_d"),), "test"))
    assert not any(a.splits for a in late.by_name["here"].types[0].axes)
    np.testing.assert_array_equal(run(late, data, {"B": 8}, {"P_d": 2})["y"], np.arange(8).reshape(4, 2))


def test_a_group_that_ranks_would_share_is_refused_when_it_runs() -> None:
    graph = partition(single(PAIRS, Tensor((B,))), Scheme("groups", (Mapping("b", "P_d"),), "test"))
    with pytest.raises(GraphError, match="P_d=4 does not divide axis 'b' of size 2"):
        run(graph, {"x": np.zeros(4)}, {"B": 4}, {"P_d": 4})


def test_a_graph_made_a_part_twice_keeps_its_meaning_and_takes_other_names() -> None:
    part, build = single(Pointwise("square"), Tensor((B,))), Builder("whole")
    once = inline(build, part)["y"]
    build.output("y", inline(build, part, {"x": once})["y"])
    graph = build.graph()
    assert [n.name for n in graph.nodes] == ["here", "here.2"]
    np.testing.assert_array_equal(run(graph, {"x": np.array([2.0, 3])}, {"B": 2})["y"], [16, 81])


def test_a_model_made_a_part_is_the_model() -> None:
    whole, build = forward(SIZES, VALUE), Builder("whole")
    build.output("out", inline(build, whole)["out"])
    sizes = {"B": 2, "m": 3, "L": 2, "d": 4, "h": 2, "d_ff": 3, "V": 5}
    inputs = arrays_for(whole, sizes)
    assert build.graph().inputs == whole.inputs
    np.testing.assert_array_equal(run(build.graph(), inputs, sizes)["out"], run(whole, inputs, sizes)["out"])


def test_what_a_part_is_given_must_have_its_axes() -> None:
    build = Builder("whole")
    x = build.input("z", Tensor((Axis("b", size("K")),), Role.INPUT))
    with pytest.raises(GraphError, match="graph whole: what it gives to g as 'x' has other axes; relabel it"):
        inline(build, single(Pointwise("square"), Tensor((B,))), {"x": x})
