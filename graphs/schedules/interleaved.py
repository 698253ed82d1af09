"""Interleaved 1F1B: each rank holds n_vs chunks and takes them in turn, P_p micro-batches through each.

With one chunk per rank it is 1F1B.  With more, a rank warms up with a full turn of all chunks but the last, and twice
the distance to the last rank, since its next micro-batch comes back only after that way.
"""

from __future__ import annotations

from graphs.errors import GraphError
from graphs.schedules.one_f_one_b import alternate
from graphs.schedules.one_f_one_b import order as one_f_one_b
from graphs.schedules.schedule import Kind, Pipeline, Schedule, Task


def order(pipeline: Pipeline, rank: int) -> list[Task]:
    P, n, v = pipeline.stages, pipeline.micro_batches, pipeline.virtual
    if n % P:
        raise GraphError(
            f"the interleaved schedule takes micro-batches in groups of {P}, one per stage, and {n} is not a multiple"
            f" of {P}; change one of the two"
        )
    if v == 1:
        return one_f_one_b(pipeline, rank)
    chunks = pipeline.chunks_of(rank)
    forward = [Task(Kind.FORWARD, c, i) for c, i in _turns(chunks, n, P)]
    backward = [Task(Kind.BACKWARD, c, i) for c, i in _turns(chunks[::-1], n, P)]
    return alternate(forward, backward, warm_up=2 * (P - rank - 1) + (v - 1) * P)


def _turns(chunks: range, batches: int, group: int) -> list[tuple[int, int]]:
    """(chunk, micro-batch): one group of micro-batches after the other, through all chunks each."""
    starts = range(0, batches, group)
    return [(c, i) for start in starts for c in chunks for i in range(start, start + group)]


SCHEDULE = Schedule("interleaved", order, source="Narayanan et al. 2021, arXiv:2104.04473, Section 2.2.2", virtual=True)
