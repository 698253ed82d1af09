"""The derived backward pass against finite differences, for every rule and for whole models; and what it keeps."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import sympy

from graphs.axes import Axis, Causal, Role, Tensor, TopK
from graphs.blocks.decoder import DENSE, DISPATCHED, EXPERTS
from graphs.errors import GraphError
from graphs.execute import run
from graphs.ir import Array, Builder, Graph, Op, Value
from graphs.models.roles import ROLES, UNTIED, ModelRole, forward
from graphs.ops.collective import Collective
from graphs.ops.constant import Broadcast, Constant
from graphs.ops.contraction import Contraction
from graphs.ops.cross_entropy import CrossEntropy, OneHot
from graphs.ops.discount import Discount
from graphs.ops.dispatch import Dispatch
from graphs.ops.dropout import Dropout
from graphs.ops.excerpt import Excerpt, Insert
from graphs.ops.fill import Fill
from graphs.ops.fold import Blocks, Fold, Unfold
from graphs.ops.foreign import Foreign
from graphs.ops.groups import Groups
from graphs.ops.lookup import Lookup, Scatter
from graphs.ops.norm import LayerNorm
from graphs.ops.pointwise import FUNCTIONS, Pointwise
from graphs.ops.positions import Positions
from graphs.ops.reduction import Reduction
from graphs.ops.relabel import Relabel
from graphs.ops.repeat import Repeat
from graphs.ops.rms_norm import RMSNorm
from graphs.ops.roll import Roll
from graphs.ops.rotary import Rotary
from graphs.ops.route import Route
from graphs.ops.sample import Sample
from graphs.ops.scan import Scan
from graphs.ops.select import Pad, Select
from graphs.ops.sink_softmax import SinkSoftmax
from graphs.ops.slice import Slice, Stack
from graphs.ops.softmax import MaskedExp, Softmax
from graphs.ops.write import Write
from graphs.sizes import Sizes
from graphs.symbols import size
from graphs.transforms.backward import saved_values, training
from graphs.transforms.expand import expand_macros
from graphs.transforms.recompute import Recompute
from tests.graphs.test_execution import kinds
from tests.strategies import arrays_for

SIZES = Sizes.canonical()
FFNS = {"dense": DENSE, "experts": EXPERTS, "dispatched": DISPATCHED}
N = {"B": 2, "m": 3, "L": 2, "d": 4, "h": 2, "d_ff": 5, "V": 5, "E": 3, "E_a": 2, "d_e": 3}
STEP = 1e-5


def slope(graph: Graph, inputs: dict[str, Array], direction: dict[str, Array]) -> float:
    """Central difference of the loss along a direction in the parameters."""
    ends = [
        run(graph, {n: a + sign * STEP * direction[n] if n in direction else a for n, a in inputs.items()}, N)["loss"]
        for sign in (1, -1)
    ]
    return float((ends[0] - ends[1]) / (2 * STEP))


def check_gradients(graph: Graph, trained: Graph, seed: int = 0) -> dict[str, Array]:
    """Each parameter's gradient along a random direction of its own is the slope of the loss."""
    inputs, rng = arrays_for(graph, N, seed), np.random.default_rng(seed + 1)
    results = run(trained, inputs, N)
    gradients = {n.removeprefix("grad:"): a for n, a in results.items() if n.startswith("grad:")}
    assert gradients.keys() == dict(graph.parameters()).keys()
    for name, gradient in gradients.items():
        direction = rng.normal(size=gradient.shape)
        expected = slope(graph, inputs, {name: direction})
        np.testing.assert_allclose((gradient * direction).sum(), expected, rtol=1e-6, atol=1e-8, err_msg=name)
    return results


# -- models -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("role", [*ROLES.values(), UNTIED], ids=lambda role: role.name)
def test_gradients_of_a_model_are_the_slopes_of_its_loss(role: ModelRole, ffn: str) -> None:
    graph = forward(SIZES, role, FFNS[ffn], loss=True)
    check_gradients(graph, training(graph))


@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("role", ["policy", "reward", "value"])
def test_gradients_along_all_parameters_at_once_are_the_slope_of_the_loss(role: str, ffn: str) -> None:
    graph = forward(SIZES, ROLES[role], FFNS[ffn], loss=True)
    inputs, rng = arrays_for(graph, N, seed=5), np.random.default_rng(6)
    results = run(training(graph), inputs, N)
    direction = {name: rng.normal(size=inputs[name].shape) for name, _ in graph.parameters()}
    found = sum((results[f"grad:{name}"] * u).sum() for name, u in direction.items())
    np.testing.assert_allclose(found, slope(graph, inputs, direction), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("role", ["policy", "reward", "value"])
def test_computing_layers_again_gives_the_same_gradients_to_the_last_bit(role: str, ffn: str) -> None:
    graph = forward(SIZES, ROLES[role], FFNS[ffn], loss=True)
    inputs = arrays_for(graph, N)
    kept = run(training(graph), inputs, N)
    again = run(training(graph, recompute=Recompute.LAYER_BOUNDARY), inputs, N)
    assert kept.keys() == again.keys()
    for name, array in kept.items():
        np.testing.assert_array_equal(array, again[name], err_msg=name)


@pytest.mark.parametrize("ffn", FFNS)
def test_training_with_macros_expanded_gives_the_same_gradients(ffn: str) -> None:
    trained = training(forward(SIZES, ffn=FFNS[ffn], loss=True))
    inputs = arrays_for(trained, N)
    whole, parts = run(trained, inputs, N), run(expand_macros(trained), inputs, N)
    for name, array in whole.items():
        np.testing.assert_allclose(array, parts[name], rtol=1e-10, atol=1e-12, err_msg=name)


# -- rules ------------------------------------------------------------------------------------------------------------
def P(names: str) -> Tensor:
    return Tensor(tuple((SIZES.axes() | {"t": Axis("t", SIZES.m)})[n] for n in names.split()), Role.PARAMETER)


def index(names: str) -> Tensor:
    return P(names).with_role(Role.INDEX)


def causal_scores(build: Builder) -> Value:
    """A product of two parameters, restricted to causal pairs."""
    q, k = build.input("q", P("s c")), build.input("k", P("t c"))
    return build.add(Contraction(("s", "t"), (Causal("s", "t"),)), q, k)[0]


HEADS = Blocks(*(SIZES.axes()[n] for n in "chk"))
#: operation and the types of its operands (all parameters but for index data)
RULES: dict[str, tuple[Op, tuple[Tensor, ...]]] = {
    "contraction": (Contraction(("f", "s")), (P("s c"), P("c f"))),
    "contraction keeping an axis": (Contraction(("b", "s")), (P("b s c"), P("b s c"))),
    "contraction summing an axis of one operand alone": (Contraction(("f",)), (P("s c"), P("c f"))),
    "outer product": (Contraction(("s", "f")), (P("s"), P("f"))),
    "causal contraction": (Contraction(("s", "t"), (Causal("s", "t"),)), (P("s c"), P("t c"))),
    "sum": (Reduction("sum", ("c", "s")), (P("s c f"),)),
    "relabel": (Relabel("s", "t"), (P("s c"),)),
    "unfold": (Unfold(HEADS), (P("s c"),)),
    "fold": (Fold(HEADS), (P("s h k"),)),
    "roll": (Roll("s", 2), (P("s c"),)),
    "broadcast": (Broadcast((SIZES.axes()["s"], SIZES.axes()["c"])), (P("c"),)),
    "lookup": (Lookup("v"), (P("v c"), index("b s"))),
    "lookup in columns": (Lookup("v"), (P("c v"), index("s"))),
    "select": (Select("s"), (P("b s c"),)),
    "dispatch": (Dispatch("e"), (P("s c"), Tensor(P("s e").axes, Role.INPUT, (TopK("e", ("s",), size("E")),)))),
    "softmax": (Softmax("c"), (P("s c"),)),
    "norm": (LayerNorm("c"), (P("s c"), P("c"))),
    "dropout": (Dropout(Fraction(1, 3), "x"), (P("s c"), index(""))),
    "cross-entropy": (CrossEntropy("v"), (P("s v"), index("s"))),
    "masked exponential": (MaskedExp(), (P("s c"),)),
    "add": (Pointwise("add"), (P("s c"), P("c"))),
    "subtract": (Pointwise("subtract", size("h")), (P("c"), P("s c"))),
    "multiply": (Pointwise("multiply", sympy.Rational(1, 2)), (P("s c"), P("f c"))),
    "divide": (Pointwise("divide", size("h")), (P("s c"), P("c"))),
    "square": (Pointwise("square", sympy.Integer(3)), (P("s c"),)),
    "gelu": (Pointwise("gelu", 1 / sympy.sqrt(size("d"))), (P("s c"),)),
    "silu": (Pointwise("silu", size("h")), (P("s c"),)),
    "log_sigmoid": (Pointwise("log_sigmoid", size("h")), (P("s c"),)),
    "clamped_swish": (Pointwise("clamped_swish", size("h")), (P("s c"),)),
    "clamped_next": (Pointwise("clamped_next", size("h")), (P("s c"),)),
    "root mean square": (RMSNorm("c"), (P("s c"), P("c"))),
    "softmax with a sink": (SinkSoftmax("c"), (P("s f c"), P("f"))),
    "rotary positions": (Rotary("c", "s", 100.0), (P("s c"),)),
    "rotary positions, back": (Rotary("c", "s", 100.0, back=True), (P("s c"),)),
    "scale": (Pointwise("scale", size("d") / size("h")), (P("s c"),)),
    "exp": (Pointwise("exp", size("h")), (P("s c"),)),
    "minimum": (Pointwise("minimum", size("h")), (P("s c"), P("c"))),
    "maximum": (Pointwise("maximum"), (P("c"), P("s c"))),
    "window": (Excerpt("c", Axis("i", sympy.Integer(2)), sympy.Integer(1)), (P("s c"),)),
    "insert": (Insert("s", Axis("i", size("V")), sympy.Integer(2)), (P("s c"),)),
    "blocks that keep the name": (Unfold(Blocks.of(SIZES.axes()["c"], Axis("i", sympy.Integer(2)))), (P("s c"),)),
    "blocks joined under their name": (Fold(Blocks.joined(SIZES.axes()["s"], SIZES.axes()["c"])), (P("b s c"),)),
}


def with_loss(build: Builder, value: Value) -> Graph:
    """The loss is the sum of the value times a fixed random tensor, so that no gradient is the same everywhere."""
    weights = build.input("weights", build.type(value).with_role(Role.INPUT))
    (weighted,) = build.add(Pointwise("multiply"), value, weights)
    build.output("loss", build.add(Reduction("sum", build.type(value).names), weighted)[0])
    return build.graph()


@pytest.mark.parametrize("name", RULES)
def test_an_operations_rule_is_the_slope_of_its_meaning(name: str) -> None:
    op, operands = RULES[name]
    build = Builder(name)
    values = [build.input(f"x{i}", t) for i, t in enumerate(operands)]
    graph = with_loss(build, build.add(op, *values)[0])
    check_gradients(graph, training(graph))


@pytest.mark.parametrize("op", [Softmax("t"), MaskedExp()], ids=["softmax", "masked exponential"])
def test_the_rules_of_causal_operations_stay_inside_the_restriction(op: Op) -> None:
    build = Builder("causal")
    graph = with_loss(build, build.add(op, causal_scores(build))[0])
    check_gradients(graph, training(graph))


@pytest.mark.parametrize("dense", [False, True])
def test_the_gradient_of_a_routed_softmax_goes_to_the_kept_scores(dense: bool) -> None:
    build = Builder("routed")
    (kept,) = build.add(Route("r", size("E_a"), dense), build.input("scores", P("s r")))
    graph = with_loss(build, build.add(Softmax("r"), kept)[0])
    gradient = check_gradients(graph, training(graph))["grad:scores"]
    assert ((gradient != 0).sum(axis=1) == N["E_a"]).all()


def test_nothing_flows_back_to_the_scores_that_others_are_chosen_by() -> None:
    build = Builder("chosen by others")
    (choice,) = build.add(Groups("c", 2, 1), build.input("choice", P("s c").with_role(Role.FROZEN)))
    (kept,) = build.add(Route("c", size("E_a")), build.input("scores", P("s c")), choice)
    graph = with_loss(build, build.add(Softmax("c"), kept)[0])
    gradient = check_gradients(graph, training(graph))["grad:scores"]
    assert ((gradient != 0).sum(axis=1) == N["E_a"]).all()


def test_a_value_used_twice_gets_the_sum_of_both_gradients() -> None:
    build = Builder("twice")
    x = build.input("x", P("s c"))
    (square,) = build.add(Pointwise("multiply"), x, x)
    graph = with_loss(build, build.add(Contraction(("s",)), square, x)[0])
    check_gradients(graph, training(graph))


def test_a_tied_table_gets_gradients_from_both_of_its_uses() -> None:
    """The embedding is looked up and is the unembedding: check_gradients would miss neither."""
    trained = training(forward(SIZES, loss=True))
    (add,) = (n for n in trained.nodes if Value(n.name) == trained.outputs["grad:W_e"])
    kinds_added = {trained.by_name[v.node].op.kind for v in add.operands}
    assert (add.op.kind, kinds_added) == ("pointwise", {"contraction", "scatter"})


#: kinds whose rule is tested in a model or above, and kinds that carry no gradient
TESTED_ELSEWHERE = {Fill, Repeat, Route}
NO_GRADIENT = {Constant, Discount, Groups, OneHot, Positions, Sample}
GENERATION = "generation is not differentiated; train on a forward pass over its tokens"
REFUSING = {
    Scatter: "scatter occurs in backward graphs only and is not differentiated again",
    Pad: "pad occurs in backward graphs only and is not differentiated again",
    Collective: "partition the training graph instead of differentiating a partitioned one",
    Foreign: "erf has no backward rule here; import the joint graph instead",
    Slice: "differentiate the loop first and unroll the training graph",
    Stack: "differentiate the loop first and unroll the training graph",
    Write: GENERATION,
    Scan: GENERATION,
}


def test_every_kind_of_operation_has_a_rule_tested_or_a_reason_for_none() -> None:
    tested = {type(op) for op, _ in RULES.values()}
    assert kinds() == tested | TESTED_ELSEWHERE | NO_GRADIENT | set(REFUSING)


REFUSED: dict[str, tuple[Op, tuple[Tensor, ...], str]] = {
    "scatter": (Scatter(P("v c").axes), (P("s c"), index("s")), REFUSING[Scatter]),
    "pad": (Pad(SIZES.axes()["s"], 0), (P("c"),), REFUSING[Pad]),
    "foreign": (Foreign("erf", "pointwise", (P("c"),)), (P("c"),), REFUSING[Foreign]),
    "slice": (Slice("s", 0), (P("s c"),), REFUSING[Slice]),
    "stack": (Stack(SIZES.axes()["layer"]), (P("c"), P("c")), REFUSING[Stack]),
    "collective": (Collective("all_reduce", "P_t"), (P("c"),), REFUSING[Collective]),
    "write": (Write("t", "s", sympy.Integer(0)), (P("t c"), P("s c")), GENERATION),
    "maximum": (
        Reduction("max", ("c",)),
        (P("s c"),),
        "a maximum has no backward rule of its own; use the softmax macro",
    ),
    **{
        fn: (
            Pointwise(fn),
            (P("c"),) * FUNCTIONS[fn][0],
            f"no backward rule for pointwise '{fn}'; add one beside its meaning",
        )
        for fn in (
            "log",
            "rsqrt",
            "gelu_grad",
            "silu_grad",
            "log_sigmoid_grad",
            "keep_finite",
            "at_most",
            "where_less_grad",
        )
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_operation_without_a_backward_rule_says_so(name: str) -> None:
    op, operands, sentence = REFUSED[name]
    build = Builder("g")
    values = [build.input(f"x{i}", t) for i, t in enumerate(operands)]
    graph = with_loss(build, build.add(op, *values, name="here")[0])
    with pytest.raises(GraphError) as caught:
        training(graph)
    assert str(caught.value) == f"here: {sentence}"


# -- what is kept -----------------------------------------------------------------------------------------------------
def kept_by_the_loop(recompute: Recompute) -> list[str]:
    trained = training(forward(SIZES, loss=True), recompute=recompute)
    (loop,) = (n for n in trained.nodes if n.name == "blocks")
    assert isinstance(loop.op, Repeat)
    names = list(loop.op.body.outputs)
    return sorted(names[v.index] for v in saved_values(trained) if v.node == "blocks" and v.index >= loop.op.carried)


def test_a_layer_keeps_what_its_backward_reads_and_nothing_else() -> None:
    assert kept_by_the_loop(Recompute.NONE) == sorted(
        f"saved:{name}"
        for name in (
            "x[0]", "norm_1[0]", "norm_1[1]", "norm_1[2]", "query[0]", "key.positions[0]", "value.positions[0]",
            "probabilities[0]", "mix[0]", "residual_1[0]", "norm_2[0]", "norm_2[1]", "norm_2[2]", "ffn_up[0]",
            "gelu[0]",
        )
    )  # fmt: skip


def test_recomputation_at_the_layer_boundary_keeps_a_layers_input_alone() -> None:
    assert kept_by_the_loop(Recompute.LAYER_BOUNDARY) == ["saved:x[0]"]


@pytest.mark.parametrize("recompute", Recompute)
def test_phases_follow_each_other_and_no_forward_occurrence_reads_a_backward_one(recompute: Recompute) -> None:
    trained = training(forward(SIZES, loss=True), recompute=recompute)
    phases = [n.phase for n in trained.nodes]
    assert phases == sorted(phases, key=["forward", "recompute", "backward"].index)
    for node in trained.nodes:
        if node.phase == "forward":
            sources = [trained.by_name[v.node].phase for v in node.operands if v.node in trained.by_name]
            assert set(sources) <= {"forward"}
