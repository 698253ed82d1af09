"""Symbolic depth against the longest path of the unrolled graph, for decoders and for random loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache

import networkx as nx
import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from derive.costs.model import FULL, PAPER, CostModel
from derive.costs.rule import cost
from derive.depth import DepthRule, as_max, depth
from derive.forms import Form, Max, symbol, total
from graphs.axes import Tensor
from graphs.blocks.decoder import DENSE, DISPATCHED, EXPERTS
from graphs.errors import GraphError
from graphs.ir import Builder, Graph, Value
from graphs.models.roles import ROLES, forward
from graphs.ops.pointwise import Pointwise
from graphs.ops.repeat import Repeat
from graphs.ops.scan import Scan
from graphs.sizes import Sizes
from graphs.symbols import size
from graphs.transforms.backward import training
from graphs.transforms.expand import expand_macros
from graphs.transforms.recompute import Recompute
from tests.oracle import expand_graph, skewed
from tests.strategies import FACTORS, LAYER, VECTOR, Recipe, model_sizes, recipes

SIZES = Sizes.canonical()
COST_MODELS = {"paper": PAPER, "full": FULL}
FFNS = {"dense": DENSE, "experts": EXPERTS, "dispatched": DISPATCHED}


# -- the unrolled graph -----------------------------------------------------------------------------------------------
class Unrolled:
    """Every occurrence of every iteration as a vertex of its own, with its numeric cost."""

    def __init__(self, graph: Graph, sizes: Mapping[str, int], model: CostModel) -> None:
        self.net, self.sizes, self.model = nx.DiGraph(), sizes, model
        inputs = {Value(n): self._vertex((n,), 0, 0, ()) for n in graph.inputs}
        values = self._copy(graph, inputs, ())
        self.outputs = {n: values[v] for n, v in graph.outputs.items()}

    def _vertex(
        self, name: tuple[object, ...], work: Fraction | int, depth: Fraction | int, before: Iterable[object]
    ) -> object:
        self.net.add_node(name, work=work, depth=depth)
        self.net.add_edges_from((b, name) for b in before)
        return name

    def _copy(self, graph: Graph, known: dict[Value, object], where: tuple[object, ...]) -> dict[Value, object]:
        """Values are vertices; the entries of a stacked value are a list of vertices."""
        for node in graph.nodes:
            operands = [known[v] for v in node.operands]
            if isinstance(node.op, Repeat):
                results = self._iterate(node.op, operands, (*where, node.name))
            else:
                found = cost(graph, node, self.model)
                before = [b for v in operands for b in (v if isinstance(v, list) else [v])]
                work, steps = found.work.evaluate(self.sizes), found.depth.evaluate(self.sizes)
                results = [self._vertex((*where, node.name), work, steps, before)] * len(node.types)
            known.update({Value(node.name, i): r for i, r in enumerate(results)})
        return known

    def _iterate(self, op: Repeat, operands: list[object], where: tuple[object, ...]) -> list[object]:
        count = int(op.axis.size.subs({s: self.sizes[s.name] for s in op.axis.size.free_symbols}))
        names, outputs = list(op.body.inputs), list(op.body.outputs.values())
        carried = operands[: op.carried]
        stacks: list[list[object]] = [[None] * count for _ in outputs[op.carried :]]
        for i in reversed(range(count)) if op.reverse else range(count):
            known = dict(zip((Value(n) for n in names), carried, strict=False))
            for j in range(op.carried, len(names)):
                x = operands[j]
                is_entry = j < op.carried + op.stacked and isinstance(x, list)
                known[Value(names[j])] = x[i] if is_entry and isinstance(x, list) else x
            values = self._copy(op.body, known, (*where, i))
            carried = [values[v] for v in outputs[: op.carried]]
            for stack, v in zip(stacks, outputs[op.carried :], strict=True):
                stack[i] = values[v]
        return [*carried, *stacks]

    @property
    def work(self) -> Fraction:
        return sum((w for _, w in self.net.nodes(data="work")), Fraction(0))

    def depth(self, outputs: Iterable[str] | None = None) -> Fraction:
        """Longest path to one of the outputs; vertices were added in an order of execution."""
        longest: dict[object, Fraction] = {}
        for vertex, steps in self.net.nodes(data="depth"):
            longest[vertex] = steps + max((longest[p] for p in self.net.predecessors(vertex)), default=Fraction(0))
        ends = [self.outputs[n] for n in (outputs or self.outputs)]
        return max(longest[e] for end in ends for e in (end if isinstance(end, list) else [end]))


def close(a: Fraction, b: Fraction) -> bool:
    """Logs of other than powers of two are rounded."""
    return abs(a - b) <= Fraction(1, 10**9) * max(Fraction(1), abs(b))


# -- decoders ---------------------------------------------------------------------------------------------------------
@cache
def graph_of(role: str, ffn: str, phase: str, model: str) -> Graph:
    graph = forward(SIZES, ROLES[role], FFNS[ffn], loss=phase != "forward")
    if phase != "forward":
        graph = training(graph, recompute=Recompute(phase))
    return graph if model == "paper" else expand_macros(graph)


@cache
def derived(role: str, ffn: str, phase: str, model: str) -> Max:
    return as_max(depth(graph_of(role, ffn, phase, model), DepthRule(COST_MODELS[model], FACTORS)))


@pytest.mark.parametrize("model", COST_MODELS)
@pytest.mark.parametrize("phase", ["forward", "none", "selective", "layer_boundary"])
@pytest.mark.parametrize("ffn", FFNS)
@settings(max_examples=5)
@given(sizes=model_sizes(largest=64), data=st.data())
def test_depth_of_a_decoder_is_the_longest_path_of_its_unrolled_graph(
    ffn: str, phase: str, model: str, sizes: dict[str, int], data: st.DataObject
) -> None:
    role = data.draw(st.sampled_from(["policy", "reward", "value"]) if ffn == "dense" else st.just("policy"))
    unrolled = Unrolled(graph_of(role, ffn, phase, model), sizes, COST_MODELS[model])
    assert close(derived(role, ffn, phase, model).evaluate(sizes), unrolled.depth())


@pytest.mark.parametrize("ffn", FFNS)
def test_depth_of_a_decoder_bounds_the_longest_scalar_path(ffn: str) -> None:
    """Occurrences in sequence may overlap scalar by scalar, so the scalar path is shorter, but not much."""
    sizes = {"B": 2, "m": 3, "L": 2, "d": 4, "h": 2, "d_ff": 3, "V": 3, "E": 2, "E_a": 1, "d_e": 3}
    bound = derived("policy", ffn, "none", "full").evaluate(sizes)
    scalar = expand_graph(graph_of("policy", ffn, "none", "full"), sizes, skewed).depth
    assert bound * Fraction(9, 10) <= scalar <= bound


def test_forward_depth_of_a_dense_decoder_is_what_its_reductions_say() -> None:
    """Per layer: three projections side by side (d), scores (d/h), mixing (m), output (d), up (d), down (d_ff)."""
    (found,) = derived("policy", "dense", "forward", "paper").members
    assert found.text == "4*L*log(d) + L*log(d_ff) - L*log(h) + L*log(m) + log(d)"


def test_depth_of_a_training_step_counts_the_backward_chain_once_more() -> None:
    (forwards,) = derived("policy", "dense", "forward", "paper").members
    (trained,) = derived("policy", "dense", "none", "paper").members
    per_layer = Form({m: c for m, c in forwards.terms.items() if dict(m).get("L")})
    rest = trained - 2 * per_layer
    assert rest.text == "log(B) + log(V) + log(d) + log(m)"


def test_every_step_of_the_longest_path_adds_up_to_the_depth() -> None:
    graph = graph_of("policy", "dense", "none", "full")
    for arrival in depth(graph, DepthRule(FULL, FACTORS)):
        assert total(s.times * s.amount for s in arrival.steps) == arrival.form


@pytest.mark.parametrize("layers", [2, 1_000_000])
def test_depth_asks_as_many_cost_rules_for_any_number_of_layers(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counting(*arguments: object) -> object:
        asked.append(arguments)
        return cost(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("derive.depth.cost", counting)

    def calls(sizes: Sizes) -> tuple[int, Max]:
        asked.clear()
        found = as_max(depth(training(forward(sizes, loss=True)), DepthRule(PAPER, FACTORS)))
        return len(asked), found

    symbolic, numeric = calls(SIZES), calls(replace(SIZES, L=sympy.Integer(layers)))
    assert symbolic[0] == numeric[0]
    assert symbolic[1].substitute({"L": Form.constant(layers)}) == numeric[1]


# -- random loops -----------------------------------------------------------------------------------------------------
REFUSALS = (
    "no one formula says when",
    "feed each other, which has no closed-form depth",
    "the depth of this scan has no closed form",
)
loop_sizes = st.fixed_dictionaries(
    {
        "L": st.integers(1, 6),
        "h": st.integers(1, 4),
        "d_h": st.integers(1, 8),
        "d_ff": st.integers(1, 99),
        "V": st.integers(1, 99),
    }
).map(lambda s: s | {"d": s["h"] * s["d_h"]})


def agrees_or_is_refused(
    recipe: Recipe, sizes: Mapping[str, int], model: CostModel, kind: type[Repeat] = Repeat
) -> bool:
    """True where every output's depth is given, and right; False where the loop is refused in clear words."""
    graph = recipe.graph(kind=kind)
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
@given(recipe=recipes(carried=1), sizes=loop_sizes)
def test_a_random_loop_with_one_carried_value_agrees_with_its_unrolling_or_is_refused(
    model: CostModel, recipe: Recipe, sizes: dict[str, int]
) -> None:
    agrees_or_is_refused(recipe, sizes, model)


@pytest.mark.parametrize("model", [PAPER, FULL], ids=["paper", "full"])
@given(recipe=recipes(carried=(2, 3)), sizes=loop_sizes)
def test_a_random_loop_with_more_carried_values_agrees_with_its_unrolling_or_is_refused(
    model: CostModel, recipe: Recipe, sizes: dict[str, int]
) -> None:
    agrees_or_is_refused(recipe, sizes, model)


@pytest.mark.parametrize("model", [PAPER, FULL], ids=["paper", "full"])
@given(recipe=recipes(), sizes=loop_sizes)
def test_a_random_scan_agrees_with_its_unrolling_or_is_refused(
    model: CostModel, recipe: Recipe, sizes: dict[str, int]
) -> None:
    agrees_or_is_refused(replace(recipe, reverse=False), sizes, model, Scan)


def scan_of_two(own: int, other: int, across: int = 0, late: int = 0) -> Graph:
    """x after ``own`` steps and y after ``other``; with ``across``, y also waits for x after so many steps."""
    body = Builder("body")
    x, y = body.input("x", VECTOR), body.input("y", VECTOR)

    def after(value: Value, steps: int) -> Value:
        for _ in range(steps):
            (value,) = body.add(Pointwise("gelu"), value)
        return value

    body.output("x", after(x, own))
    body.output(
        "y", body.add(Pointwise("add"), after(y, other), after(x, across - 1))[0] if across else after(y, other)
    )
    build = Builder("scan")
    start = [build.input("x", VECTOR), build.input("y", VECTOR)]
    for _ in range(late):
        (start[1],) = build.add(Pointwise("gelu"), start[1])
    for name, value in zip("xy", build.add(Scan(body.graph(), LAYER, 2, 0), *start, name="decode"), strict=True):
        build.output(name, value)
    return build.graph()


def test_a_scan_takes_the_time_of_the_carried_value_that_sets_its_pace() -> None:
    graph = scan_of_two(own=5, other=2, across=4)
    found = {name: as_max(depth(graph, DepthRule(FULL, FACTORS), [name])) for name in "xy"}
    assert found == {"x": Max.of(5 * symbol("L")), "y": Max.of(5 * symbol("L") - 1)}
    for layers in (1, 2, 5):
        unrolled = Unrolled(graph, {"L": layers, "d": 1}, FULL)
        assert {n: v.evaluate({"L": layers}) for n, v in found.items()} == {n: unrolled.depth([n]) for n in "xy"}


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (scan_of_two(own=5, other=2), "'y' may wait for something else than 'x'"),
        (scan_of_two(own=5, other=2, across=6), "no carried value has a chain that is certainly the longest"),
        (scan_of_two(own=5, other=2, across=4, late=1), "no carried value has a chain that is certainly the longest"),
    ],
    ids=["two that do not meet", "a way round that is longer", "a late start"],
)
def test_a_scan_in_which_no_value_sets_the_pace_is_refused(graph: Graph, why: str) -> None:
    with pytest.raises(GraphError, match=f"^decode: the depth of this scan has no closed form, because {why}"):
        depth(graph, DepthRule(FULL, FACTORS))


@given(recipe=recipes(carried=1), sizes=loop_sizes)
def test_a_loop_with_one_carried_value_and_no_stacked_output_is_never_refused(
    recipe: Recipe, sizes: dict[str, int]
) -> None:
    assert agrees_or_is_refused(replace(recipe, outputs=recipe.outputs[:1]), sizes, FULL)


@given(recipe=recipes(), sizes=loop_sizes)
def test_a_loop_with_a_number_of_iterations_is_refused_only_for_carried_values_that_feed_each_other(
    recipe: Recipe, sizes: dict[str, int]
) -> None:
    graph = recipe.graph()
    (loop,) = graph.nodes[-1:]
    assert isinstance(loop.op, Repeat)
    names, outputs = list(loop.op.body.inputs), list(loop.op.body.outputs.values())
    feeds = nx.DiGraph()
    for k in range(recipe.carried):
        reached = nx.descendants(loop.op.body.network, names[k]) | {names[k]}
        feeds.add_edges_from((k, i) for i in range(recipe.carried) if k != i and outputs[i].node in reached)
    assume(nx.is_directed_acyclic_graph(feeds))
    numbered = with_number_of_layers(graph, sizes["L"])
    found = as_max(depth(numbered, DepthRule(FULL, FACTORS)))
    assert found.evaluate(sizes) == Unrolled(graph, sizes, FULL).depth()


#: x <- w and y <- x + gelu^5(w): in the first iteration y waits for the late start of x, in the others for w
HANDED_ON = Recipe(
    carried=2,
    stacked=1,
    steps=(("gelu", 2, 0), ("gelu", 3, 0), ("gelu", 4, 0), ("gelu", 5, 0), ("gelu", 6, 0), ("add", 0, 7)),
    outputs=(6, 0),
    late=(7, 0, 0),
)


def test_a_loop_that_is_slower_the_first_time_has_no_one_formula_but_one_for_each_number_of_iterations() -> None:
    graph = HANDED_ON.graph()
    with pytest.raises(
        GraphError, match=r"^loop: no one formula says when 'out1' is ready .*; give the loop axis a number$"
    ):
        depth(graph, DepthRule(FULL))
    found = {n: as_max(depth(with_number_of_layers(graph, n), DepthRule(FULL), ["out1"])) for n in (1, 2, 3)}
    assert found == {1: Max.of(Form.constant(8)), 2: Max.of(Form.constant(6)), 3: Max.of(Form.constant(6))}
    for n, value in found.items():
        assert value.evaluate({}) == Unrolled(graph, {"L": n, "d": 1, "d_ff": 1, "V": 1}, FULL).depth(["out1"])


def with_number_of_layers(graph: Graph, layers: int) -> Graph:
    """The same graph with L replaced by a number."""
    number = replace(LAYER, size=sympy.Integer(layers))

    def changed(tensor: Tensor) -> Tensor:
        return replace(tensor, axes=tuple(number if a == LAYER else a for a in tensor.axes))

    nodes = []
    for node in graph.nodes:
        op = replace(node.op, axis=number) if isinstance(node.op, Repeat) else node.op
        nodes.append(replace(node, op=op, types=tuple(changed(t) for t in node.types)))
    return Graph(graph.name, {n: changed(t) for n, t in graph.inputs.items()}, tuple(nodes), graph.outputs)


def two_carried(main_steps: int, fed_steps: int) -> Graph:
    """x <- x after ``main_steps``; y <- (y + x) after ``fed_steps``."""
    body = Builder("body")
    x, y = body.input("x", VECTOR), body.input("y", VECTOR)
    new_x, new_y = x, body.add(Pointwise("add"), y, x)[0]
    for _ in range(main_steps):
        (new_x,) = body.add(Pointwise("gelu"), new_x)
    for _ in range(fed_steps - 1):
        (new_y,) = body.add(Pointwise("gelu"), new_y)
    body.output("x", new_x)
    body.output("y", new_y)
    build = Builder("two_carried")
    start = [build.input("x", VECTOR), build.input("y", VECTOR)]
    for name, value in zip("xy", build.add(Repeat(body.graph(), LAYER, 2, 0), *start, name="loop"), strict=True):
        build.output(name, value)
    return build.graph()


@pytest.mark.parametrize(("main", "fed"), [(5, 1), (1, 5), (3, 3)])
def test_a_value_that_the_chain_feeds_waits_for_the_slower_of_the_two(main: int, fed: int) -> None:
    """Its depth is b + (n-1) max(a, b): here a = main, b = fed."""
    found = as_max(depth(two_carried(main, fed), DepthRule(FULL), ["y"]))
    assert found == Max.of(fed + (symbol("L") - 1) * max(main, fed))


def test_carried_values_that_feed_each_other_are_refused_by_name() -> None:
    body = Builder("body")
    x, y = body.input("x", VECTOR), body.input("y", VECTOR)
    body.output("x", body.add(Pointwise("gelu"), y)[0])
    body.output("y", body.add(Pointwise("add"), x, y)[0])
    build = Builder("swap")
    values = build.add(Repeat(body.graph(), LAYER, 2, 0), *(build.input(n, VECTOR) for n in "xy"), name="blocks")
    build.output("x", values[0])
    with pytest.raises(GraphError, match=r"^blocks: the carried values 'x' and 'y' feed each other, .*; let one feed"):
        depth(build.graph(), DepthRule(PAPER))


def test_a_loop_inside_a_loop_is_measured() -> None:
    (loop,) = two_carried(2, 1).nodes
    assert isinstance(loop.op, Repeat)
    inner = Repeat(loop.op.body, replace(LAYER, name="inner", size=size("E")), 2, 0)
    body = Builder("outer_body")
    start = [body.input("x", VECTOR), body.input("y", VECTOR)]
    for name, value in zip("xy", body.add(inner, *start, name="inner"), strict=True):
        body.output(name, value)
    build = Builder("nested")
    values = build.add(Repeat(body.graph(), LAYER, 2, 0), *(build.input(n, VECTOR) for n in "xy"), name="outer")
    build.output("y", values[1])
    graph = build.graph()
    for layers, inners in ((1, 1), (3, 2), (2, 5)):
        sizes = {"L": layers, "E": inners, "d": 4}
        assert as_max(depth(graph, DepthRule(FULL))).evaluate(sizes) == Unrolled(graph, sizes, FULL).depth()


# -- a graph, not a tree ----------------------------------------------------------------------------------------------
def test_a_shared_value_is_worked_out_once_and_waited_for_once() -> None:
    """Ten squarings of sums x + x: as a tree, every sum would be worked out 2^10 times over."""
    from derive.work import work_terms

    build = Builder("shared")
    x = build.input("x", Tensor(()))
    for _ in range(10):
        (x,) = build.add(Pointwise("add"), x, x)
    build.output("y", x)
    graph = build.graph()

    def as_a_tree(value: Value) -> int:
        node = graph.by_name.get(value.node)
        return 0 if node is None else 1 + sum(as_a_tree(v) for v in node.operands)

    assert total(t.amount for t in work_terms(graph, FULL)) == Form.constant(10)
    assert as_a_tree(x) == 2**10 - 1
    assert as_max(depth(graph, DepthRule(FULL))) == Max.of(Form.constant(10))
