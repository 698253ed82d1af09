"""Pipeline schedules: traversal against a ticking simulation, laws of makespan, bubble and memory, refusals."""

from __future__ import annotations

import itertools
from fractions import Fraction

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphs.schedules as registry
from derive.pipeline_forms import CLOSED_FORMS
from derive.schedules import Durations, run_step, symbolic_makespan, time_graph
from graphs.errors import GraphError
from graphs.schedules import Kind, Pipeline, Schedule, Task, schedule_named, schedules
from graphs.schedules.schedule import SPLIT, WHOLE, task_graph
from tests.schedules.simulation import StuckError, needs, random_order, simulate

NAMES = ("1f1b", "gpipe", "interleaved", "zero-bubble")
counts = st.integers(1, 5)
ticks = st.integers(1, 4)


@st.composite
def pipelines(draw, name):
    stages, batches = draw(counts), draw(st.integers(1, 7))
    if name != "interleaved":
        return Pipeline(stages, batches)
    return Pipeline(stages, stages * draw(st.integers(1, 3)), draw(st.integers(1, 3)))


@st.composite
def runs(draw):
    """A schedule, a pipeline, whole durations (weight gradient part of the backward pass) and layers."""
    name = draw(st.sampled_from(NAMES))
    pipeline = draw(pipelines(name))
    weight = draw(ticks)
    durations = Durations(
        Fraction(draw(ticks)), Fraction(weight + draw(ticks)), Fraction(weight), Fraction(draw(st.integers(0, 3)))
    )
    layers = draw(st.lists(st.integers(1, 3), min_size=pipeline.chunks, max_size=pipeline.chunks))
    return schedule_named(name), pipeline, durations, layers


def plain(orders):
    return [[(t.kind.value, t.chunk, t.micro_batch) for t in order] for order in orders]


def tasks(orders):
    return [[Task(Kind(letter), chunk, batch) for letter, chunk, batch in order] for order in orders]


def length_of(durations, layers):
    split = int(durations.backward - durations.weight_gradient)
    lengths = {
        "F": int(durations.forward), "B": int(durations.backward), "I": split, "W": int(durations.weight_gradient),
    }  # fmt: skip
    return lambda task: lengths[task[0]] * layers[task[1]]


def even(name, stages, batches, virtual=1, forward=1, backward=2, weight=1):
    durations = Durations(Fraction(forward), Fraction(backward), Fraction(weight))
    return run_step(schedule_named(name), Pipeline(stages, batches, virtual), durations)


# -- traversal and simulation -----------------------------------------------------------------------------------------
@given(runs())
def test_traversal_gives_what_a_ticking_simulation_gives(run) -> None:
    schedule, pipeline, durations, layers = run
    step = run_step(schedule, pipeline, durations, layers)
    orders = plain(schedule.orders(pipeline))
    makespan, busy, most = simulate(orders, pipeline.chunks, length_of(durations, layers), int(durations.transfer))
    assert (step.makespan, step.busy, step.in_flight) == (makespan, tuple(busy), tuple(most))


@given(
    st.randoms(use_true_random=False), counts, counts, st.integers(1, 2), st.booleans(), st.integers(0, 2), st.data()
)
def test_any_order_that_can_run_takes_what_the_simulation_takes(r, stages, batches, virtual, split, wait, data) -> None:
    pipeline = Pipeline(stages, batches, virtual)
    kinds = SPLIT if split else WHOLE
    orders = random_order(r, stages, batches, virtual, [k.value for k in kinds])
    layers = data.draw(st.lists(st.integers(1, 3), min_size=pipeline.chunks, max_size=pipeline.chunks))
    durations = Durations(Fraction(2), Fraction(3), Fraction(1), Fraction(wait))
    step = time_graph(task_graph(pipeline, tasks(orders), kinds), pipeline, durations, layers)
    makespan, busy, most = simulate(orders, pipeline.chunks, length_of(durations, layers), wait)
    assert (step.makespan, step.busy, step.in_flight) == (makespan, tuple(busy), tuple(most))


@given(st.randoms(use_true_random=False), st.integers(2, 3), st.integers(1, 3))
def test_orders_are_refused_as_deadlocks_exactly_where_the_simulation_gets_stuck(r, stages, batches) -> None:
    orders = random_order(r, stages, batches, 1, "FB")
    for order in orders:
        if r.random() < 0.5:
            a, b = r.randrange(len(order)), r.randrange(len(order))
            order[a], order[b] = order[b], order[a]
    try:
        simulate(orders, stages, lambda task: 1)
    except StuckError:
        with pytest.raises(GraphError, match=r"deadlocks: .* -> .* on rank"):
            task_graph(Pipeline(stages, batches), tasks(orders))
    else:
        task_graph(Pipeline(stages, batches), tasks(orders))


@given(runs())
def test_no_step_is_shorter_than_a_chain_of_passes_or_the_work_of_a_rank(run) -> None:
    schedule, pipeline, durations, layers = run
    step = run_step(schedule, pipeline, durations, layers)
    there_and_back = (durations.forward + durations.of(schedule.kinds[1])) * sum(layers)
    assert step.makespan >= there_and_back + 2 * durations.transfer * (pipeline.chunks - 1) * (pipeline.stages > 1)
    assert step.makespan >= max(step.busy)
    assert step.useful + step.idle == pipeline.stages * step.makespan
    assert step.useful == pipeline.micro_batches * sum(layers) * (durations.forward + durations.backward)


@given(runs())
def test_the_graph_is_acyclic_and_its_resource_edges_are_the_orders(run) -> None:
    schedule, pipeline, _, _ = run
    graph = schedule.graph(pipeline)
    assert nx.is_directed_acyclic_graph(graph)
    assert len(graph) == len(schedule.kinds) * pipeline.chunks * pipeline.micro_batches
    resource = {(a, b) for a, b, says in graph.edges(data="resource") if says}
    assert resource == {pair for order in schedule.orders(pipeline) for pair in itertools.pairwise(order)}
    data = {(a, b) for a, b, says in graph.edges(data="data") if says}
    assert data | resource == set(graph.edges)
    assert {(plain([[a]])[0][0], plain([[b]])[0][0]) for a, b in data} == {
        (before, task)
        for order in plain(schedule.orders(pipeline))
        for task in order
        for before in needs(task, pipeline.chunks)
    }


# -- printed orders ---------------------------------------------------------------------------------------------------
def words(order, letters="FBIW"):
    return " ".join(f"{t.kind.value}{t.micro_batch + 1}" for t in order if t.kind.value in letters)


def test_orders_are_those_of_the_published_figures() -> None:
    """Micro-batches count from 1 as in the figures: 4 stages, 8 micro-batches."""
    pipeline = Pipeline(4, 8)
    assert words(schedule_named("1f1b").orders(pipeline)[0]) == "F1 F2 F3 F4 B1 F5 B2 F6 B3 F7 B4 F8 B5 B6 B7 B8"
    assert words(schedule_named("1f1b").orders(pipeline)[2]) == "F1 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 F8 B7 B8"
    assert words(schedule_named("gpipe").orders(Pipeline(4, 4))[3]) == "F1 F2 F3 F4 B4 B3 B2 B1"
    zero = schedule_named("zero-bubble").orders(pipeline)
    assert words(zero[0]).startswith("F1 F2 F3 F4 I1 W1 F5 I2 W2 F6")
    assert words(zero[3]).startswith("F1 I1 F2 I2 F3 I3 F4 I4 W1 F5 I5 W2")
    first = schedule_named("interleaved").orders(Pipeline(4, 8, 2))[0]
    assert words(first, "F") == "F1 F2 F3 F4 F1 F2 F3 F4 F5 F6 F7 F8 F5 F6 F7 F8"
    assert words(first).startswith("F1 F2 F3 F4 F1 F2 F3 F4 F5 F6 F7 B1 F8 B2")
    assert [t.chunk for t in first if t.kind is Kind.BACKWARD] == [4, 4, 4, 4, 0, 0, 0, 0] * 2


# -- bubbles ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("stages", "batches", "virtual", "ideal", "of_total"),
    [
        (8, 32, 1, Fraction(7, 32), Fraction(7, 39)),
        (4, 8, 2, Fraction(3, 16), Fraction(3, 19)),
        (4, 8, 4, Fraction(3, 32), Fraction(3, 35)),
        (8, 32, 2, Fraction(7, 64), Fraction(7, 71)),
    ],
)
def test_both_denominators_of_the_bubble(stages, batches, virtual, ideal, of_total) -> None:
    step = even("interleaved", stages, batches, virtual)
    assert (step.bubble_over_ideal, step.bubble_over_total) == (ideal, of_total)
    assert step.bubble_over_total == Fraction(stages - 1, virtual * batches + stages - 1)


def test_m_over_m_plus_p_minus_1_over_v_is_the_efficiency_and_not_the_bubble() -> None:
    step = even("interleaved", 4, 8, 2)
    expression = Fraction(8) / (8 + Fraction(4 - 1, 2))
    assert step.efficiency == expression == Fraction(16, 19)
    assert step.bubble_over_total == 1 - expression


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_sixteen_stages_and_eight_micro_batches(name) -> None:
    step = even(name, 16, 8, forward=1, backward=1)
    assert (step.bubble_over_ideal, step.bubble_over_total) == (Fraction(15, 8), Fraction(15, 23))


@given(counts, st.integers(1, 9), ticks, ticks)
def test_gpipe_and_1f1b_take_equally_long(stages, batches, forward, backward) -> None:
    first, second = (even(name, stages, batches, 1, forward, backward, 0) for name in ("gpipe", "1f1b"))
    assert first.makespan == second.makespan
    assert first.bubble_over_ideal == Fraction(stages - 1, batches)


def test_with_transfers_or_uneven_layers_they_need_not() -> None:
    slow = Durations(transfer=Fraction(1))
    gpipe, other = (run_step(schedule_named(name), Pipeline(4, 8), slow).makespan for name in ("gpipe", "1f1b"))
    assert gpipe < other


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), ticks, ticks)
def test_interleaving_divides_the_bubble_by_the_virtual_stages(stages, groups, virtual, forward, backward) -> None:
    once = even("1f1b", stages, stages * groups, 1, forward, backward, 0)
    more = even("interleaved", stages, stages * groups, virtual, forward, backward, 0)
    assert more.bubble_over_ideal * virtual == once.bubble_over_ideal
    assert more.useful == once.useful


@given(st.sampled_from(NAMES), st.integers(1, 6), st.integers(1, 3), ticks, ticks, ticks, st.integers(0, 2))
def test_one_rank_never_waits(name, batches, virtual, forward, inputs, weights, transfer) -> None:
    durations = Durations(Fraction(forward), Fraction(inputs + weights), Fraction(weights), Fraction(transfer))
    step = run_step(schedule_named(name), Pipeline(1, batches, virtual if name == "interleaved" else 1), durations)
    assert step.idle == 0
    assert step.makespan == batches * (durations.forward + durations.backward)


@given(st.data(), st.sampled_from(NAMES))
def test_closed_forms_agree_with_the_traversal(data, name) -> None:
    pipeline = data.draw(pipelines(name))
    weight = data.draw(ticks)
    forward, backward = data.draw(ticks), weight + data.draw(ticks)
    form = CLOSED_FORMS[name]
    sizes = {
        "P_p": pipeline.stages, "n_mb": pipeline.micro_batches, "n_vs": pipeline.virtual,
        "t_F": forward, "t_B": backward, "t_W": weight,
    }  # fmt: skip
    step = even(name, pipeline.stages, pipeline.micro_batches, pipeline.virtual, forward, backward, weight)
    if form.least_batches.evaluate(sizes) <= pipeline.micro_batches:
        assert step.makespan == form.makespan().evaluate(sizes)
        assert step.bubble_over_ideal == form.over_ideal(sizes)
        assert step.bubble_over_total == form.over_total(sizes)
        assert form.bubble is None or form.bubble.evaluate(sizes) == step.bubble_over_ideal
    else:
        assert step.makespan > form.makespan().evaluate(sizes)


def test_every_schedule_has_a_closed_form_with_the_bubble_that_it_states() -> None:
    assert set(CLOSED_FORMS) == set(schedules())
    for form in CLOSED_FORMS.values():
        if form.bubble is not None:
            (idle,) = form.idle.members
            assert form.bubble * form.useful == idle


@pytest.mark.parametrize(
    ("name", "stages", "batches", "virtual"),
    [("gpipe", 3, 5, 1), ("1f1b", 4, 6, 1), ("1f1b", 5, 3, 1), ("interleaved", 3, 6, 2), ("interleaved", 2, 4, 3)],
)
def test_makespans_for_durations_that_are_symbols(name, stages, batches, virtual) -> None:
    """Per chunk: a rank's forward pass is n_vs of them."""
    from derive.pipeline_forms import T_B, T_F

    graph = schedule_named(name).graph(Pipeline(stages, batches, virtual))
    found = symbolic_makespan(graph, {Kind.FORWARD: T_F, Kind.BACKWARD: T_B})
    assert found.members == ((virtual * batches + stages - 1) * (T_F + T_B),)


def test_zero_bubble_waits_for_the_longest_of_its_passes() -> None:
    """For any durations: (P_p - 1) max(F + I - W, F, I); the published form is the first of the three."""
    from derive.forms import symbol

    names = {Kind.FORWARD: "F", Kind.INPUT_GRADIENT: "I", Kind.WEIGHT_GRADIENT: "W"}
    graph = schedule_named("zero-bubble").graph(Pipeline(3, 5))
    found = symbolic_makespan(graph, {kind: symbol(name) for kind, name in names.items()})
    for f in range(1, 5):
        for i in range(1, 5):
            for w in range(1, 5):
                assert found.evaluate({"F": f, "I": i, "W": w}) == 5 * (f + i + w) + 2 * max(f + i - w, f, i)


@given(st.integers(1, 5), st.integers(0, 5), ticks, ticks)
def test_zero_bubble_is_shorter_than_1f1b_by_two_weight_gradients_a_stage(stages, more, forward, inputs) -> None:
    """With weight gradients no longer than the others: published as (P_p - 1)(F + I - W)."""
    batches = stages + more
    weights = min(forward, inputs)
    zero = even("zero-bubble", stages, batches, 1, forward, inputs + weights, weights)
    plain_one = even("1f1b", stages, batches, 1, forward, inputs + weights, weights)
    assert zero.idle == stages * (stages - 1) * (forward + inputs - weights)
    assert plain_one.makespan - zero.makespan == 2 * (stages - 1) * weights


@given(st.randoms(use_true_random=False), st.integers(1, 4), st.integers(1, 4), ticks, ticks)
def test_no_order_of_whole_stages_beats_1f1b(r, stages, batches, forward, backward) -> None:
    orders = random_order(r, stages, batches, 1, "FB")
    durations = Durations(Fraction(forward), Fraction(backward), Fraction(0))
    pipeline = Pipeline(stages, batches)
    step = time_graph(task_graph(pipeline, tasks(orders)), pipeline, durations)
    assert step.makespan >= run_step(schedule_named("1f1b"), pipeline, durations).makespan


# -- memory -----------------------------------------------------------------------------------------------------------
@given(counts, st.integers(1, 9))
def test_activations_in_flight(stages, batches) -> None:
    assert even("gpipe", stages, batches).in_flight == (batches,) * stages
    assert even("1f1b", stages, batches).in_flight == tuple(min(batches, stages - s) for s in range(stages))


@given(counts, st.integers(1, 9), ticks, ticks)
def test_zero_bubble_needs_no_more_memory_than_the_first_rank_of_1f1b(stages, batches, forward, backward) -> None:
    zero = even("zero-bubble", stages, batches, 1, forward, backward + 1, 1)
    assert max(zero.in_flight) == even("1f1b", stages, batches).in_flight[0]


@given(st.integers(2, 4), st.integers(2, 3), st.integers(2, 4))
def test_interleaving_keeps_more_in_flight(stages, groups, virtual) -> None:
    """On the first rank n_vs P_p + P_p - 1 chunks, which is P_p (1 + (P_p - 1)/(P_p n_vs)) of its whole share."""
    step = even("interleaved", stages, stages * groups, virtual)
    assert step.in_flight[0] == virtual * stages + stages - 1
    assert step.in_flight_layers[0] == stages * (1 + Fraction(stages - 1, stages * virtual))


def test_in_flight_layers_weigh_each_chunk() -> None:
    step = run_step(schedule_named("1f1b"), Pipeline(3, 5), layers=[4, 4, 3])
    assert list(step.in_flight_layers) == [12, 8, 3]
    more = run_step(schedule_named("interleaved"), Pipeline(2, 2, 2), layers=[1, 1, 5, 1])
    assert more.in_flight_layers[0] == 2 * 1 + 2 * 5  # both micro-batches in both chunks
    assert more.in_flight[0] == 4


# -- uneven layers ----------------------------------------------------------------------------------------------------
def test_the_longest_stage_sets_the_pace() -> None:
    """Worked by hand: F = B = 1 a layer; rank 1 starts at 1, works 3 x (2 + 2), and rank 0 ends 1 later."""
    step = run_step(schedule_named("1f1b"), Pipeline(2, 3), Durations(Fraction(1), Fraction(1), Fraction(0)), [1, 2])
    assert step.makespan == 1 + 3 * 4 + 1
    assert list(step.busy) == [6, 12]
    assert step.bubble_over_ideal == Fraction(10, 18)
    assert step.bubble_over_total == Fraction(10, 28)


@given(runs())
def test_equal_layers_only_change_the_unit(run) -> None:
    schedule, pipeline, durations, _ = run
    free = Durations(durations.forward, durations.backward, durations.weight_gradient)
    once, thrice = run_step(schedule, pipeline, free), run_step(schedule, pipeline, free, [3] * pipeline.chunks)
    assert thrice.makespan == once.makespan * 3 * pipeline.virtual
    assert thrice.bubble_over_ideal == once.bubble_over_ideal


# -- refusals ---------------------------------------------------------------------------------------------------------
F, B = Kind.FORWARD, Kind.BACKWARD


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Pipeline(0, 4), "0 stages"),
        (lambda: Pipeline(4, -1), "-1 micro-batches"),
        (lambda: Pipeline(4, 4, 0), "0 virtual stages"),
        (lambda: Pipeline(1000, 1000), "more than 200000 passes"),
        (lambda: schedule_named("interleaved").graph(Pipeline(4, 6, 2)), "6 is not a multiple of 4"),
        (lambda: schedule_named("gpipe").graph(Pipeline(4, 8, 2)), "gpipe has one stage per rank"),
        (lambda: schedule_named("dualpipe"), "no pipeline schedule is called 'dualpipe'"),
        (lambda: run_step(schedule_named("1f1b"), Pipeline(4, 8), layers=[1, 2]), "2 numbers of layers for 4 chunks"),
        (
            lambda: run_step(schedule_named("1f1b"), Pipeline(2, 8), layers=[1, 0]),
            "number 2 of the 2 numbers of layers is 0",
        ),
        (lambda: Durations(forward=Fraction(0)), "above 0"),
        (lambda: Durations(weight_gradient=Fraction(3)), "not part of a backward pass of 2"),
        (lambda: Durations(transfer=Fraction(-1)), "a transfer takes -1"),
        (lambda: task_graph(Pipeline(1, 1), [[Task(F, 0, 0)]]), "B(chunk 0, micro-batch 0) is never done"),
        (lambda: task_graph(Pipeline(1, 1), [[Task(F, 0, 0)] * 2]), "F(chunk 0, micro-batch 0) is done twice"),
        (lambda: task_graph(Pipeline(1, 1), [[Task(F, 1, 0)]]), "F(chunk 1, micro-batch 0) is no task of this rank"),
        (lambda: task_graph(Pipeline(2, 1), [[Task(F, 0, 0)]]), "1 orders for 2 stages"),
        (lambda: task_graph(Pipeline(1, 1), [[Task(B, 0, 0), Task(F, 0, 0)]]), "the order deadlocks"),
    ],
)
def test_what_has_no_meaning_is_refused_in_one_sentence(make, says) -> None:
    with pytest.raises(GraphError) as caught:
        make()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_schedules_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    again = Schedule("gpipe", lambda pipeline, rank: [], source="a test")
    known = tuple(schedules().values())
    monkeypatch.setattr(registry, "_discovered", lambda: (*known, again))
    with pytest.raises(GraphError, match="two schedule files declare the name 'gpipe'"):
        schedules()


def test_schedules_are_those_of_the_folder() -> None:
    assert sorted(schedules()) == sorted(NAMES)
