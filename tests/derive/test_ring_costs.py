"""What ring attention costs: attention's work, shared out; memory that shrinks with the ranks; a step for each rank."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derive.costs.counting import product
from derive.costs.model import FULL, PAPER, CostModel
from derive.costs.rule import cost
from derive.depth import DepthRule, as_max, depth
from derive.domains import factors_of
from derive.dominance import Factors, as_factors
from derive.forms import Form, Max, log2, symbol, total
from derive.interchange import from_sympy
from derive.measure import Question, memory, training_depth
from derive.measure import work as measured_work
from derive.memory import saved_terms
from derive.work import work_terms
from graphs.axes import Axis, Behind, Role, Split, Tensor
from graphs.blocks.decoder import RING
from graphs.ir import Builder, Graph
from graphs.models.roles import forward
from graphs.ops.contraction import Contraction
from graphs.ops.repeat import Repeat
from graphs.schemes import schemes
from graphs.sizes import Sizes
from graphs.symbols import size
from graphs.transforms.backward import training
from graphs.transforms.expand import expand_macros
from graphs.transforms.partition import partition
from tests.derive.test_depth import Unrolled

SIZES = Sizes.canonical()
B, m, L, d, h, d_ff, P_c = (symbol(n) for n in ("B", "m", "L", "d", "h", "d_ff", "P_c"))
CONVENTIONS = [
    replace(PAPER, causal=causal, balanced_causal=balanced)
    for causal in ("half", "exact", "dense")
    for balanced in (True, False)
]


@cache
def graph_of(attention: str, ranks: bool = False, phase: str = "training") -> Graph:
    chosen = {"attention": RING} if attention == "ring" else {}
    graph = forward(SIZES, loss=phase == "training", **chosen)  # type: ignore[arg-type]
    graph = training(graph) if phase == "training" else graph
    return partition(graph, schemes()["Ring" if attention == "ring" else "Context"]) if ranks else graph


def work(graph: Graph, model: CostModel, phase: str) -> Form:
    return total(t.amount for t in work_terms(graph, model) if t.phase == phase)


# -- work -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", CONVENTIONS, ids=lambda c: f"{c.causal}-{c.balanced_causal}")
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_products_of_a_ring_do_the_work_of_attention_under_every_causal_convention(
    model: CostModel, phase: str
) -> None:
    """On one device, on every rank, and on all ranks together where they do alike."""
    plain, ring = work(graph_of("plain"), model, phase), work(graph_of("ring"), model, phase)
    assert ring == plain
    here = work(graph_of("ring", ranks=True), model, phase)
    assert here == work(graph_of("plain", ranks=True), model, phase)
    assert (P_c * here == ring) == (model.balanced_causal or model.causal == "dense")


def attention_pairs(blocks: int, length: int) -> list[int]:
    """Visible pairs of each rank, one by one."""
    pairs = itertools.product(range(blocks * length), repeat=2)
    found = Counter(s // length for s, t in pairs if t <= s)
    return [found[rank] for rank in range(blocks)]


@given(blocks=st.integers(1, 5), length=st.integers(1, 4))
def test_the_pairs_of_all_steps_are_the_causal_pairs(blocks: int, length: int) -> None:
    """The mean over the ranks and the heaviest rank, against a count of positions."""
    sizes = {"B": 1, "m": blocks * length, "h": 1, "d": 1, "P_c": blocks}
    pairs = attention_pairs(blocks, length)
    for balanced, wanted in ((True, sum(pairs) / blocks), (False, max(pairs))):
        model = replace(PAPER, causal="exact", balanced_causal=balanced)
        (layers,) = (n for n in graph_of("ring", ranks=True, phase="forward").nodes if isinstance(n.op, Repeat))
        assert isinstance(layers.op, Repeat)
        terms = {t.where: t.amount for t in work_terms(layers.op.body, model)}
        assert 2 * wanted == (terms["scores"] + terms["ring/scores"]).evaluate(sizes)
        assert 2 * wanted == (terms["numerator"] + terms["ring/numerator"]).evaluate(sizes)


def test_load_balanced_a_rank_does_p_plus_1_of_2p_of_its_full_share_of_blocks() -> None:
    """With blocks counted whole: its own, and the mean of those that go round."""
    behind = Tensor((Axis("a", size("P_c"), (Split("P_c"),)), SIZES.axes()["u"]))
    build = Builder("one step")
    q = build.input("q", behind)
    k = build.input("k", Tensor((behind.axes[0], SIZES.axes()["u"].renamed("w"))))
    build.output("y", build.add(Contraction(("a", "u", "w"), (Behind("a", "u", "w"),)), q, k, name="scores")[0])
    graph = build.graph()
    block = 2 * (m / P_c) ** 2
    for balanced, wanted in ((True, (P_c + 1) / 2 * block), (False, P_c * block)):
        step = cost(graph, graph.by_name["scores"], replace(PAPER, balanced_causal=balanced)).work
        assert block + (P_c - 1) * step == wanted


@pytest.mark.parametrize("model", [PAPER, FULL], ids=lambda x: x.name)
@pytest.mark.parametrize("sizes", [{"P_c": 1, "m": 4}, {"P_c": 2, "m": 8}, {"P_c": 3, "m": 6}])
def test_work_of_a_ring_is_that_of_its_unrolled_loops(model: CostModel, sizes: dict[str, int]) -> None:
    sizes = {"B": 2, "L": 2, "d": 4, "h": 2, "d_ff": 3, "V": 3} | sizes
    graph = graph_of("ring") if model.gemm_only else expand_macros(graph_of("ring"))
    assert total(t.amount for t in work_terms(graph, model)).evaluate(sizes) == Unrolled(graph, sizes, model).work


# -- memory -----------------------------------------------------------------------------------------------------------
def saved(graph: Graph) -> dict[str, Form]:
    return {t.where: t.amount for t in saved_terms(graph, PAPER) if t.in_loop}


def test_a_ring_keeps_what_attention_keeps_and_one_number_more_for_each_query_head_and_rank() -> None:
    """The denominator of a query, and the factors by which the steps scaled what came before."""
    per_layer = B * m * (8 * d + 2 * d_ff + 4) + B * h * m**2
    assert total(saved(graph_of("plain")).values()) == L * per_layer
    assert total(saved(graph_of("ring", ranks=True)).values()) == L * (per_layer / P_c + B * h * m)


def test_a_rank_keeps_its_own_keys_and_values_alone() -> None:
    kept = saved(graph_of("ring", ranks=True))
    assert {kept[f"blocks/ring[{i}]"] for i in (3, 4)} == {B * L * d * m / P_c}
    assert not [w for w in kept if "key" in w or "value" in w]


def widest(graph: Graph, names: set[str]) -> list[Form]:
    """Elements per rank of every value, however short its life, that has these axes."""
    found = []
    for node in graph.nodes:
        if isinstance(node.op, Repeat):
            found += widest(node.op.body, names)
        for tensor in (t for t in node.types if set(t.names) == names and t.role is not Role.INDEX):
            found.append(product(from_sympy(a.extent) for a in tensor.axes))
    return found


def test_keys_and_values_never_lie_whole_on_a_rank_as_they_do_where_they_are_gathered() -> None:
    ring = {f for w in "uw" for f in widest(graph_of("ring", ranks=True), {"b", "a", w, "h", "k"})}
    assert ring == {B * m * d / P_c}
    assert B * m * d in widest(graph_of("plain", ranks=True), {"b", "t", "h", "k"})


# -- depth ------------------------------------------------------------------------------------------------------------
def factors() -> Factors:
    return as_factors(factors_of(SIZES, schemes()["Ring"]))


@cache
def derived(phase: str, model: CostModel) -> Max:
    graph = graph_of("ring", phase=phase)
    graph = graph if model.gemm_only else expand_macros(graph)
    return as_max(depth(graph, DepthRule(model, factors())))


@pytest.mark.parametrize("model", [PAPER, FULL], ids=lambda x: x.name)
@pytest.mark.parametrize("phase", ["forward", "training"])
@pytest.mark.parametrize("blocks", [2, 3, 4, 6])
@pytest.mark.parametrize("length", [1, 4, 5])
def test_depth_of_a_ring_is_the_longest_path_of_its_unrolled_loops(
    phase: str, model: CostModel, blocks: int, length: int
) -> None:
    sizes = {"B": 2, "L": 3, "d": 8, "h": 2, "d_ff": 16, "V": 8, "P_c": blocks, "m": blocks * length}
    graph = graph_of("ring", phase=phase)
    unrolled = Unrolled(graph if model.gemm_only else expand_macros(graph), sizes, model)
    assert float(derived(phase, model).evaluate(sizes)) == pytest.approx(float(unrolled.depth()))


def test_merging_one_block_after_the_other_shows_in_the_depth_and_the_shorter_rows_too() -> None:
    """Forward, every step scales and adds; where products alone count, rows of m/P_c keys are what is left."""
    (form,) = derived("forward", FULL).members
    assert form.terms[(("L", 1), ("P_c", 1))] == 2
    (plain,) = as_max(depth(graph_of("plain", phase="forward"), DepthRule(PAPER, factors()))).members
    (ring,) = derived("forward", PAPER).members
    assert plain - ring == L * log2(P_c)


def test_degree_1_gives_back_the_work_memory_and_depth_of_attention() -> None:
    for model in CONVENTIONS:
        at_one = [
            total(t.amount for t in work_terms(graph_of(a, ranks=True), model)).substitute({"P_c": Form.constant(1)})
            for a in ("ring", "plain")
        ]
        assert at_one[0] == at_one[1]
    ring = total(saved(graph_of("ring", ranks=True)).values()).substitute({"P_c": Form.constant(1)})
    assert ring == total(saved(graph_of("plain")).values()) + B * L * h * m
    sizes = {"B": 2, "L": 3, "d": 8, "h": 2, "d_ff": 16, "V": 8, "P_c": 1, "m": 8}
    assert derived("training", PAPER).evaluate(sizes) == Unrolled(graph_of("plain"), sizes, PAPER).depth()


def test_a_question_may_ask_for_ring_attention() -> None:
    ring, gathered = Question(scheme="Ring", attention=RING), Question(scheme="Context")
    assert measured_work(ring).value == measured_work(gathered).value
    (more,) = (f - g for f, g in zip(memory(ring).value.members, memory(gathered).value.members, strict=True))
    assert more == B * L * h * m
    (less,) = (
        f - g for f, g in zip(training_depth(gathered).value.members, training_depth(ring).value.members, strict=True)
    )
    assert less == 2 * L * log2(P_c)
