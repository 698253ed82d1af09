"""Laws of memory for every scheme: units, widths, monotony, the order of the stages of ZeRO, degree one."""

from __future__ import annotations

from dataclasses import asdict, replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.costs.model import PAPER
from derive.costs.rule import FREE
from derive.footprint import SAVED, STATE, footprint
from derive.forms import Form, symbol
from derive.ledger import under
from derive.measure import Question, degrees, held, memory
from derive.memory import Widths, in_bytes, state_roles
from derive.units import BYTES, ELEMENTS, Quantity
from derive.work import Term
from graphs.axes import Role
from graphs.blocks.decoder import DENSE, EXPERTS
from graphs.errors import GraphError
from graphs.schemes import schemes
from graphs.transforms.recompute import Recompute
from tests.memory.cases import RATE

SCHEMES = sorted(schemes())
NAMES = ("B", "m", "L", "d", "h", "d_ff", "V", "E", "E_a", "d_e", "P_d", "P_p", "P_t", "P_c", "P_e", "P_s")
questions = st.builds(
    Question,
    ffn=st.sampled_from([DENSE, EXPERTS]),
    scheme=st.sampled_from(SCHEMES),
    recompute=st.sampled_from(list(Recompute)),
    dropout=st.sampled_from([Fraction(0), RATE]),
    copies=st.integers(1, 6),
)
sizes = st.fixed_dictionaries({n: st.integers(1, 64) for n in NAMES})
widths = st.builds(Widths, **{name: st.integers(1, 8) for name in asdict(Widths())})


# -- units ------------------------------------------------------------------------------------------------------------
def test_elements_and_bytes_do_not_add_up() -> None:
    elements, in_all = Quantity.of(symbol("d"), ELEMENTS), Quantity.of(2 * symbol("d"), BYTES)
    with pytest.raises(GraphError, match="cannot add bytes to elements; convert one of them first"):
        elements + in_all
    assert (elements.in_bytes(2) + in_all).amount.text == "4*d"


def test_a_footprint_knows_its_unit() -> None:
    q = Question()
    with pytest.raises(GraphError, match="cannot add"):
        footprint(q).total() + footprint(q, Widths()).total()
    with pytest.raises(GraphError, match="cannot add"):
        footprint(q).per_layer() + footprint(q, Widths()).total("weights")


@pytest.mark.parametrize("name", asdict(Widths()))
def test_a_width_is_at_least_one_byte(name: str) -> None:
    with pytest.raises(GraphError, match=f"an element of {name} cannot take 0 bytes"):
        replace(Widths(), **{name: 0})


def test_what_is_not_kept_takes_no_bytes() -> None:
    with pytest.raises(GraphError, match="scores is not kept from pass to pass"):
        in_bytes(Term("scores", FREE.work, "forward", None, in_loop=True), Widths())


@settings(max_examples=15)
@given(q=questions, chosen=widths, at=sizes)
def test_bytes_are_elements_times_the_width_of_their_group(q: Question, chosen: Widths, at: dict[str, int]) -> None:
    for name, width in asdict(chosen).items():
        elements, in_all = footprint(q).total(name), footprint(q, chosen).total(name)
        assert in_all == elements.in_bytes(width)
    assert footprint(q, chosen).total().amount.evaluate(at) >= footprint(q).total().amount.evaluate(at)


# -- sums -------------------------------------------------------------------------------------------------------------
@settings(max_examples=15)
@given(q=questions.filter(lambda q: "P_p" not in degrees(q.scheme)))
def test_the_groups_add_up_to_the_whole_and_the_whole_is_the_tables_memory(q: Question) -> None:
    found = footprint(q)
    parts = [found.total(name) for name in (*STATE, *SAVED)]
    assert Quantity.total(parts, ELEMENTS) == found.total()
    assert found.total().amount == memory(q).value
    (layer,) = found.per_layer().amount.members
    outside = [t.amount for t in found.terms if t.phase == "saved" and not t.in_loop]
    saved = found.total(*SAVED).amount.members[0]
    assert layer * found.layers + sum(outside, Form.constant(0)) == saved


@pytest.mark.parametrize(
    ("copies", "expected"),
    [(1, (1, 0, 0)), (2, (1, 1, 0)), (4, (1, 1, 2)), (5, (1, 1, 3))],
)
def test_values_of_a_parameter_are_itself_its_gradient_and_optimizer_state(copies: int, expected) -> None:
    roles = state_roles(copies)
    assert tuple(roles.get(r, 0) for r in (Role.PARAMETER, Role.PARAMETER_GRADIENT, Role.OPTIMIZER)) == expected


def test_no_value_of_a_parameter_is_refused() -> None:
    with pytest.raises(GraphError, match="it takes at least one, the parameter itself"):
        state_roles(0)


def test_without_the_assumption_of_four_copies_there_is_no_optimizer_state() -> None:
    literal, adam = under(Question(), []), under(Question(), ["adam-four-copies"])
    assert not [t for t in held(literal) if t.role is Role.OPTIMIZER]
    (less,), (more,) = memory(literal).value.members, memory(adam).value.members
    assert more - less == sum((t.amount for t in held(adam) if t.role is Role.OPTIMIZER), Form.constant(0))


# -- order ------------------------------------------------------------------------------------------------------------
@settings(max_examples=15)
@given(q=questions, at=sizes, name=st.sampled_from(NAMES[:10]))
def test_memory_grows_with_every_size(q: Question, at: dict[str, int], name: str) -> None:
    value = memory(q).value
    assert value.evaluate(at | {name: at[name] + 1}) >= value.evaluate(at)


@settings(max_examples=15)
@given(q=questions, at=sizes, name=st.sampled_from(NAMES[10:]))
def test_a_rank_of_more_ranks_keeps_no_more(q: Question, at: dict[str, int], name: str) -> None:
    value = memory(q).value
    assert value.evaluate(at | {name: 2 * at[name]}) <= value.evaluate(at)


@settings(max_examples=15)
@given(q=questions, at=sizes)
def test_every_stage_of_zero_keeps_less_than_the_one_before(q: Question, at: dict[str, int]) -> None:
    q = replace(q, copies=5)
    at = at | {"P_d": at["P_d"] + 1}
    stages = [
        footprint(replace(q, scheme=name)).total(*STATE).amount.evaluate(at)
        for name in ("Data", "ZeRO-1", "ZeRO-2", "ZeRO-3")
    ]
    assert stages == sorted(stages, reverse=True)
    assert len(set(stages)) == 4
    saved = {footprint(replace(q, scheme=name)).total(*SAVED) for name in ("Data", "ZeRO-1", "ZeRO-2", "ZeRO-3")}
    assert len(saved) == 1


@settings(max_examples=15)
@given(q=questions, at=sizes)
def test_cutting_positions_between_the_products_keeps_no_more_than_tensor_parallelism(q, at: dict[str, int]) -> None:
    tensor, sequence = (footprint(replace(q, scheme=n)).per_layer().amount.evaluate(at) for n in ("Tensor", "Sequence"))
    assert (sequence <= tensor) if at["P_t"] > 1 else (sequence == tensor)


def test_parameters_that_stay_gathered_count_as_weights_wherever_one_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only the blocks are asked for, as parameters always do."""
    kept = replace(schemes()["ZeRO-3"], name="gathered", gathered="kept")
    monkeypatch.setattr("derive.measure.schemes", lambda: schemes() | {"gathered": kept})
    for q in (Question(scheme="gathered"), Question(scheme="gathered", blocks_only=True)):
        whole = footprint(Question()).total("weights").amount
        shards = footprint(Question(scheme="ZeRO-3")).total("weights").amount
        assert footprint(q).total("weights").amount == whole + shards


# -- all ranks --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scheme", ["ZeRO-3", "HSDP"])
def test_sharded_state_is_kept_once_in_a_group_and_by_every_group(scheme: str) -> None:
    whole = footprint(Question()).total(*STATE).amount
    groups = symbol("P_d") if scheme == "HSDP" else Form.constant(1)
    assert footprint(Question(scheme=scheme, over_all_ranks=True)).total(*STATE).amount == whole.scale(groups)


@settings(max_examples=15)
@given(q=questions)
def test_degree_one_keeps_what_one_device_keeps(q: Question) -> None:
    ones = {mesh: Form.constant(1) for mesh in degrees(q.scheme)}
    base = footprint(replace(q, scheme="None"))
    for name in (*STATE, *SAVED):
        split = footprint(q).total(name).amount.substitute(ones)
        if "P_p" not in ones:
            assert split == base.total(name).amount
    assert footprint(q).per_layer().amount.substitute(ones) == base.per_layer().amount


def test_how_operations_are_counted_does_not_change_what_is_kept() -> None:
    full = replace(PAPER, name="full", gemm_only=False, causal="exact", dot_product="2k-1")
    assert memory(Question(dropout=RATE, model=full)).value == memory(Question(dropout=RATE)).value
