"""What a graph may not be: each law has one clear sentence that names the place and the mend."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest
import sympy

from graphs.axes import Axis, Causal, Role, Tensor, TopK, restrictions_on
from graphs.errors import GraphError
from graphs.ir import INVARIANTS, Builder, Graph, Node, Op, Value
from graphs.ops.contraction import Contraction
from graphs.ops.cross_entropy import CrossEntropy
from graphs.ops.lookup import Lookup
from graphs.ops.norm import LayerNorm
from graphs.ops.pointwise import Pointwise
from graphs.ops.reduction import Reduction
from graphs.ops.relabel import Relabel
from graphs.ops.repeat import Repeat
from graphs.sizes import Sizes
from graphs.symbols import size
from graphs.transforms.backward import training
from graphs.transforms.expand import expand_macros

SIZES = Sizes.canonical()
T = SIZES.tensor
ADD = Pointwise("add")


def says(sentence: str) -> pytest.RaisesExc[GraphError]:
    """The whole message, word for word."""
    return pytest.raises(GraphError, match=f"^{re.escape(sentence)}$")


def node(name: str, *operands: str) -> Node:
    return Node(name, ADD, tuple(Value(o) for o in operands), (T("b"),))


def graph(*nodes: Node, inputs: tuple[str, ...] = ("x",), **outputs: str) -> Graph:
    return Graph("g", {n: T("b") for n in inputs}, nodes, {k: Value(v) for k, v in outputs.items()})


# -- graphs -----------------------------------------------------------------------------------------------------------
def test_two_occurrences_of_one_name_are_refused() -> None:
    with says("graph g: two occurrences are called 'a'; rename one"):
        graph(node("a", "x", "x"), node("a", "x", "x"))


def test_an_occurrence_may_not_take_the_name_of_an_input() -> None:
    with says("graph g: two occurrences are called 'x'; rename one"):
        graph(node("x", "x", "x"))


def test_a_cycle_is_refused_and_spelled_out() -> None:
    with pytest.raises(GraphError, match=r"^graph g has a cycle \((a -> b|b -> a)\); cut one of these edges$"):
        graph(node("a", "x", "b"), node("b", "x", "a"))


def test_an_occurrence_before_what_it_reads_is_refused() -> None:
    with says("graph g: b comes before a value it reads; order the occurrences"):
        graph(node("b", "x", "a"), node("a", "x", "x"))


def test_a_value_that_nothing_produces_is_refused_for_occurrences_and_for_outputs() -> None:
    with says("graph g: a reads y[0], which nothing produces"):
        graph(node("a", "x", "y"))
    with says("graph g: output 'out' reads y[0], which nothing produces"):
        graph(node("a", "x", "x"), out="y")


def test_a_result_that_an_occurrence_does_not_have_is_refused() -> None:
    with says("graph g: b reads a[1], which nothing produces"):
        graph(node("a", "x", "x"), Node("b", ADD, (Value("a"), Value("a", 1)), (T("b"),)))


def test_declared_types_must_follow_from_the_operands() -> None:
    with says("graph g: a declares types its operands do not give"):
        graph(Node("a", ADD, (Value("x"), Value("x")), (T("s"),)))


def test_every_law_is_run_on_every_graph() -> None:
    broken = {
        "names_are_unique": (node("a", "x", "x"), node("a", "x", "x")),
        "operands_are_known": (node("a", "x", "y"),),
        "graph_is_acyclic": (node("b", "x", "a"), node("a", "x", "x")),
        "types_follow_from_operands": (Node("a", ADD, (Value("x"), Value("x")), (T("s"),)),),
    }
    assert {law.__name__ for law in INVARIANTS} == broken.keys()
    for nodes in broken.values():
        with pytest.raises(GraphError):
            graph(*nodes)


def test_an_input_declared_twice_is_refused() -> None:
    build = Builder("g")
    build.input("x", T("b"))
    with says("graph g: input 'x' is declared twice"):
        build.input("x", T("b"))


def test_names_taken_are_numbered() -> None:
    build = Builder("g")
    x = build.input("add", T("b"))
    names = [build.add(ADD, x, x)[0].node for _ in range(2)] + [build.add(ADD, x, x, name="add.2")[0].node]
    assert len({"add", *names}) == 4


# -- operations -------------------------------------------------------------------------------------------------------
REFUSED: dict[str, tuple[Op, tuple[Tensor, ...], str]] = {
    "contraction over an axis that neither operand has": (
        Contraction(("b", "f")),
        (T("b c"), T("c h")),
        "contraction asks for axis 'f', which neither operand has (b, c and c, h); name one of theirs",
    ),
    "mismatched extents": (
        Contraction(("b",)),
        (T("b c"), Tensor((Axis("c", size("d_ff")),))),
        "axis 'c' is d_ff in one operand, d in another; relabel or gather it",
    ),
    "mismatched extents of a sum": (
        ADD,
        (T("b c"), Tensor((Axis("c", size("d_ff")),))),
        "axis 'c' is d_ff in one operand, d in another; relabel or gather it",
    ),
    "unknown axis": (Reduction("sum", ("f",)), (T("b c"),), "no axis 'f' in a tensor over (b, c)"),
    "unknown reduction": (Reduction("mean", ("c",)), (T("b c"),), "unknown reduction 'mean'; use sum or max"),
    "unknown function": (
        Pointwise("sine"),
        (T("b"),),
        "unknown pointwise function 'sine'; add it to graphs/ops/pointwise.py",
    ),
    "too few operands": (ADD, (T("b"),), "add takes 2 operands, not 1"),
    "relabel to an axis at hand": (
        Relabel("b", "c"),
        (T("b c"),),
        "relabel b -> c: the operand already has 'c'; choose another name",
    ),
    "lookup by data": (
        Lookup("v"),
        (T("v c"), T("b s")),
        "lookup needs index data as its second operand; give ids the role INDEX",
    ),
    "gain over other axes": (
        LayerNorm("c"),
        (T("b c"), T("b c")),
        "norm over 'c' needs a gain over that axis alone, not (b, c)",
    ),
    "targets of another shape": (
        CrossEntropy("v"),
        (T("b v"), T("s", Role.INDEX)),
        "cross-entropy needs one target id (role INDEX) for each setting of the other axes",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_operands_that_do_not_fit_are_refused_with_the_place(case: str) -> None:
    op, operands, sentence = REFUSED[case]
    build = Builder("g")
    values = [build.input(f"x{i}", t) for i, t in enumerate(operands)]
    with says(f"here in graph g: {sentence}"):
        build.add(op, *values, name="here")


def test_a_primitive_has_no_expansion() -> None:
    with says("pointwise is a primitive and has no expansion"):
        ADD.expand(Builder("g"), ())


def loop(carried_axes: str, result_axes: str, count: int = 1) -> None:
    body = Builder("body")
    for i in range(count):
        body.input(f"x{i}", T(carried_axes))
    body.output("x", body.input("y", T(result_axes)))
    build = Builder("g")
    operands = [build.input("a", T("b")), build.input("z", T(result_axes))]
    build.add(Repeat(body.graph(), SIZES.axes()["layer"], carried=1, stacked=0), *operands, name="loop")


def test_a_loop_needs_one_value_for_each_input_of_its_body() -> None:
    with says("loop in graph g: the loop body takes 3 values, not 2"):
        loop("b", "b", count=2)


def test_a_loop_needs_values_over_the_axes_its_body_wants() -> None:
    with says("loop in graph g: loop input 'x0' does not have the axes its body wants"):
        loop("s", "b")


def test_a_carried_value_must_keep_its_axes() -> None:
    with says("loop in graph g: the carried value 'x0' changes its axes in the loop body; relabel it back"):
        loop("b", "b s")


def test_a_loss_that_is_no_scalar_is_refused() -> None:
    with says("graph g: output 'loss' is not a scalar; sum it first"):
        training(graph(node("a", "x", "x"), loss="a"))


# -- restrictions and types -------------------------------------------------------------------------------------------
def test_restrictions_follow_the_axes_they_speak_of() -> None:
    causal, routed = Causal("s", "t"), TopK("e", ("b", "s"), size("E_a"))
    x = Tensor((*T("b s e").axes, Axis("t", SIZES.m)), domain=(causal, routed))
    assert x.without("t").domain == (routed,)
    assert x.without("s").domain == ()
    assert causal.renamed("s", "q") == Causal("q", "t")
    assert routed.renamed("s", "q") == TopK("e", ("b", "q"), size("E_a"))
    assert routed.renamed("e", "x") == TopK("x", ("b", "s"), size("E_a"))
    assert restrictions_on(frozenset("bset"), (causal,), (routed, causal)) == (causal, routed)
    assert restrictions_on(frozenset("st"), (causal,), (routed,)) == (causal,)


def test_scores_are_causal_and_so_is_what_is_made_of_them() -> None:
    build = Builder("g")
    q = build.input("q", T("b s k"))
    (k,) = build.add(Relabel("s", "t"), q)
    (scores,) = build.add(Contraction(("b", "s", "t"), (Causal("s", "t"),)), q, k)
    (scaled,) = build.add(Pointwise("scale", sympy.Rational(1, 2)), scores)
    (mixed,) = build.add(Contraction(("b", "s", "k")), scaled, k)
    assert build.type(scaled).domain == (Causal("s", "t"),)
    assert build.type(mixed).domain == ()


@dataclass(frozen=True)
class _Left(Pointwise):
    """Equal in its attributes to another kind."""


def test_equal_attributes_make_equal_operations_of_one_kind_and_occurrences_differ() -> None:
    assert Contraction(("b",)) == Contraction(("b",))
    assert hash(Contraction(("b",))) == hash(Contraction(("b",)))
    assert _Left("add") != ADD
    first, second = node("a", "x", "x"), node("b", "x", "x")
    assert first.op == second.op
    assert first != second


def test_expanding_macros_leaves_no_macro_and_keeps_inputs_and_outputs() -> None:
    build = Builder("g")
    x = build.input("x", T("b c"))
    gain = build.input("gain", T("c", Role.PARAMETER))
    y, mean, _ = build.add(LayerNorm("c"), x, gain, name="norm")
    build.output("y", y)
    build.output("mean", mean)
    before = build.graph()
    after = expand_macros(before)
    assert after.inputs == before.inputs
    assert list(after.outputs) == ["y", "mean"]
    assert {n.op.kind for n in after.nodes} == {"pointwise", "reduction"}
    assert after.type(after.outputs["y"]).axes == before.type(before.outputs["y"]).axes
    assert expand_macros(after).nodes == after.nodes


def test_a_graph_is_a_networkx_graph_from_producers_to_consumers() -> None:
    g = graph(node("a", "x", "x"), node("b", "a", "x"), out="b")
    assert set(g.network.edges) == {("x", "a"), ("a", "b"), ("x", "b")}


def test_a_size_that_is_not_registered_is_an_error_that_names_it() -> None:
    with pytest.raises(KeyError, match=r"unknown size 'd_f': register it in graphs/symbols\.py"):
        size("d_f")
    assert size("d_ff_pi") is size("d_ff_pi")
    assert replace(SIZES, d=size("d")) == SIZES
