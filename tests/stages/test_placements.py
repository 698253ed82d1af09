"""Placements: laws of work, depth and memory, and brute-force execution with a clock."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from derive.convex import pruned
from derive.forms import Form, Max, symbol
from derive.period import period
from derive.placements import (
    StageQuestion,
    depth_in_waves,
    queues,
    stage_depth,
    stage_memory,
    stage_work,
    states,
)
from graphs.errors import GraphError
from graphs.placements import Group, Placement, Seat, placement
from graphs.placements import placements as known
from graphs.stages import Options
from graphs.stages.stage import ASSESSMENT, GENERATION, STAGES, TRAINING
from tests.stages.examples import graphs, placements
from tests.stages.simulate import Memory, average_period, finish_times

SLOWLY = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
NAMES = sorted(known())
OTHERS = [n for n in NAMES if n != "shared-actor-critic"]
ALGORITHMS = ("PPO", "GRPO", "DPO")
numbers = st.integers(1, 9)


def costs(q: StageQuestion, table: dict[str, int]) -> dict[str, int]:
    """Depth of each invocation under values of the opaque costs."""
    return {n.name: int(q.blocks.depth(n, q.model(n)).evaluate(table)) for n in q.graph.invocations}


def opaque(q: StageQuestion, data: st.DataObject) -> dict[str, int]:
    names = {s for n in q.graph.invocations for s in q.blocks.depth(n, q.model(n)).symbols}
    return {s: data.draw(numbers, label=s) for s in sorted(names)}


# -- against a clock ---------------------------------------------------------------------------------------------------
@SLOWLY
@given(graphs(), placements(), st.data())
def test_depth_is_when_the_last_node_is_over(graph, place, data) -> None:
    q = StageQuestion(graph, place)
    table = opaque(q, data)
    clock = finish_times(graph, place, costs(q, table), 1)[0]
    assert stage_depth(q).value.evaluate(table) == max(clock.values())


@SLOWLY
@given(graphs(largest=3), st.integers(0, 2), st.data())
def test_period_is_the_average_time_of_an_iteration(graph, staleness, data) -> None:
    q = StageQuestion(graph, data.draw(placements(staleness)))
    table = opaque(q, data)
    trains = any(n.stage == TRAINING for n in graph.invocations)
    assume(trains or queues(q))  # else nothing holds the next iteration back
    found = period(q).value.evaluate(table)
    busy = average_period(graph, q.placement, costs(q, table))
    assert found == busy


@lru_cache(maxsize=32)
def declared(algorithm: str, name: str, staleness: int) -> tuple[StageQuestion, Max]:
    q = StageQuestion(algorithm, replace(placement(name), schemes=(), staleness=staleness))
    return q, period(q).value


@pytest.mark.parametrize("algorithm", ["PPO", "GRPO"])
@pytest.mark.parametrize("name", ["asynchronous", "combined"])
@settings(max_examples=25)
@given(st.integers(0, 3), st.data())
def test_declared_overlap_runs_at_its_period(algorithm, name, staleness, data) -> None:
    q, found = declared(algorithm, name, staleness)
    table = opaque(q, data)
    assert found.evaluate(table) == average_period(q.graph, q.placement, costs(q, table))


@SLOWLY
@given(graphs(largest=3), placements(), st.data())
def test_peak_memory_is_that_of_the_heaviest_instant_of_any_order(graph, place, data) -> None:
    q = StageQuestion(graph, place, residency="invocation")
    for phase in place.phases:
        nodes = [n for n in graph.invocations if n.stage in phase]
        size = {n.name: data.draw(numbers, label=n.name) for n in nodes if n.run.value != "backward"}
        expected = Memory(graph, place, phase, {n.name: size.get(n.name, 0) for n in nodes}).explore()
        found: dict[str, int] = {}
        for alive in states(q, nodes):
            for group in {b.group for b in alive}:
                here = [b.where.removeprefix("buffers of ") for b in alive if b.group == group]
                found[group] = max(found.get(group, 0), sum(size.get(name, 0) for name in here))
        assert {g: v for g, v in found.items() if v} == {g: v for g, v in expected.items() if v}


@pytest.mark.parametrize("waves", [1, 2, 5])
@given(st.integers(1, 9), st.integers(1, 9))
def test_waves_take_the_time_of_a_pipeline_of_two(waves, a, b) -> None:
    first = second = 0
    for _ in range(waves):
        first += a
        second = max(first, second) + b
    table = {"D_gen(pi)": a, "D_f(ref)": b, "D_f(R)": 1, "D_f(V)": 1}

    def found(place: Placement) -> Fraction:
        return depth_in_waves(StageQuestion("PPO", place), Form.constant(waves)).evaluate(table)

    fused = placement("stage-fusion")
    assert found(fused) == second
    assert found(placement("disaggregated")) == waves * (a + b)
    one_group = Group("all", exclusive=True)  # where the three models assess one after the other
    assert found(replace(fused, groups=(one_group,))) == waves * (a + b + 2)


# -- laws --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("stage", [None, *STAGES])
def test_work_is_the_same_under_every_placement_of_the_same_models(algorithm, stage) -> None:
    found = {stage_work(StageQuestion(algorithm, placement(n), stage)).value for n in OTHERS}
    assert len(found) == 1
    shared = stage_work(StageQuestion(algorithm, placement("shared-actor-critic"), stage)).value
    assert (shared in found) == (not any("pi" in s or "(V)" in s for s in shared.symbols | next(iter(found)).symbols))


@SLOWLY
@given(graphs(), placements(), st.data())
def test_a_group_for_every_model_is_never_slower_than_one_for_all(graph, place, data) -> None:
    apart, together = (StageQuestion(graph, placement(n)) for n in ("disaggregated", "baseline"))
    table = opaque(apart, data)
    for stage in (None, *STAGES):
        slow, fast = (stage_depth(replace(q, stage=stage)).value.evaluate(table) for q in (together, apart))
        assert fast <= slow
    assert stage_depth(together).value.evaluate(table) == sum(costs(together, table).values())


@SLOWLY
@given(graphs(), placements(), st.data())
def test_fewer_barriers_are_never_deeper(graph, place, data) -> None:
    q = StageQuestion(graph, place)
    table = opaque(q, data)
    fused = replace(q, placement=replace(place, barriers=place.barriers[1:]))
    assert stage_depth(fused).value.evaluate(table) <= stage_depth(q).value.evaluate(table)


def test_fusing_onto_one_exclusive_group_can_be_deeper() -> None:
    """Its edges are not among those of the unfused schedule: the group's queue is new."""
    apart = StageQuestion("PPO", placement("disaggregated"))
    fused = replace(placement("stage-fusion"), groups=(Group("all", exclusive=True),))
    table = dict.fromkeys(stage_depth(apart).value.symbols | {"D_f(pi)", "D_b(V)"}, 5)
    assert stage_depth(replace(apart, placement=fused)).value.evaluate(table) > stage_depth(apart).value.evaluate(table)


@SLOWLY
@given(graphs(), st.integers(0, 3), st.data())
def test_a_period_is_at_least_what_one_exclusive_group_has_to_do_and_at_most_an_iteration(graph, stale, data) -> None:
    q = StageQuestion(graph, data.draw(placements(stale)))
    table = opaque(q, data)
    times, found = costs(q, table), period(q).value.evaluate(table)
    for queue in queues(q).values():
        assert found >= sum(times[n.name] for n in queue)
    assert found <= sum(times.values())


def three_groups(staleness: int) -> StageQuestion:
    groups = tuple(Group(s) for s in STAGES)
    place = Placement(
        "three", "three", groups, tuple(Seat(s, "*", s) for s in STAGES), source="test", staleness=staleness
    )
    return StageQuestion("GRPO", place)


@pytest.mark.parametrize("staleness", [0, 1, 2, 5])
@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 50), st.integers(1, 50), st.integers(1, 50))
def test_three_groups_with_staleness(staleness, gen, ref, reward, forward, backward) -> None:
    names = ("D_gen(pi)", "D_f(ref)", "D_f(R)", "D_f(pi)", "D_b(pi)")
    table = dict(zip(names, (gen, ref, reward, forward, backward), strict=True))
    g, a, t = gen, ref + reward, forward + backward
    found = period(three_groups(staleness)).value.evaluate(table)
    assert found == max(g, a, t, Fraction(g + a + t, staleness + 1))


def test_a_mean_of_members_is_pruned_from_a_period() -> None:
    assert len(period(three_groups(1)).value.members) == 4
    assert len(period(three_groups(2)).value.members) == 3


@given(st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=6), st.data())
def test_pruning_keeps_the_maximum(rows, data) -> None:
    x = [symbol(f"D_f({m})") for m in ("pi", "R", "V")]
    value = Max.of(*(a * x[0] + b * x[1] + c * x[2] for a, b, c in rows))
    less = pruned(value)
    assert set(less.members) <= set(value.members)
    for _ in range(5):
        table = {name: data.draw(numbers) for name in ("D_f(pi)", "D_f(R)", "D_f(V)")}
        assert less.evaluate(table) == value.evaluate(table)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("residency", ["invocation", "stage", "all"])
def test_memory_grows_with_every_size_and_stages_that_alternate_are_not_added(algorithm, name, residency) -> None:
    q = StageQuestion(algorithm, placement(name), residency=residency)
    for member in stage_memory(q).value.members:
        assert all(c > 0 and all(p > 0 for _, p in m) for m, c in member.terms.items())
        names = " ".join(member.symbols)
        assert not ("M_KV" in names and "M_Act" in names)
    whole = stage_memory(q).value
    stages = Max.of(*(stage_memory(replace(q, stage=s)).value for s in STAGES))
    assert pruned(stages) == pruned(whole)


def test_a_model_that_is_there_while_it_trains_has_its_gradient_and_optimizer_state_with_it() -> None:
    value = stage_memory(StageQuestion("GRPO", stage=TRAINING, residency="invocation")).value
    assert value.text == "B*K*M_Act(pi)*m + 4*params(pi)"


@pytest.mark.parametrize("name", NAMES)
def test_more_residency_is_more_memory(name) -> None:
    table = {"B": 2, "K": 3, "m": 5, "M_KV": 7}
    sizes = []
    for residency in ("invocation", "stage", "all"):
        q = StageQuestion("PPO", placement(name), ASSESSMENT, residency=residency)
        value = stage_memory(q).value
        sizes.append(value.evaluate({**dict.fromkeys(value.symbols, 11), **table}))
    assert sizes == sorted(sizes)


def test_sequential_training_holds_one_models_activations_and_a_joint_update_both() -> None:
    def members(**options: bool) -> list[set[str]]:
        q = StageQuestion("PPO", stage=TRAINING, options=Options(**options))
        found = stage_memory(q).value.members
        return sorted(({s for s in f.symbols if "M_Act" in s} for f in found), key=sorted)

    assert members() == [{"M_Act(V)"}, {"M_Act(pi)"}]
    assert members(joint_update=True) == [{"M_Act(V)", "M_Act(pi)"}]


def test_without_barriers_training_forwards_overlap_assessment() -> None:
    q = StageQuestion("PPO", replace(placement("stage-fusion"), barriers=()))
    behind = StageQuestion("PPO", placement("disaggregated"))
    table = dict.fromkeys(stage_depth(behind).value.symbols, 4)
    assert stage_depth(q).value.evaluate(table) == 12
    assert stage_depth(behind).value.evaluate(table) == 16


# -- refusals ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"groups": (Group("all"), Group("all"))}, "two groups are called 'all'"),
        ({"seats": (Seat("*", "*", "elsewhere"),)}, "no group 'elsewhere'"),
        ({"seats": (Seat("*", "judge", "all"),)}, "no seat can be for 'judge'"),
        ({"barriers": ((TRAINING, GENERATION),)}, "a barrier stands between two stages"),
        ({"schemes": ((TRAINING, ("magic",)),)}, "is no scheme with costs for a stage"),
        ({"schemes": ((TRAINING, ("context",)),)}, "'context' is no scheme with costs for a stage"),
        ({"schemes": (("Sleep", ("tensor",)),)}, "unknown stage 'Sleep'"),
        ({"staleness": 1}, "share a group"),
        ({"staleness": -1}, "below 0"),
    ],
)
def test_a_bad_declaration_is_refused(change, says) -> None:
    with pytest.raises(GraphError, match=says):
        replace(placement("baseline"), **change)


def test_a_role_without_a_seat_is_refused() -> None:
    place = replace(placement("baseline"), seats=(Seat("*", "actor", "all"),))
    with pytest.raises(GraphError, match="no seat for the reference in Assessment"):
        stage_depth(StageQuestion("PPO", place))
