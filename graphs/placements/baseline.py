"""Baseline: one device group runs everything, one invocation after the other."""

from __future__ import annotations

from graphs.placements.placement import Group, Placement, Seat

PLACEMENT = Placement("baseline", "Baseline", (Group("all"),), (Seat("*", "*", "all"),), "row Baseline of Table IX")
