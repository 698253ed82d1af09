"""Pipeline schedules, one file each; the files of this folder are discovered in sorted order."""

from __future__ import annotations

import pkgutil
from functools import lru_cache
from importlib import import_module

from graphs.errors import GraphError
from graphs.schedules.schedule import Kind, Pipeline, Schedule, Task

__all__ = ["Kind", "Pipeline", "Schedule", "Task", "schedule_named", "schedules"]


@lru_cache(maxsize=1)
def _discovered() -> tuple[Schedule, ...]:
    stems = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "schedule")
    return tuple(import_module(f"{__name__}.{stem}").SCHEDULE for stem in stems)


def schedules() -> dict[str, Schedule]:
    """Every declared schedule by name; two of one name are refused."""
    out: dict[str, Schedule] = {}
    for schedule in _discovered():
        if schedule.name in out:
            raise GraphError(f"two schedule files declare the name {schedule.name!r}; rename one")
        out[schedule.name] = schedule
    return out


def schedule_named(name: str) -> Schedule:
    """The schedule of that name, in any case; GraphError lists the known ones."""
    known = schedules()
    if name.lower() not in known:
        raise GraphError(f"no pipeline schedule is called {name!r}; use one of {', '.join(known)}")
    return known[name.lower()]
