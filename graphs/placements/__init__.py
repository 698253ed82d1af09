"""Placements of models on device groups, one file each."""

from __future__ import annotations

from functools import lru_cache

from graphs.discovery import by_name, chosen, declarations
from graphs.placements.placement import Group, Placement, Seat

__all__ = ["Group", "Placement", "Seat", "placement", "placements"]

HELPERS = ("placement", "presets")


@lru_cache(maxsize=1)
def _discovered() -> tuple[Placement, ...]:
    return tuple(declarations(__name__, "PLACEMENT", HELPERS))


def placements() -> dict[str, Placement]:
    """Every declared placement by name."""
    return by_name(_discovered(), "placement")


def placement(name: str) -> Placement:
    """The placement of that name, in any case."""
    return chosen(name, placements(), "placement")
