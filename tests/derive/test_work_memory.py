"""Work and memory: what the canonical decoder costs, that nothing is lost on the way, and loops against unrolling."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.costs.model import FULL, PAPER, CostModel
from derive.forms import Form, symbol, total
from derive.memory import ADAM_COPIES, saved_terms, state_terms
from derive.work import work_terms
from graphs.blocks.decoder import EXPERTS
from graphs.ir import Graph
from graphs.models.roles import ROLES, forward
from graphs.schemes import schemes
from graphs.sizes import Sizes
from graphs.transforms.backward import training
from graphs.transforms.recompute import Recompute
from tests.derive.test_depth import FFNS, Unrolled, graph_of
from tests.strategies import arrays_for, model_sizes, recipes

SIZES = Sizes.canonical()
NO_SCHEME = schemes()["None"]
B, m, L, d, h, d_ff, V = (symbol(n) for n in ("B", "m", "L", "d", "h", "d_ff", "V"))
E, E_a, d_e = (symbol(n) for n in ("E", "E_a", "d_e"))


def work(graph: Graph, model: CostModel = PAPER, phases: Iterable[str] = ("forward", "recompute", "backward")) -> Form:
    return total(t.amount for t in work_terms(graph, model) if t.phase in phases)


def trained(role: str = "policy", ffn: str = "dense", recompute: Recompute = Recompute.NONE) -> Graph:
    return training(forward(SIZES, ROLES[role], FFNS[ffn], loss=True), recompute=recompute)


# -- what the decoder costs -------------------------------------------------------------------------------------------
LAYERS = B * m * L * (4 * d**2 + 2 * d * d_ff + m * d)


def test_forward_work_of_the_canonical_decoder() -> None:
    assert work(forward(SIZES)) == 2 * LAYERS + 2 * B * m * V * d


def test_training_work_of_the_canonical_decoder() -> None:
    assert work(trained()) == 6 * LAYERS + 6 * B * m * V * d


@pytest.mark.parametrize(("role", "head"), [("reward", 2 * B * d), ("value", 2 * B * m * d)])
def test_a_head_with_one_output_reads_the_last_token_or_every_token(role: str, head: Form) -> None:
    assert work(forward(SIZES, ROLES[role])) == 2 * LAYERS + head


@pytest.mark.parametrize("role", ROLES)
def test_backward_work_is_exactly_twice_forward_work(role: str) -> None:
    graph = trained(role)
    assert work(graph, phases=["backward"]) == 2 * work(graph, phases=["forward"])


def test_recomputation_at_the_layer_boundary_adds_the_layers_once_more_but_for_their_last_product() -> None:
    """Nothing reads a layer's output again, so its last product, 2 B m d d_ff, is not done twice."""
    graph = trained(recompute=Recompute.LAYER_BOUNDARY)
    assert work(graph, phases=["recompute"]) == 2 * LAYERS - 2 * B * m * L * d * d_ff
    assert work(graph, phases=["forward", "backward"]) == work(trained())


def test_work_of_an_expert_layer_counts_active_experts_a_router_over_all_and_their_combination() -> None:
    experts = 2 * B * m * L * (2 * E_a * d * d_e + d * E + E_a * d)
    attention = 2 * B * m * L * (4 * d**2 + m * d)
    assert work(forward(SIZES, ffn=EXPERTS)) == attention + experts + 2 * B * m * V * d


# -- conservation -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("causal", "pairs"), [("half", m**2 / 2), ("exact", m * (m + 1) / 2), ("dense", m**2)])
def test_the_quadratic_term_is_two_products_over_the_visible_pairs(causal: str, pairs: Form) -> None:
    model = CostModel("attention", causal=causal)
    found = total(t.amount for t in work_terms(forward(SIZES), model) if t.where in ("blocks/scores", "blocks/mix"))
    assert found == 2 * 2 * B * L * d * pairs


def test_a_loop_costs_its_body_times_its_iterations_and_every_part_is_named_once() -> None:
    terms = list(work_terms(forward(SIZES), PAPER))
    (loop,) = (n for n in forward(SIZES).nodes if n.name == "blocks")
    body = work(loop.op.body)  # type: ignore[attr-defined]
    assert total(t.amount for t in terms if t.in_loop) == L * body
    assert {t.where for t in terms if not t.in_loop} == {"unembedding"}
    assert len({t.where for t in terms}) == len(terms)


@pytest.mark.parametrize("model", ["paper", "full"])
@pytest.mark.parametrize("phase", ["forward", "none", "selective", "layer_boundary"])
@pytest.mark.parametrize("ffn", FFNS)
@settings(max_examples=4)
@given(sizes=model_sizes(largest=64))
def test_work_is_the_sum_over_the_unrolled_graph(ffn: str, phase: str, model: str, sizes: dict[str, int]) -> None:
    graph = graph_of("policy", ffn, phase, model)
    rules = {"paper": PAPER, "full": FULL}[model]
    assert work(graph, rules).evaluate(sizes) == Unrolled(graph, sizes, rules).work


@given(recipe=recipes(), layers=st.integers(1, 5))
def test_work_of_a_random_loop_is_the_sum_over_its_unrolling(recipe, layers: int) -> None:
    sizes = {"L": layers, "d": 6, "h": 2, "d_ff": 5, "V": 7}
    assert work(recipe.graph(), FULL).evaluate(sizes) == Unrolled(recipe.graph(), sizes, FULL).work


# -- memory -----------------------------------------------------------------------------------------------------------
def saved(graph: Graph, in_loop: bool) -> Form:
    return total(t.amount for t in saved_terms(graph, PAPER) if t.in_loop == in_loop)


def test_saved_activations_per_layer_are_what_pytorch_saves() -> None:
    assert saved(trained(), in_loop=True) == L * (8 * B * m * d + 2 * B * m * d_ff + B * h * m**2 + 4 * B * m)


def test_each_saved_activation_is_named() -> None:
    """Per layer: two norm inputs and outputs, q, k, v, mixed; GELU's two sides; probabilities; means and rstds."""
    sizes: dict[Form, int] = {}
    for term in saved_terms(trained(), PAPER):
        if term.in_loop:
            sizes[term.amount / L] = sizes.get(term.amount / L, 0) + 1
    assert sizes == {B * m * d: 8, B * m * d_ff: 2, B * h * m**2: 1, B * m: 4}


def test_recomputation_at_the_layer_boundary_keeps_one_tensor_per_layer() -> None:
    assert saved(trained(recompute=Recompute.LAYER_BOUNDARY), in_loop=True) == L * B * m * d


def test_outside_the_layers_the_last_norm_and_the_probabilities_are_kept() -> None:
    """Input, output, mean and reciprocal deviation of the last norm, and the probabilities of every token."""
    assert saved(trained(), in_loop=False) == 2 * B * m * d + 2 * B * m + B * m * V


def test_an_expert_layer_keeps_activations_of_active_experts_alone() -> None:
    """Instead of 2 B m d_ff: GELU's two sides and each expert's result, the kept scores and the gates."""
    shared = 8 * B * m * d + B * h * m**2 + 4 * B * m
    assert saved(trained(ffn="experts"), in_loop=True) == L * (shared + B * m * E_a * (2 * d_e + d + 2))


@pytest.mark.parametrize(("ffn", "feed_forward"), [("dense", 2 * d * d_ff), ("experts", d * E + 2 * E * d * d_e)])
def test_parameters_are_the_layers_the_tied_embedding_and_the_norms(ffn: str, feed_forward: Form) -> None:
    graph = forward(SIZES, ffn=FFNS[ffn])
    parameters = L * (4 * d**2 + feed_forward + 2 * d) + V * d + d
    assert total(t.amount for t in state_terms(graph, NO_SCHEME, 1)) == parameters
    assert total(t.amount for t in state_terms(graph, NO_SCHEME)) == ADAM_COPIES * parameters


@pytest.mark.parametrize("ffn", FFNS)
def test_parameter_elements_are_those_of_the_arrays_that_a_run_needs(ffn: str) -> None:
    sizes = {"B": 2, "m": 3, "L": 2, "d": 4, "h": 2, "d_ff": 5, "V": 6, "E": 3, "E_a": 2, "d_e": 2}
    graph = forward(SIZES, ffn=FFNS[ffn])
    arrays = arrays_for(graph, sizes)
    held = sum(arrays[name].size for name, _ in graph.parameters())
    assert total(t.amount for t in state_terms(graph, NO_SCHEME, 1)).evaluate(sizes) == held
