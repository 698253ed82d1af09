"""What an answer covers: scope, views and conventions mean what they say, for every scheme."""

from __future__ import annotations

from dataclasses import replace

import pytest

from derive.costs.model import PAPER
from derive.forms import symbol, total
from derive.measure import Question, backward_depth, degrees, forward_depth, memory, training_depth, work
from derive.work import work_terms
from graphs.blocks.decoder import ATTENTIONS, EXPERTS, FEED_FORWARDS
from graphs.models.roles import forward
from graphs.schemes import Scheme, declared, schemes
from graphs.transforms.backward import training
from graphs.transforms.partition import partition
from graphs.transforms.recompute import Recompute

ALL = replace(PAPER, name="all", gemm_only=False)
SCHEMES = sorted(schemes())
MEASURES = (work, training_depth, memory)


@pytest.mark.parametrize("model", [PAPER, ALL])
@pytest.mark.parametrize("measure", MEASURES)
def test_blocks_only_leaves_the_vocabulary_to_the_parameters(measure, model) -> None:
    found = measure(Question(blocks_only=True, model=model)).value
    assert ("V" in found.symbols) == (measure is memory)
    assert "V" in measure(Question(model=model)).value.symbols


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("measure", MEASURES)
def test_degree_one_gives_back_the_base_cost(measure, scheme) -> None:
    question = Question(blocks_only=True, collectives=True, over_all_ranks=True)
    ones = {mesh: symbol("B") / symbol("B") for mesh in degrees(scheme)}
    split = measure(replace(question, scheme=scheme)).value.substitute(ones)
    base = measure(question).value
    boundary = symbol("V") * symbol("d") * 4 if measure is memory and "P_p" in ones else 0
    assert {f - boundary for f in split.members} == set(base.members)


@pytest.mark.parametrize("scheme", ["Data", "Pipeline", "Tensor", "Context", "Sequence", "3D"])
def test_work_over_all_ranks_is_conserved(scheme) -> None:
    question = Question(blocks_only=True, over_all_ranks=True)
    assert work(replace(question, scheme=scheme)).value == work(question).value


@pytest.mark.parametrize("measure", [work, memory])
@pytest.mark.parametrize("scheme", ["Context", "Ring", "Expert", "Expert-A2A", "5D"])
def test_over_all_ranks_it_does_not_matter_which_rank_does_more_than_its_share(scheme, measure) -> None:
    one = declared()[scheme]
    ffn, attention = FEED_FORWARDS[one.ffn], ATTENTIONS[one.attention]
    question = Question(scheme=scheme, over_all_ranks=True, blocks_only=True, ffn=ffn, attention=attention)
    uneven = replace(PAPER, name="uneven", balanced_causal=False, balanced_routing=False)
    assert measure(replace(question, model=uneven)).value == measure(question).value


def test_zigzag_positions_share_the_causal_products_evenly_without_an_assumption() -> None:
    uneven = Question(model=replace(PAPER, name="uneven", balanced_causal=False), blocks_only=True)
    even = work(replace(uneven, model=PAPER, scheme="Context")).value
    entries = tuple(replace(e, layout="zigzag") for e in schemes()["Context"].entries)
    graph = partition(training(forward(uneven.sizes, loss=True)), Scheme("zigzag", entries, "test"))
    terms = [t for t in work_terms(graph, uneven.model) if t.in_loop]
    assert {total(t.amount for t in terms)} == set(even.members)
    assert work(replace(uneven, scheme="Context")).value != even


def test_expert_parallelism_repeats_all_but_the_experts() -> None:
    question = Question(ffn=EXPERTS, blocks_only=True, over_all_ranks=True)
    (base,), (split,) = work(question).value.members, work(replace(question, scheme="Expert")).value.members
    experts = sum(a for w, a in work(question).parts if "expert" in w or "combine" in w)
    assert split == symbol("P_e") * (base - experts) + experts


def test_global_depth_of_tensor_parallelism_is_the_sequential_one() -> None:
    question = Question(blocks_only=True, collectives=True, over_all_ranks=True)
    assert training_depth(replace(question, scheme="Tensor")).value == training_depth(question).value


def test_layer_boundaries_keep_one_value_a_block_and_repeat_the_forward_pass_but_for_its_last_product() -> None:
    question = Question(blocks_only=True, recompute=Recompute.LAYER_BOUNDARY)
    (saved,) = [f for w, f in memory(question).parts if w.startswith("blocks/")]
    assert saved.text == "B*L*d*m"
    again = work(question, ["recompute"]).value.members[0]
    last = sum(f for w, f in work(question, ["forward"]).parts if w == "blocks/ffn_down")
    assert again + last == work(question, ["forward"]).value.members[0]


def test_forward_and_backward_depth_add_up_where_nothing_overlaps() -> None:
    question = Question()
    both = forward_depth(question).value + backward_depth(question).value
    assert training_depth(question).value == both


@pytest.mark.parametrize("measure", MEASURES)
def test_the_parts_of_an_answer_add_up_to_it(measure) -> None:
    found = measure(Question(scheme="Tensor", blocks_only=True))
    assert {sum((f for _, f in found.parts), start=symbol("B") - symbol("B"))} == set(found.value.members)
