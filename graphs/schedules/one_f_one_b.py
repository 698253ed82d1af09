"""1F1B: as many forward passes as there are stages from here to the last, then one backward per forward pass.

This bounds the micro-batches in flight on rank s by P_p - s, whatever their number.
"""

from __future__ import annotations

from graphs.schedules.schedule import Kind, Pipeline, Schedule, Task


def order(pipeline: Pipeline, rank: int) -> list[Task]:
    batches = range(pipeline.micro_batches)
    forward = [Task(Kind.FORWARD, rank, i) for i in batches]
    backward = [Task(Kind.BACKWARD, rank, i) for i in batches]
    return alternate(forward, backward, warm_up=pipeline.stages - rank - 1)


def alternate(forward: list[Task], backward: list[Task], warm_up: int) -> list[Task]:
    """``warm_up`` forward passes (all, where there are fewer), then pairs, then the backward passes that remain."""
    ahead = min(warm_up, len(forward))
    paired = len(forward) - ahead
    pairs = [task for pair in zip(forward[ahead:], backward[:paired], strict=True) for task in pair]
    return forward[:ahead] + pairs + backward[paired:]


SCHEDULE = Schedule("1f1b", order, source="Narayanan et al. 2021, arXiv:2104.04473, Section 2.2.1")
