"""Pipeline schedules, one file each."""

from __future__ import annotations

from functools import lru_cache

from graphs.discovery import by_name, chosen, declarations
from graphs.schedules.schedule import Kind, Pipeline, Schedule, Task

__all__ = ["Kind", "Pipeline", "Schedule", "Task", "schedule_named", "schedules"]


@lru_cache(maxsize=1)
def _discovered() -> tuple[Schedule, ...]:
    return tuple(declarations(__name__, "SCHEDULE", ("schedule",)))


def schedules() -> dict[str, Schedule]:
    """Every declared schedule by name."""
    return by_name(_discovered(), "schedule")


def schedule_named(name: str) -> Schedule:
    """The schedule of that name, in any case."""
    return chosen(name, schedules(), "pipeline schedule")
