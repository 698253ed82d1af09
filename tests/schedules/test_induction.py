"""The proofs of makespans: they check, they are about the real graphs, and every one that is damaged fails."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from derive.forms import Form, symbol
from derive.induction import (
    ONE,
    ZERO,
    Edges,
    K,
    Place,
    Proof,
    ProofError,
    Run,
    Time,
    _demand_order,
    _follow,
    _is_nonnegative,
    chain_is_as_long_as_the_makespan,
    check,
    edges_of,
    greatest,
    least,
    tasks_end_by_the_makespan,
)
from derive.pipeline_forms import CLOSED_FORMS, N, P, V
from derive.pipeline_proofs import GPIPE, GRID, PROOFS
from derive.schedules import Durations, run_step
from graphs.schedules import Kind, Pipeline, schedule_named

PLAIN = [Pipeline(stages, batches) for stages in range(1, 6) for batches in range(1, 7)]
TURNS = [Pipeline(*sizes) for sizes in [(1, 3, 2), (2, 2, 2), (2, 4, 3), (3, 3, 3), (3, 6, 2), (4, 4, 2), (4, 8, 3)]]
EVERY_PROOF = pytest.mark.parametrize("proof", PROOFS.values(), ids=PROOFS)


def pipelines(proof: Proof) -> list[Pipeline]:
    """Those that the proof is about."""
    return [p for p in PLAIN + TURNS if fits(proof, p)]


def fits(proof: Proof, pipeline: Pipeline) -> bool:
    chunks_fit = (pipeline.virtual > 1) == (proof.schedule == "interleaved")
    return chunks_fit and all(form.evaluate(sizes_of(pipeline)) >= 0 for form in proof.sizes)


def sizes_of(pipeline: Pipeline) -> dict[str, int]:
    return {"P_p": pipeline.stages, "n_mb": pipeline.micro_batches, "n_vs": pipeline.virtual}


@EVERY_PROOF
def test_the_proof_checks_and_proves_the_closed_form(proof: Proof) -> None:
    """Where that is a maximum, the proof's durations say which member it is: the others are no greater."""
    check(proof)
    stated = CLOSED_FORMS[proof.schedule].makespan()
    assert proof.makespan_in_time in stated.members
    nonnegative = tuple((P - 1) * duration for duration in proof.durations)
    assert all(_is_nonnegative(proof.makespan_in_time - member, nonnegative) for member in stated.members)


@EVERY_PROOF
def test_the_proof_is_about_all_edges_of_the_graph(proof: Proof) -> None:
    """And about no others, but that the interleaved one joins the groups of micro-batches, and not in its chain."""
    used = {name for run in proof.chain for name in run.names}
    for pipeline in pipelines(proof):
        edges = set(schedule_named(proof.schedule).graph(pipeline).edges)
        assert edges <= edges_of(proof, pipeline)
        assert edges_of(proof, pipeline, used) <= edges
        assert pipeline.virtual > 1 or edges == edges_of(proof, pipeline)


@EVERY_PROOF
@pytest.mark.parametrize("times", [{"t_F": 3, "t_B": 7, "t_W": 2}, {"t_F": 7, "t_B": 5, "t_W": 1}], ids=str)
def test_no_task_starts_later_than_the_proof_says(proof: Proof, times: dict[str, int]) -> None:
    durations = Durations(*(Fraction(times[name]) for name in ("t_F", "t_B", "t_W")))
    for pipeline in pipelines(proof):
        step = run_step(schedule_named(proof.schedule), pipeline, durations)
        sizes = sizes_of(pipeline)
        units = [duration.evaluate(sizes | times) for duration in proof.durations]
        latest = {}
        for kind, start in proof.starts.items():
            for stage in range(pipeline.stages):
                for index in range(pipeline.micro_batches * pipeline.virtual):
                    counts = start.evaluate(sizes | {"s": stage, "i": index})
                    latest[proof.task(pipeline, kind, stage, index)] = sum(
                        n * t for n, t in zip(counts, units, strict=True)
                    )
        assert latest.keys() == step.spans.keys()
        assert all(start <= latest[task] for task, (start, _) in step.spans.items())
        assert proof.schedule != "gpipe" or all(start == latest[task] for task, (start, _) in step.spans.items())
        assert step.makespan == proof.makespan_in_time.evaluate(sizes | times)


@EVERY_PROOF
@pytest.mark.parametrize("wrong", [ONE, -ONE, P - 1, 1 - N, N - P, V - 1], ids=str)
def test_another_makespan_is_not_proved(proof: Proof, wrong: Form) -> None:
    for k in range(len(proof.makespan)):
        other = tuple(count + wrong if k == j else count for j, count in enumerate(proof.makespan))
        with pytest.raises(ProofError):
            check(replace(proof, makespan=other))


@EVERY_PROOF
def test_no_start_may_be_earlier_nor_all_of_it_later(proof: Proof) -> None:
    width = len(proof.durations)
    earlier = [[-int(j == k) for j in range(width)] for k in range(width)]
    for kind, time in proof.starts.items():
        for change in [*earlier, [1] * width]:
            with pytest.raises(ProofError):
                check(replace(proof, starts={**proof.starts, kind: time.plus(change)}))


@EVERY_PROOF
def test_every_link_of_the_chain_is_needed(proof: Proof) -> None:
    for k in range(len(proof.chain)):
        with pytest.raises(ProofError):
            check(replace(proof, chain=proof.chain[:k] + proof.chain[k + 1 :]))


@EVERY_PROOF
def test_no_run_may_be_longer_or_shorter_or_elsewhere(proof: Proof) -> None:
    for k, run in enumerate(proof.chain):
        for other in (
            replace(run, times=run.times + 1),
            replace(run, times=run.times - 1),
            replace(run, s=run.s + 1),
            replace(run, i=run.i + 1),
        ):
            with pytest.raises(ProofError):
                check(replace(proof, chain=(*proof.chain[:k], other, *proof.chain[k + 1 :])))


@EVERY_PROOF
def test_a_missing_family_is_noticed(proof: Proof) -> None:
    for name in proof.edges:
        damaged = replace(proof, edges={other: e for other, e in proof.edges.items() if other != name})
        assert any(
            not set(schedule_named(proof.schedule).graph(pipeline).edges) <= edges_of(damaged, pipeline)
            for pipeline in pipelines(proof)
        ), name


def test_an_edge_that_the_starts_do_not_respect_is_noticed() -> None:
    """As if each forward pass waited for the backward pass of the micro-batch before."""
    edges = Edges(Place(Kind.BACKWARD, symbol("s"), symbol("i")), Place(Kind.FORWARD, symbol("s"), symbol("i") + 1))
    with pytest.raises(ProofError, match="edges one at a time: the head is too early"):
        check(replace(GPIPE, edges={**GPIPE.edges, "one at a time": edges}))


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (Run(("activation",), K - 1, ZERO, P - 1), "edges activation: there is none"),
        (Run(("activation", "next backward"), K, ZERO, P - 1), "where next backward does not begin"),
        (Run(("next forward",), ZERO, N - 2 - K, N - 1), "where it does not go on"),
        (Run(("activation",), K, ZERO, P - 2), "may have a negative length"),
    ],
)
def test_a_run_is_refused_for_what_is_wrong_with_it(run: Run, says: str) -> None:
    with pytest.raises(ProofError, match=says):
        _follow(GPIPE, run)


def test_runs_must_join_and_all_tasks_must_end_by_the_makespan() -> None:
    first, second, *rest = GPIPE.chain
    with pytest.raises(ProofError, match="where activation does not begin"):
        chain_is_as_long_as_the_makespan(replace(GPIPE, chain=(second, first, *rest)))
    with pytest.raises(ProofError, match="ends after the makespan"):
        tasks_end_by_the_makespan(replace(GPIPE, makespan=(N + P - 1, N + P - 2)))
    early = {**GPIPE.starts, Kind.FORWARD: GPIPE.starts[Kind.FORWARD].plus((-1, 0))}
    with pytest.raises(ProofError, match="starts before 0"):
        check(replace(GPIPE, starts=early))


def test_bounds_are_ordered_as_greatest_and_least_say() -> None:
    s = symbol("s")
    both, facts = least(s, P), (s, P - 1 - s)
    _demand_order(Time.of(both), Time.of(s), facts, "no")
    _demand_order(Time.of(s), Time.of(greatest(s - 1, both)), facts, "no")
    for early, late in ((P, both), (greatest(s, P), s), (s, greatest(s - 1, s - 2))):
        with pytest.raises(ProofError):
            _demand_order(Time.of(early), Time.of(late), facts, "yes")


def test_combinations_of_facts_are_found_where_there_are_any() -> None:
    s = symbol("s")
    assert _is_nonnegative(2 * P - 2 * s - 1, GRID)
    assert _is_nonnegative(P - 1, (s, P - 1 - s))
    assert not _is_nonnegative(P - 2 - s, GRID)
    assert not _is_nonnegative(s - 1, GRID)
    assert not _is_nonnegative(s * s, (s,))  # true, but no linear combination
