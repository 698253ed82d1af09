"""Cost rules against the scalar expansion of each operation (tests/oracle.py), and what the two cost models share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.costs import rule as registry
from derive.costs.model import FULL, PAPER, CostModel
from derive.costs.rule import RULES, Cost, cost, load_rules, rule
from derive.forms import Form, Log, log2, symbol, total
from derive.work import work_terms
from graphs.axes import Axis, Causal, Prefix, Restriction, Role, Split, Tensor, TopK
from graphs.blocks.decoder import DENSE, DISPATCHED, EXPERTS, FeedForward
from graphs.errors import GraphError
from graphs.ir import Builder, Graph, Node, Op, Value
from graphs.models.roles import ROLES, forward
from graphs.ops.collective import Collective
from graphs.ops.contraction import Contraction
from graphs.ops.cross_entropy import CrossEntropy
from graphs.ops.discount import Discount
from graphs.ops.dropout import Dropout
from graphs.ops.excerpt import Excerpt, Insert
from graphs.ops.fill import Fill
from graphs.ops.fold import Blocks, Fold, Unfold
from graphs.ops.foreign import Foreign
from graphs.ops.groups import Groups
from graphs.ops.lookup import Scatter
from graphs.ops.norm import LayerNorm
from graphs.ops.pointwise import Pointwise
from graphs.ops.positions import Positions
from graphs.ops.reduction import Reduction
from graphs.ops.repeat import Repeat
from graphs.ops.rms_norm import RMSNorm
from graphs.ops.roll import Roll
from graphs.ops.rotary import Rotary
from graphs.ops.route import Route
from graphs.ops.sample import Sample
from graphs.ops.sink_softmax import SinkSoftmax
from graphs.ops.slice import Slice, Stack
from graphs.ops.softmax import Softmax
from graphs.ops.write import Write
from graphs.sizes import Sizes
from graphs.symbols import size
from graphs.transforms.backward import training
from graphs.transforms.expand import expand_macros
from graphs.transforms.recompute import Recompute
from tests.oracle import balanced, expand_graph, expand_node, skewed
from tests.strategies import model_sizes

SIZES = Sizes.canonical()
FFNS = {"dense": DENSE, "experts": EXPERTS, "dispatched": DISPATCHED}
#: extents at powers of two and just beside them
EDGES = (1, 2, 3, 4, 5, 7, 8, 9)
CAUSAL, ROUTED = Causal("s", "t"), TopK("e", ("b", "s"), SIZES.E_a)
HELD = Prefix("t", SIZES.E_a)
#: the axes of one new position of a cache
ONE_MORE = (Axis("s", sympy.Integer(1)), SIZES.axes()["c"])


@cache
def training_graph(role: str, ffn: str, recompute: Recompute = Recompute.NONE) -> Graph:
    graph = forward(SIZES, ROLES[role], FFNS[ffn], loss=True)
    return expand_macros(training(graph, recompute=recompute))


def occurrences(graph: Graph) -> Iterator[tuple[Graph, Node]]:
    """Every occurrence that is not a loop, in loop bodies too."""
    for node in graph.nodes:
        if isinstance(node.op, Repeat):
            yield from occurrences(node.op.body)
        else:
            yield graph, node


@cache
def distinct_occurrences() -> tuple[tuple[Graph, Node], ...]:
    """One occurrence for each different operation on operands of different types, over all roles and layers."""
    found: dict[object, tuple[Graph, Node]] = {}
    for role in ROLES:
        for ffn in FFNS:
            for graph, node in occurrences(training_graph(role, ffn)):
                found.setdefault((node.op, tuple(graph.type(v) for v in node.operands)), (graph, node))
    return tuple(found.values())


def tensor(names: str, *domain: Restriction, role: Role = Role.ACTIVATION) -> Tensor:
    axes = SIZES.axes() | {"t": Axis("t", SIZES.m), "c2": Axis("c2", SIZES.d), "pair": Axis("pair", 2 * SIZES.d)}
    return Tensor(tuple(axes[n] for n in names.split()), role, domain)


def single(op: Op, *operands: Tensor) -> tuple[Graph, Node]:
    build = Builder("single")
    values = [build.input(f"x{i}", t) for i, t in enumerate(operands)]
    build.output("y", build.add(op, *values, name="op")[0])
    graph = build.graph()
    return graph, graph.nodes[0]


def full(graph: Graph, node: Node, sizes: Mapping[str, int]) -> tuple[int | Fraction, ...]:
    found = cost(graph, node, FULL)
    return found.work.evaluate(sizes), found.depth.evaluate(sizes)


def counted(graph: Graph, node: Node, sizes: Mapping[str, int]) -> tuple[int | Fraction, ...]:
    """Scalar operations when experts are used evenly, and the longest path when all tokens use the same ones."""
    even = expand_node(graph, node, sizes, balanced)
    routed = any(isinstance(r, TopK) for t in (*node.types, *(graph.type(v) for v in node.operands)) for r in t.domain)
    return even.work, (expand_node(graph, node, sizes, skewed) if routed else even).depth


HEADS = Blocks(*(SIZES.axes()[n] for n in "chk"))
CASES: dict[str, tuple[Graph, Node]] = {
    "matrix product": single(Contraction(("b", "f")), tensor("b c"), tensor("c f")),
    "dot product": single(Contraction(()), tensor("c"), tensor("c")),
    "outer product": single(Contraction(("b", "c")), tensor("b"), tensor("c")),
    "batched product over two axes": single(Contraction(("b",)), tensor("b c f"), tensor("b c f")),
    "product with an axis summed out of one operand alone": single(Contraction(("b",)), tensor("b c f"), tensor("c")),
    "causal scores": single(Contraction(("b", "s", "t"), (CAUSAL,)), tensor("b s c"), tensor("b t c")),
    "causal mixing, longest row m": single(Contraction(("s", "c")), tensor("s t", CAUSAL), tensor("t c")),
    "causal columns, longest column m": single(Contraction(("t", "c")), tensor("s t", CAUSAL), tensor("s c")),
    "sum over all causal pairs": single(Reduction("sum", ("s", "t")), tensor("b s t", CAUSAL)),
    "product over all causal pairs": single(Contraction(("c",)), tensor("s t", CAUSAL), tensor("s c")),
    "product with all causal pairs summed": single(Contraction(()), tensor("s t", CAUSAL), tensor("s t", CAUSAL)),
    "maximum of causal rows": single(Reduction("max", ("t",)), tensor("b s t", CAUSAL)),
    "pointwise on causal pairs": single(Pointwise("multiply"), tensor("s t", CAUSAL), tensor("s")),
    "experts' up projection": single(Contraction(("b", "s", "e", "g"), (ROUTED,)), tensor("b s c"), tensor("e c g")),
    "experts' down projection": single(Contraction(("b", "s", "e", "c")), tensor("b s e g", ROUTED), tensor("e g c")),
    "combination over active experts": single(
        Contraction(("b", "s", "c")), tensor("b s e", ROUTED), tensor("b s e c", ROUTED)
    ),
    "gradient of an expert's weights": single(Contraction(("e", "c", "g")), tensor("b s c"), tensor("b s e g", ROUTED)),
    "sum over active experts and channels": single(Reduction("sum", ("e", "g")), tensor("b s e g", ROUTED)),
    "routed and causal at once": single(Pointwise("multiply"), tensor("b s e", ROUTED), tensor("b s t", CAUSAL)),
    "scale by a factor": single(Pointwise("scale", size("h")), tensor("b c")),
    "function and factor": single(Pointwise("square", sympy.Integer(2)), tensor("b c")),
    "broadcasting sum": single(Pointwise("add"), tensor("b"), tensor("c")),
    "heads of channels": single(Unfold(HEADS), tensor("b c")),
    "channels of heads": single(Fold(HEADS), tensor("b h k")),
    "entries that move on": single(Roll("b"), tensor("b c")),
    "positions": single(Positions(SIZES.axes()["b"])),
    "last entries": single(Excerpt("b", Axis("b", SIZES.E_a), SIZES.B - SIZES.E_a), tensor("b c")),
    "one entry": single(Slice("b", 1), tensor("b c")),
    "stacked entries": single(Stack(SIZES.axes()["b"]), tensor("c"), tensor("c")),
    "rotated channels": single(Rotary("pair", "s", 100.0), tensor("b s pair")),
    "routed scores written out": single(Fill("e"), tensor("b s e", ROUTED)),
    "scores of what a cache holds": single(Contraction(("b", "t")), tensor("b c"), tensor("b t c", HELD)),
    "mixing of what a cache holds": single(Contraction(("b", "c")), tensor("b t", HELD), tensor("b t c", HELD)),
    "maximum of what a cache holds": single(Reduction("max", ("t",)), tensor("b t", HELD)),
    "pointwise on what a cache holds": single(Pointwise("exp"), tensor("b t", HELD)),
    "writing a cache": single(Write("t", "s", SIZES.E_a), tensor("b t c", HELD), Tensor(tensor("b").axes + ONE_MORE)),
    "window": single(Excerpt("c", Axis("i", SIZES.E_a), sympy.Integer(0)), tensor("b c")),
    "insert": single(Insert("b", SIZES.axes()["c"].renamed("i"), SIZES.d - 2), tensor("b v")),
    "blocks that keep the name": single(Unfold(Blocks.of(SIZES.axes()["c"], Axis("i", SIZES.d))), tensor("b c")),
    "blocks joined": single(Fold(Blocks.joined(SIZES.axes()["b"], SIZES.axes()["c"])), tensor("b c")),
    "triangle of discounts": single(Discount(SIZES.axes()["s"], Axis("t", SIZES.m), SIZES.h)),
    "smaller of two": single(Pointwise("minimum", size("h")), tensor("b c"), tensor("c")),
    "greedy choice": single(Sample("c"), tensor("b c")),
    "draw": single(Sample("c"), tensor("b c"), tensor("b")),
    "top-k": single(Route("e", SIZES.E_a), tensor("b s e")),
    "top-k by other scores": single(Route("e", SIZES.E_a), tensor("b s e"), tensor("b s e")),
    "best of three groups": single(Groups("w", 3, 2), Tensor((*tensor("b s").axes, Axis("w", 6 * SIZES.d)))),
    "best group, inside": single(Groups("w", 2, 1), Tensor((Axis("w", 4 * SIZES.d), *tensor("b").axes))),
    "dropout of causal pairs": single(Dropout(Fraction(1, 3), "x"), tensor("s t", CAUSAL), tensor("", role=Role.INDEX)),
    "scatter, all ids equal": single(Scatter(tensor("v c").axes), tensor("b s c"), tensor("b s", role=Role.INDEX)),
}


@pytest.mark.parametrize("name", CASES)
def test_exact_cost_is_the_scalar_expansion_at_powers_of_two_and_beside_them(name: str) -> None:
    graph, node = CASES[name]
    for k in EDGES:
        sizes = {"B": 2, "m": k, "d": k, "d_ff": 3, "V": 3, "h": 1, "E": max(k // 2, 1), "E_a": (k + 3) // 4, "d_e": 3}
        assert full(graph, node, sizes) == counted(graph, node, sizes), sizes


@settings(max_examples=12)
@given(sizes=model_sizes(largest=4))
def test_exact_cost_of_every_occurrence_in_every_training_graph_is_its_scalar_expansion(sizes: dict[str, int]) -> None:
    for graph, node in distinct_occurrences():
        assert full(graph, node, sizes) == counted(graph, node, sizes), (node.name, node.op)


def test_two_restrictions_that_count_one_axis_are_refused() -> None:
    """Each query keeps some of the keys it may see: how many, nobody has said."""
    chosen_keys = TopK("t", ("b", "s"), SIZES.E_a)
    graph, node = single(Pointwise("exp"), tensor("b s t", CAUSAL, chosen_keys))
    with pytest.raises(GraphError, match=r"^two restrictions count the axis 't'; keep one of them$"):
        cost(graph, node, FULL)


def test_the_training_graphs_and_cases_reach_every_kind_of_operation_that_does_arithmetic() -> None:
    load_rules()
    reached = {type(n.op) for _, n in (*distinct_occurrences(), *CASES.values())}
    macros = {Softmax, SinkSoftmax, LayerNorm, RMSNorm, CrossEntropy}
    partitioned_or_imported_alone = {Collective, Foreign}
    assert set(RULES) - macros - reached == partitioned_or_imported_alone


def test_imported_operations_are_free_beside_contractions_and_refused_where_everything_counts() -> None:
    graph, node = single(Foreign("erf", "pointwise", (tensor("b s"),)), tensor("b s"))
    assert cost(graph, node, PAPER) == Cost()
    with pytest.raises(GraphError, match="of an imported graph contractions alone are counted; use the paper's model"):
        cost(graph, node, FULL)


@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("role", ["policy", "reward"])
def test_work_of_a_whole_graph_is_its_scalar_expansion_with_loops_unrolled(role: str, ffn: str) -> None:
    sizes = {"B": 2, "m": 3, "L": 2, "d": 2, "h": 2, "d_ff": 3, "V": 3, "E": 2, "E_a": 1, "d_e": 2}
    graph = training_graph(role, ffn)
    ids = graph.inputs["ids"].axes
    assert [a.name for a in ids] == ["b", "s"]
    derived = total(t.amount for t in work_terms(graph, FULL)).evaluate(sizes)
    assert derived == expand_graph(graph, sizes, balanced).work


@pytest.mark.parametrize(
    ("macro", "operands"),
    [
        (Softmax("t"), (tensor("b s t", CAUSAL),)),
        (Softmax("e"), (tensor("b s e", ROUTED),)),
        (LayerNorm("c"), (tensor("b c"), tensor("c"))),
        (CrossEntropy("v"), (tensor("b v"), tensor("b", role=Role.INDEX))),
    ],
    ids=["causal softmax", "softmax over kept scores", "norm", "cross-entropy"],
)
def test_macros_cost_what_their_primitives_cost(macro: Op, operands: tuple[Tensor, ...]) -> None:
    graph, node = single(macro, *operands)
    with pytest.raises(GraphError, match="op: expand macros before counting every operation"):
        cost(graph, node, FULL)
    sizes = {"B": 2, "m": 5, "d": 3, "V": 4, "E": 4, "E_a": 2}
    expanded = expand_macros(graph)
    derived = total(t.amount for t in work_terms(expanded, FULL)).evaluate(sizes)
    assert derived == expand_graph(expanded, sizes).work
    assert cost(graph, node, PAPER) == Cost()


# -- from the exact model to the paper's ------------------------------------------------------------------------------
def drop_ceilings(form: Form) -> Form:
    """ceil(log2 k) -> log2 k."""
    parts = []
    for monomial, c in form.terms.items():
        part = Form.constant(c)
        for atom, power in monomial:
            ceiling = isinstance(atom, Log) and atom.ceil
            part = part * (log2(atom.arg) if ceiling and isinstance(atom, Log) else Form.atom(atom)) ** power
        parts.append(part)
    return total(parts)


def highest_in(form: Form, name: str) -> Form:
    """m(m+1)/2 -> m^2/2: the terms of highest degree in one size."""
    degree = {monomial: dict(monomial).get(name, 0) for monomial in form.terms}
    return Form({m: c for m, c in form.terms.items() if degree[m] == max(degree.values())})


def results_of(node: Node) -> Form:
    """One addition fewer than products for each result: what 2k has and 2k-1 has not."""
    out = Form.constant(1)
    (result,) = node.types
    restricted = {n for r in result.domain for n in (r.axes if isinstance(r, Causal) else {getattr(r, "axis", "")})}
    for r in result.domain:
        out = out * (symbol("m") * (symbol("m") + 1) / 2 if isinstance(r, Causal) else symbol("E_a"))
    for axis in result.axes:
        if axis.name not in restricted:
            out = out * (symbol("d") / symbol("h") if axis.name == "k" else symbol(axis.size.name))
    return out


def project(graph: Graph, node: Node, exact: Cost) -> Cost:
    """What the paper's conventions keep of an exact cost."""
    accumulates = node.types[0].role is Role.PARAMETER_GRADIENT
    if not isinstance(node.op, Contraction):
        keeps_depth = isinstance(node.op, Scatter) or (isinstance(node.op, Reduction) and accumulates)
        return Cost(depth=drop_ceilings(exact.depth) if keeps_depth else Form.constant(0))
    work = exact.work + results_of(node)
    causal = any(
        isinstance(r, Causal) for t in (*node.types, *(graph.type(v) for v in node.operands)) for r in t.domain
    )
    return Cost(highest_in(work, "m") if causal else work, drop_ceilings(exact.depth - 1))


def test_the_papers_cost_is_the_declared_projection_of_the_exact_cost() -> None:
    for graph, node in distinct_occurrences():
        assert cost(graph, node, PAPER) == project(graph, node, cost(graph, node, FULL)), (node.name, node.op)


def test_the_paper_and_the_exact_model_differ_in_their_flags_alone() -> None:
    assert CostModel("paper", dot_product="2k", causal="half", gemm_only=True, exact_depth=False) == PAPER
    assert CostModel("full", dot_product="2k-1", causal="exact", gemm_only=False, exact_depth=True) == FULL


def test_half_of_the_dense_square_and_the_exact_triangle_differ_by_half_the_diagonal() -> None:
    graph, node = CASES["causal scores"]
    dense, half, exact = (
        cost(graph, node, dataclasses.replace(PAPER, causal=c)).work for c in ("dense", "half", "exact")
    )
    assert dense == 2 * half
    assert exact - half == symbol("B") * symbol("d") * symbol("m")


def test_half_of_a_square_is_no_count_for_a_rectangle() -> None:
    """A decode step sees all keys that the cache holds; a causal restriction of its one query would halve them."""
    one = Tensor((Axis("s", sympy.Integer(1)), SIZES.axes()["c"]))
    graph, node = single(Contraction(("s", "t"), (CAUSAL,)), one, tensor("t c"))
    with pytest.raises(GraphError, match="a causal restriction of 1 queries over m keys is not square; cut a prefix"):
        cost(graph, node, PAPER)


def split(name: str, extent: sympy.Expr, mesh: str) -> Axis:
    return Axis(name, extent, (Split(mesh),))


def split_causal() -> tuple[Graph, Node]:
    query = split("s", SIZES.m, "P_c")
    pairs = Tensor((query, Axis("t", SIZES.m)), domain=(CAUSAL,))
    return single(Contraction(("s", "c")), pairs, tensor("t c"))


def split_experts() -> tuple[Graph, Node]:
    (b, s), e, (c, g) = tensor("b s").axes, split("e", SIZES.E, "P_e"), tensor("c g").axes
    return single(Contraction(("b", "s", "e", "g"), (ROUTED,)), Tensor((b, s, c)), Tensor((e, c, g)))


@pytest.mark.parametrize(
    ("flag", "values", "case"),
    [
        ("dot_product", ("2k", "2k-1"), CASES["matrix product"]),
        ("causal", ("half", "exact", "dense"), CASES["causal scores"]),
        ("gemm_only", (True, False), CASES["function and factor"]),
        ("exact_depth", (True, False), CASES["matrix product"]),
        ("balanced_causal", (True, False), split_causal()),
        ("balanced_routing", (True, False), split_experts()),
    ],
)
def test_every_flag_of_the_cost_model_changes_something(
    flag: str, values: tuple[object, ...], case: tuple[Graph, Node]
) -> None:
    costs = {cost(*case, dataclasses.replace(PAPER, **{flag: v})) for v in values}  # type: ignore[arg-type]
    assert len(costs) == len(values)


def test_no_flag_of_the_cost_model_is_forgotten_above() -> None:
    marks = vars(test_every_flag_of_the_cost_model_changes_something)["pytestmark"]
    (mark,) = (m for m in marks if m.name == "parametrize")
    assert {case[0] for case in mark.args[1]} == {f.name for f in dataclasses.fields(CostModel)} - {"name"}


def test_ranks_with_contiguous_causal_slices_do_unequal_work_and_their_mean_is_the_balanced_work() -> None:
    """Rank r of P holds queries r m/P .. (r+1) m/P; the last has most."""
    m, ranks = 12, 3
    pairs = [sum(s + 1 for s in range(r * m // ranks, (r + 1) * m // ranks)) for r in range(ranks)]
    sizes = {"m": m, "P_c": ranks, "d": 1}
    exact = dataclasses.replace(PAPER, causal="exact")
    graph, node = split_causal()
    assert cost(graph, node, exact).work.evaluate(sizes) == 2 * Fraction(sum(pairs), ranks)
    assert cost(graph, node, dataclasses.replace(exact, balanced_causal=False)).work.evaluate(sizes) == 2 * max(pairs)


# -- the registry -----------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Unpriced(Pointwise):
    """A kind of operation nobody wrote a cost rule for."""

    kind = "unpriced"


def test_an_operation_without_a_rule_is_an_error_that_names_it() -> None:
    graph, node = single(Unpriced("exp"), tensor("b"))
    with pytest.raises(GraphError, match=r"^Unpriced has no cost rule; write derive/costs/unpriced\.py$"):
        cost(graph, node, PAPER)


def test_a_second_rule_for_a_kind_is_refused_and_the_first_stays() -> None:
    load_rules()
    before = dict(RULES)
    with pytest.raises(GraphError, match=r"^Contraction already has a cost rule; remove one of the two$"):
        rule(Contraction)(lambda site: Cost())
    assert before == registry.RULES


@pytest.mark.parametrize("layers", [2, 1_000_000])
@pytest.mark.parametrize("ffn", FFNS.values(), ids=list(FFNS))
def test_the_number_of_cost_rules_asked_does_not_depend_on_the_number_of_layers(
    ffn: FeedForward, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def counting(graph: Graph, node: Node, model: CostModel) -> Cost:
        asked.append(node.name)
        return cost(graph, node, model)

    monkeypatch.setattr("derive.work.cost", counting)

    def calls(sizes: Sizes) -> tuple[int, Form]:
        asked.clear()
        work = total(t.amount for t in work_terms(training(forward(sizes, ffn=ffn, loss=True)), PAPER))
        return len(asked), work

    symbolic, numeric = calls(SIZES), calls(dataclasses.replace(SIZES, L=sympy.Integer(layers)))
    assert symbolic[0] == numeric[0] == len(asked)
    assert symbolic[1].substitute({"L": Form.constant(layers)}) == numeric[1]


@given(k=st.integers(1, 40))
def test_a_reduction_of_k_values_is_k_minus_1_operations_and_the_ceiling_of_log2_k_deep(k: int) -> None:
    graph, node = single(Reduction("sum", ("c",)), tensor("c"))
    assert full(graph, node, {"d": k}) == (k - 1, (k - 1).bit_length())
    assert Value("x0") in node.operands
