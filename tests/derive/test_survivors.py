"""Laws that no other test held: each kills a patched rule that `make mutants` once found alive."""

from __future__ import annotations

from dataclasses import replace

import pytest

from derive.costs.counting import causal_pairs
from derive.costs.model import FULL, PAPER
from derive.depth import DepthRule, as_max, depth
from derive.forms import log2, symbol
from derive.measure import Question, memory, training_depth, work
from derive.work import work_terms
from graphs.axes import Axis, Role, Split, Tensor
from graphs.ir import Builder, Graph, Value
from graphs.ops.collective import Collective
from graphs.ops.contraction import Contraction
from graphs.ops.lookup import Lookup
from graphs.ops.pointwise import Pointwise
from graphs.ops.reduction import Reduction
from graphs.ops.repeat import Repeat
from graphs.schemes import schemes
from graphs.sizes import Sizes
from graphs.transforms.backward import training
from graphs.transforms.partition import partition
from graphs.transforms.partition.forms import Form, Partial, plan

SIZES = Sizes.canonical()


def test_a_reduce_scatter_completes_a_reduction_as_an_all_reduce_does() -> None:
    """With sequence parallelism sums over tensor ranks end in reduce-scatters; the depth stays the sequential one."""
    question = Question(blocks_only=True, collectives=True, over_all_ranks=True)
    assert training_depth(replace(question, scheme="Sequence")).value == training_depth(question).value


def test_seen_from_one_rank_tensor_parallelism_saves_the_logs_that_collectives_would_add() -> None:
    question = Question(blocks_only=True)
    split, alone = (training_depth(replace(question, scheme=s)).value.members[0] for s in ("Tensor", "None"))
    assert split == alone - 4 * symbol("L") * log2(symbol("P_t"))


def test_over_all_ranks_a_pipeline_is_as_deep_as_all_its_layers() -> None:
    question = Question(blocks_only=True, over_all_ranks=True)
    assert training_depth(replace(question, scheme="Pipeline")).value == training_depth(question).value


def test_seen_from_one_rank_a_pipeline_is_as_deep_as_its_share_of_the_layers() -> None:
    question = Question(blocks_only=True)
    split = training_depth(replace(question, scheme="Pipeline")).value
    assert split.substitute({"L": symbol("L") * symbol("P_p")}) == training_depth(question).value


def test_over_all_ranks_a_pipeline_does_what_lies_outside_the_blocks_once() -> None:
    question = Question(over_all_ranks=True)
    assert work(replace(question, scheme="Pipeline")).value == work(question).value


def test_seen_from_one_rank_a_pipeline_counts_its_heaviest_stage_not_all_of_them() -> None:
    """First and last stage hold the tied table both, each once."""
    alone, split = memory(Question()).value, memory(Question(scheme="Pipeline")).value
    tables = [{f.terms.get((("V", 1), ("d", 1))) for f in found.members} for found in (alone, split)]
    assert tables == [{4}, {4}]


def looked_up() -> Graph:
    build = Builder("lookup")
    table = build.input("W", SIZES.tensor("v c", Role.PARAMETER))
    ids = build.input("ids", SIZES.tensor("b s", Role.INDEX))
    return training(summed(build, build.add(Lookup("v"), table, ids)[0]))


def test_the_scattered_gradient_of_a_table_is_completed_over_data_ranks() -> None:
    """A scatter accumulates a parameter's gradient, so the collective that completes it counts."""
    alone = as_max(depth(looked_up(), DepthRule(PAPER), ["grad:W"]))
    split = partition(looked_up(), schemes()["Data"])
    assert as_max(depth(split, DepthRule(PAPER, collectives=True), ["grad:W"])) == alone
    assert as_max(depth(split, DepthRule(PAPER), ["grad:W"])) != alone


def test_a_collective_over_ranks_that_are_no_power_of_two_takes_a_whole_number_of_steps() -> None:
    split = partition(looked_up(), schemes()["Data"])
    found = as_max(depth(split, DepthRule(FULL, collectives=True), ["grad:W"]))
    assert found.evaluate({"B": 6, "m": 2, "P_d": 3, "d": 4}) == 2 + 2


def test_where_every_operation_counts_a_collective_that_completes_a_plain_sum_counts_too() -> None:
    build = Builder("sum")
    x = build.input("x", SIZES.tensor("b f", Role.INPUT))
    build.output("y", build.add(Reduction("sum", ("f",)), x)[0])
    graph, every = build.graph(), replace(PAPER, gemm_only=False)
    split = partition(graph, schemes()["Tensor"])
    assert as_max(depth(split, DepthRule(every, collectives=True))) == as_max(depth(graph, DepthRule(every)))
    assert as_max(depth(split, DepthRule(PAPER, collectives=True))) == as_max(depth(graph, DepthRule(PAPER)))


@pytest.mark.parametrize("cut", ["query", "key"])
def test_under_contiguous_slices_the_heaviest_rank_counts_whichever_side_of_the_causal_square_is_cut(cut: str) -> None:
    model, ranks = replace(FULL, balanced_causal=False), 4
    splits = {side: (Split("P_c"),) if side == cut else () for side in ("query", "key")}
    pairs = causal_pairs(Axis("s", SIZES.m, splits["query"]), Axis("t", SIZES.m, splits["key"]), model)
    side = 16
    held = [range(r * side // ranks, (r + 1) * side // ranks) for r in range(ranks)]
    counted = [sum(q + 1 if cut == "query" else side - q for q in part) for part in held]
    assert pairs.evaluate({"m": side, "P_c": ranks}) == max(counted)


def summed(build: Builder, value) -> Graph:
    build.output("loss", build.add(Reduction("sum", build.type(value).names), value)[0])
    return build.graph()


def products(graph: Graph) -> list[str]:
    """Phases of the products that the paper's convention counts."""
    return [t.phase for t in work_terms(graph, PAPER)]


def test_a_gradient_that_nobody_asks_for_is_not_computed() -> None:
    build = Builder("data times weights")
    x = build.input("x", SIZES.tensor("b c", Role.INPUT))
    w = build.input("W", SIZES.tensor("c f", Role.PARAMETER))
    graph = summed(build, build.add(Contraction(("b", "f")), x, w)[0])
    assert products(training(graph)) == ["forward", "backward"]


def test_a_gradient_that_nobody_asks_for_is_not_computed_in_a_loop() -> None:
    layer = SIZES.axes()["layer"]
    inside = Builder("body")
    y, w = inside.input("y", SIZES.tensor("b f")), inside.input("W", SIZES.tensor("c f", Role.PARAMETER))
    x = inside.input("x", SIZES.tensor("b c", Role.INPUT))
    inside.output("y", inside.add(Pointwise("add"), y, inside.add(Contraction(("b", "f")), x, w)[0])[0])
    build = Builder("loop")
    start = build.input("y", SIZES.tensor("b f"))
    weights = build.input("W", Tensor((layer, *SIZES.tensor("c f").axes), Role.PARAMETER))
    data = build.input("x", SIZES.tensor("b c", Role.INPUT))
    graph = summed(build, build.add(Repeat(inside.graph(), layer, carried=1, stacked=1), start, weights, data)[0])
    assert products(training(graph)) == ["forward", "backward"]


def test_a_sum_over_two_meshes_shrinks_before_it_is_completed_everywhere() -> None:
    """The reduce-scatter comes first, so that the all-reduce moves the smaller part."""
    tensor = SIZES.tensor("b c")
    form = Form(Value("x"), tensor, {mesh: Partial("sum", ()) for mesh in ("P_d", "P_t")})
    steps = plan(form, {"c": (Split("P_t"),)}, frozenset()).steps
    assert [(op.action, op.mesh) for op in steps] == [("reduce_scatter", "P_t"), ("all_reduce", "P_d")]


@pytest.mark.parametrize(
    ("op", "gathered", "exchanged"),
    [
        (Collective("all_gather", "P_t", "s"), "forward", False),
        (Collective("all_to_all", "P_t", "h", source="s"), None, True),
        (Collective("shard", "P_d", "h"), None, False),
    ],
)
def test_what_a_gather_widened_is_fetched_again_in_a_later_phase_and_what_an_exchange_moved_is_not(
    op: Collective, gathered: str | None, exchanged: bool
) -> None:
    build = Builder("exchange")
    axes = tuple(replace(a, splits=(Split("P_t"),)) if a.name == "s" else a for a in SIZES.tensor("b s h").axes)
    x = build.input("x", Tensor(axes))
    (y,) = build.add(op, x)
    (node,) = (n for n in build.nodes if n.name == y.node)
    after = Form(x, build.type(x), {}).after(op, node)
    assert (after.gathered, after.exchanged) == (gathered, exchanged)
