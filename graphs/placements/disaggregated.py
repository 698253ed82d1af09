"""Disaggregated: every model has a device group of its own, so models of a stage run at the same time."""

from __future__ import annotations

from graphs.placements.placement import Group, Placement, Seat
from graphs.stages.stage import MODELS

PLACEMENT = Placement(
    "disaggregated",
    "Disaggregated",
    tuple(Group(role) for role in MODELS),
    tuple(Seat("*", role, role) for role in MODELS),
    source="caption of Table IX: distinct device groups, concurrent execution",
)
