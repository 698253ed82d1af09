"""The proofs of makespans: they check, they are about the real graphs, and every one that is damaged fails."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from derive.forms import Form, symbol
from derive.induction import ONE, Edges, Place, Proof, ProofError, Time, _is_nonnegative, check, edges_of
from derive.pipeline_forms import CLOSED_FORMS, T_B, T_F, N, P, V
from derive.pipeline_proofs import GPIPE, GRID, PROOFS
from derive.schedules import Durations, run_step
from graphs.schedules import Kind, Pipeline, schedule_named

PLAIN = [Pipeline(stages, batches) for stages in range(1, 6) for batches in range(1, 7)]
TURNS = [Pipeline(*sizes) for sizes in [(1, 3, 2), (2, 2, 2), (2, 4, 3), (3, 3, 3), (3, 6, 2), (4, 4, 2), (4, 8, 3)]]
BOTH_KINDS = (Kind.FORWARD, Kind.BACKWARD)
EVERY_PROOF = pytest.mark.parametrize("proof", PROOFS.values(), ids=PROOFS)


def pipelines(proof: Proof) -> list[Pipeline]:
    return TURNS if proof.schedule == "interleaved" else PLAIN


def sizes_of(pipeline: Pipeline) -> dict[str, int]:
    return {"P_p": pipeline.stages, "n_mb": pipeline.micro_batches, "n_vs": pipeline.virtual}


@EVERY_PROOF
def test_the_proof_checks_and_proves_the_closed_form(proof: Proof) -> None:
    check(proof)
    assert CLOSED_FORMS[proof.schedule].makespan().members == (proof.makespan_of(T_F, T_B),)


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
@pytest.mark.parametrize(("forward", "backward"), [(3, 7), (7, 3)])
def test_no_task_starts_later_than_the_proof_says(proof: Proof, forward: int, backward: int) -> None:
    durations = Durations(Fraction(forward), Fraction(backward), Fraction(0))
    for pipeline in pipelines(proof):
        step = run_step(schedule_named(proof.schedule), pipeline, durations, [1] * pipeline.chunks)
        latest = {}
        for stage in range(pipeline.stages):
            for index in range(pipeline.micro_batches * pipeline.virtual):
                sizes = sizes_of(pipeline) | {"s": stage, "i": index}
                for kind in BOTH_KINDS:
                    time = proof.starts[kind]
                    latest[proof.task(pipeline, kind, stage, index)] = forward * min(
                        f.evaluate(sizes) for f in time.forward
                    ) + backward * max(f.evaluate(sizes) for f in time.backward)
        assert latest.keys() == step.spans.keys()
        assert all(start <= latest[task] for task, (start, _) in step.spans.items())
        assert proof.schedule != "gpipe" or all(start == latest[task] for task, (start, _) in step.spans.items())


@EVERY_PROOF
@pytest.mark.parametrize("wrong", [ONE, -ONE, P - 1, 1 - N, N - P, V - 1], ids=str)
def test_another_makespan_is_not_proved(proof: Proof, wrong: Form) -> None:
    forward, backward = proof.makespan
    for other in ((forward + wrong, backward), (forward, backward + wrong)):
        with pytest.raises(ProofError):
            check(replace(proof, makespan=other))


@EVERY_PROOF
def test_without_the_earliest_or_latest_part_of_a_start_nothing_is_proved(proof: Proof) -> None:
    for kind, time in proof.starts.items():
        for other in (
            Time(tuple(f - 1 for f in time.forward), time.backward),
            Time(time.forward, tuple(f - 1 for f in time.backward)),
            Time(tuple(f + 1 for f in time.forward), tuple(f + 1 for f in time.backward)),
        ):
            with pytest.raises(ProofError):
                check(replace(proof, starts={**proof.starts, kind: other}))


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
            for pipeline in [*pipelines(proof), Pipeline(4, 4, 2 if proof.schedule == "interleaved" else 1)]
        ), name


def test_an_edge_that_the_starts_do_not_respect_is_noticed() -> None:
    """As if each forward pass waited for the backward pass of the micro-batch before."""
    edges = Edges(Place(Kind.BACKWARD, symbol("s"), symbol("i")), Place(Kind.FORWARD, symbol("s"), symbol("i") + 1))
    with pytest.raises(ProofError, match="edges one at a time: the head is too early"):
        check(replace(GPIPE, edges={**GPIPE.edges, "one at a time": edges}))


def test_combinations_of_facts_are_found_where_there_are_any() -> None:
    s = symbol("s")
    assert _is_nonnegative(2 * P - 2 * s - 1, GRID)
    assert _is_nonnegative(P - 1, (s, P - 1 - s))
    assert not _is_nonnegative(P - 2 - s, GRID)
    assert not _is_nonnegative(s - 1, GRID)
    assert not _is_nonnegative(s * s, (s,))  # true, but no linear combination
