"""What generation costs: against published counts, scalar expansions, unrolled graphs and the forward pass."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.costs.model import FULL, PAPER, CostModel
from derive.costs.rule import Cost, cost
from derive.depth import DepthRule, as_max, depth
from derive.expr import Sum
from derive.forms import Form, Log, Max, log2, symbol, total
from derive.generation import (
    cache_memory,
    cache_per_token,
    decode_remainder,
    decode_work,
    generation_depth,
    generation_work,
    over_steps,
    prefill_remainder,
    prefill_work,
    step_remainder,
    step_work,
)
from derive.measure import Measured, Question, work
from derive.normal import single_form
from derive.textform import parse_text
from derive.work import work_terms
from graphs.blocks.decoder import DENSE, EXPERTS
from graphs.errors import GraphError
from graphs.ir import Graph, Node
from graphs.models.generation import generation
from graphs.models.roles import VALUE
from graphs.ops.repeat import Repeat
from graphs.sizes import Sizes
from graphs.transforms.expand import expand_macros
from graphs.transforms.unroll import unroll
from tests.oracle import expand_graph
from tests.strategies import FACTORS

SIZES = Sizes.canonical()
FFNS = {"dense": DENSE, "experts": EXPERTS}
EXACT = Question(model=replace(PAPER, causal="exact"))
HALF = Question()


def at(measured: Measured, **sizes: int) -> Fraction:
    return measured.value.evaluate(sizes)


def form(text: str) -> Form:
    return single_form(parse_text(text))


# -- published counts -------------------------------------------------------------------------------------------------
def test_a_decode_step_is_what_flop_counters_report() -> None:
    assert step_work(HALF).value == Max.of(form("2*L*(4*d**2 + 2*d*d_ff + 2*(S + t)*d) + 2*V*d"))


def pairs(measured: Measured, where: str) -> Form:
    """Query-key pairs behind a product of attention: 2 d L operations each."""
    (amount,) = (amount for name, amount in measured.parts if name == where)
    return amount / (2 * symbol("d") * symbol("L"))


@pytest.mark.parametrize(
    ("prompt", "fed", "right", "wrong"), [(10, 4, 50, 30), (1000, 500, 625_250, 375_250), (128, 1, 129, 65)]
)
def test_the_context_of_all_fed_tokens(prompt: int, fed: int, right: int, wrong: int) -> None:
    """Public case A07: each of O tokens sees the prompt, those before it and itself."""
    for product in ("scores", "mix"):
        seen = pairs(decode_work(EXACT), f"decode/blocks/{product}")
        assert seen.evaluate({"S": prompt, "T": fed + 1}) == right != wrong


def test_the_context_where_the_first_token_comes_from_the_prompts_logits() -> None:
    seen = pairs(decode_work(EXACT), "decode/blocks/scores")
    assert seen.evaluate({"S": 10, "T": 4}) == 36
    assert seen == form("S*(T - 1) + T*(T - 1)/2")


def test_prefill_and_decode_pairs_make_the_whole_triangle() -> None:
    before, after = pairs(prefill_work(EXACT), "blocks/scores"), pairs(decode_work(EXACT), "decode/blocks/scores")
    assert before + after == form("(S + T - 1)*(S + T)/2")
    assert (before + after).evaluate({"S": 10, "T": 5}) == 105


def test_half_of_the_square_counts_for_the_prompt_alone() -> None:
    assert pairs(prefill_work(HALF), "blocks/scores") == form("S**2/2")
    assert pairs(decode_work(HALF), "decode/blocks/scores") == pairs(decode_work(EXACT), "decode/blocks/scores")


def test_attention_flops_of_decoding() -> None:
    parts = dict(decode_work(EXACT).parts)
    attended = parts["decode/blocks/scores"] + parts["decode/blocks/mix"]
    assert attended.evaluate({"L": 2, "d": 4 * 8, "S": 10, "T": 5}) == 12_800


TOY = {"L": 1, "d": 4, "h": 2, "d_ff": 8, "V": 10, "S": 3, "T": 4}


def test_a_rollout_of_a_toy() -> None:
    """Public case A19 (b), exact causal: prefill with one row of logits, then R - 1 fed tokens."""
    assert at(prefill_work(EXACT), **TOY) == 944
    assert at(decode_work(EXACT), **TOY) == 1_248
    assert at(generation_work(EXACT), **TOY) == 2_192


def test_generation_is_one_causal_pass_over_all_fed_tokens_with_logits_for_those_that_choose() -> None:
    """As an identity in all sizes; nothing of it is true of half the square."""
    whole = form("S + T - 1")
    parts = dict(work(EXACT, ["forward"]).parts)
    blocks = total(a for w, a in parts.items() if w.startswith("blocks/")).substitute({"m": whole}) / symbol("B")
    logits = parts["unembedding"] / (symbol("B") * symbol("m"))
    assert generation_work(EXACT).value == Max.of(blocks + symbol("T") * logits)
    assert generation_work(HALF).value != Max.of(blocks + symbol("T") * logits)


# -- scalar expansion and unrolling -----------------------------------------------------------------------------------
small = st.fixed_dictionaries(
    {
        **{name: st.integers(1, 3) for name in ("B", "S", "L", "d_ff", "V", "d_e", "h", "d_h")},
        "T": st.integers(2, 4),
        "E": st.integers(1, 3),
    }
).map(lambda s: s | {"d": s["h"] * s["d_h"], "E_a": 1})


@cache
def expanded(ffn: str, draw: bool) -> Graph:
    return expand_macros(generation(SIZES, FFNS[ffn], draw))


@pytest.mark.parametrize("draw", [False, True], ids=["greedy", "drawn"])
@settings(max_examples=3, deadline=None)
@given(sizes=small)
def test_work_is_that_of_the_scalar_expansion(draw: bool, sizes: dict[str, int]) -> None:
    graph = expanded("dense", draw)
    derived = total(t.amount for t in work_terms(graph, FULL)).evaluate(sizes)
    assert derived == expand_graph(graph, sizes).work


@pytest.mark.parametrize("model", [PAPER, FULL], ids=["paper", "full"])
@pytest.mark.parametrize("ffn", FFNS)
@settings(max_examples=8, deadline=None)
@given(sizes=small)
def test_work_is_that_of_the_unrolled_graph(ffn: str, model: CostModel, sizes: dict[str, int]) -> None:
    graph = expanded(ffn, False)
    flat = unroll(graph, {"layer": sizes["L"], "step": sizes["T"] - 1})
    sums = [total(t.amount for t in work_terms(g, model)).evaluate(sizes) for g in (graph, flat)]
    assert sums[0] == sums[1]


def with_sums(sizes: Mapping[str, int], value: Max) -> dict[str, Fraction | int]:
    """Sizes, and the values of the sums of logs that occur, added up term by term."""
    out: dict[str, Fraction | int] = dict(sizes)
    for name in sorted(n for n in value.symbols if "(" in n):
        e = parse_text(name)
        assert isinstance(e, Sum)
        steps = int(single_form(e.upper).evaluate(sizes))
        body = single_form(e.body)
        out[name] = sum((body.evaluate({**sizes, e.index: t}) for t in range(1, steps + 1)), Fraction(0))
    return out


LITERAL_DEPTH = replace(FULL, exact_depth=False)


@cache
def derived_depth(ffn: str, model: CostModel) -> Max:
    return as_max(depth(expanded(ffn, False), DepthRule(model, FACTORS)))


@pytest.mark.parametrize("model", [PAPER, LITERAL_DEPTH], ids=["products", "every operation"])
@settings(max_examples=15, deadline=None)
@given(sizes=small)
def test_depth_is_that_of_the_unrolled_graph(model: CostModel, sizes: dict[str, int]) -> None:
    value = derived_depth("dense", model)
    flat = unroll(expanded("dense", False), {"layer": sizes["L"], "step": sizes["T"] - 1})
    wanted = as_max(depth(flat, DepthRule(model, FACTORS))).evaluate(sizes)
    assert math.isclose(value.evaluate(with_sums(sizes, value)), wanted, rel_tol=1e-9)


def test_depth_is_a_chain_through_all_tokens() -> None:
    logs = {"d": 4, "d_ff": 1, "h": -1}
    layer = total(log2(symbol(n)) * k for n, k in logs.items())
    chain = symbol("T") * (symbol("L") * layer + log2(symbol("d"))) + symbol("L") * log2(symbol("S"))
    (sum_of_logs,) = (n for n in generation_depth(HALF).value.symbols if "(" in n)
    assert sum_of_logs == "Sum(log(S + t), (t, 1, T - 1))"
    assert generation_depth(HALF).value == Max.of(chain + symbol("L") * symbol(sum_of_logs))


def test_the_depth_of_the_blocks_alone_leaves_the_unembeddings_out() -> None:
    (every,), (blocks,) = (generation_depth(replace(HALF, blocks_only=only)).value.members for only in (False, True))
    assert every - blocks == symbol("T") * log2(symbol("d"))


def test_one_token_is_the_depth_of_the_prompts_pass() -> None:
    value = generation_depth(HALF).value
    alone = as_max(depth(generation(SIZES), DepthRule(PAPER, FACTORS), ["first"]))
    sizes = {"S": 8, "T": 1, "L": 3, "d": 16, "h": 4, "d_ff": 64}
    assert value.evaluate(with_sums(sizes, value)) == alone.evaluate(sizes)


def test_ceilings_of_a_growing_context_have_no_closed_form() -> None:
    with pytest.raises(GraphError, match=r"ceil_log.* has no normal form.*give the steps a number"):
        depth(expanded("dense", False), DepthRule(FULL, FACTORS))


def occurrences(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        if isinstance(node.op, Repeat):
            yield from occurrences(node.op.body)
        else:
            yield node


@pytest.mark.parametrize("tokens", [2, 10**12])
def test_every_cost_rule_is_asked_once_however_many_tokens_there_are(
    tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def counting(graph: Graph, node: Node, model: CostModel) -> Cost:
        asked.append((graph.name, node.name))
        return cost(graph, node, model)

    monkeypatch.setattr("derive.work.cost", counting)
    graph = generation(SIZES)
    amount = total(t.amount for t in work_terms(graph, PAPER)) / symbol("B")
    assert len(asked) == sum(1 for _ in occurrences(graph))
    fed = tokens - 1
    context = fed * TOY["S"] + fed * (fed + 1) // 2
    decoded = fed * (2 * (4 * 16 + 2 * 32) + 80) + 4 * 4 * context
    assert amount.evaluate({**TOY, "T": tokens}) == 2 * 3 * (4 * 16 + 2 * 32 + 12) + 80 + decoded


# -- remainders -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("measure", [(prefill_work, prefill_remainder), (decode_work, decode_remainder)])
def test_products_and_remainder_are_the_whole(measure: tuple[object, object]) -> None:
    products, rest = measure
    every = replace(HALF, model=replace(PAPER, gemm_only=False))
    assert callable(products)
    assert callable(rest)
    (p,), (r,), (w,) = (m.value.members for m in (products(HALF), rest(HALF), products(every)))
    assert p + r == w


def test_steps_add_up() -> None:
    for step, whole in ((step_work, decode_work), (step_remainder, decode_remainder)):
        (each,), (all_,) = step(HALF).value.members, whole(HALF).value.members
        assert over_steps(each) == all_
        assert any(isinstance(x, Log) or x == "t" for m in each.terms for x, _ in m)


def test_softmax_costs_every_head_and_the_blocks_alone_choose_no_token() -> None:
    blocks = replace(HALF, blocks_only=True)
    (rest,) = prefill_remainder(blocks).value.members
    assert form("3*L*S**2*h").terms.items() <= rest.terms.items()
    assert "V" not in rest.symbols
    assert "V" in prefill_remainder(HALF).value.symbols


# -- memory -----------------------------------------------------------------------------------------------------------
def test_the_cache_holds_keys_and_values_of_all_positions_but_the_last() -> None:
    assert cache_per_token(HALF) == form("2*L*d")
    assert cache_memory(HALF).value == Max.of(form("2*B*L*d*(S + T - 1)"))


# -- what is refused --------------------------------------------------------------------------------------------------
def test_only_a_policy_generates_and_no_scheme_cuts_the_one_position_of_a_step() -> None:
    with pytest.raises(GraphError, match="a value model generates nothing; ask for the policy"):
        generation_work(replace(HALF, role=VALUE))
    with pytest.raises(GraphError, match="scheme Sequence: a decode step has one position, which cannot be cut"):
        generation_depth(replace(HALF, scheme="Sequence"))
