"""Placements of models on device groups, one file each; the files of this folder are discovered in sorted order."""

from __future__ import annotations

import pkgutil
from functools import lru_cache
from importlib import import_module

from graphs.errors import GraphError
from graphs.placements.placement import Group, Placement, Seat

__all__ = ["Group", "Placement", "Seat", "placement", "placements"]

HELPERS = ("placement", "presets")


@lru_cache(maxsize=1)
def _discovered() -> tuple[Placement, ...]:
    stems = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in HELPERS)
    return tuple(import_module(f"{__name__}.{stem}").PLACEMENT for stem in stems)


def placements() -> dict[str, Placement]:
    """Every declared placement by name; two of one name are refused."""
    out: dict[str, Placement] = {}
    for found in _discovered():
        if found.name in out:
            raise GraphError(f"two placement files declare the name {found.name!r}; rename one")
        out[found.name] = found
    return out


def placement(name: str) -> Placement:
    """The placement of that name; GraphError for an unknown one."""
    if name not in placements():
        raise GraphError(f"no placement is called {name!r}; choose one of {', '.join(placements())}")
    return placements()[name]
