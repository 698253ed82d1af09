"""Zero bubble with the memory of 1F1B (ZB-H1): 1F1B on input gradients, weight gradients later.

Rank s postpones its weight gradients by s micro-batches, so that every rank has at most P_p micro-batches in flight,
as many as the first rank of 1F1B; those still open at the end fill the drain.  The order is fixed: it does not look at
durations, and is meant for input and weight gradients that take about as long as the forward pass.
"""

from __future__ import annotations

from graphs.schedules.one_f_one_b import order as one_f_one_b
from graphs.schedules.schedule import SPLIT, Kind, Pipeline, Schedule, Task


def order(pipeline: Pipeline, rank: int) -> list[Task]:
    out: list[Task] = []
    for task in one_f_one_b(pipeline, rank):
        if task.kind is Kind.FORWARD:
            out.append(task)
            continue
        out.append(Task(Kind.INPUT_GRADIENT, rank, task.micro_batch))
        if task.micro_batch >= rank:
            out.append(Task(Kind.WEIGHT_GRADIENT, rank, task.micro_batch - rank))
    left = range(max(0, pipeline.micro_batches - rank), pipeline.micro_batches)
    return out + [Task(Kind.WEIGHT_GRADIENT, rank, i) for i in left]


SCHEDULE = Schedule("zero-bubble", order, source="Qi et al. 2023, arXiv:2401.10241, Section 2.1 (ZB-H1)", kinds=SPLIT)
