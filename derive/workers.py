"""The same job for many cells, by several processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TypeVar

from derive.cells import SCHEME_TABLES, STAGE_TABLES
from graphs.stages.stage import STAGES

Result = TypeVar("Result")


def for_each(cells: Sequence[str], job: Callable[[str], Result], jobs: int) -> list[Result]:
    """The results in the order of the cells; the processes know the schemes that are loaded by now."""
    if jobs < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return [job(cell) for cell in cells]
    groups: dict[str, list[str]] = {}
    for cell in cells:
        groups.setdefault(_shares_with(cell), []).append(cell)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        done = dict(pair for group in pool.map(partial(_pairs, job), groups.values()) for pair in group)
    return [done[cell] for cell in cells]


def _shares_with(cell: str) -> str:
    """Cells of equal text share derivations: a scheme's in all tables, and those of a row and measure in all stages."""
    table, _, rest = cell.partition("/")
    if table in SCHEME_TABLES:
        return rest
    return "/".join(part for part in cell.split("/") if part not in STAGES) if table in STAGE_TABLES else cell


def _pairs(job: Callable[[str], Result], cells: Sequence[str]) -> list[tuple[str, Result]]:
    return [(cell, job(cell)) for cell in cells]
