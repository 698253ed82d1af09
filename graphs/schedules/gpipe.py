"""GPipe: all forward passes, then all backward passes, the latest micro-batch first."""

from __future__ import annotations

from graphs.schedules.schedule import Kind, Pipeline, Schedule, Task


def order(pipeline: Pipeline, rank: int) -> list[Task]:
    batches = range(pipeline.micro_batches)
    return [Task(Kind.FORWARD, rank, i) for i in batches] + [Task(Kind.BACKWARD, rank, i) for i in reversed(batches)]


SCHEDULE = Schedule("gpipe", order, source="Huang et al. 2019, arXiv:1811.06965, Figure 2")
