"""Asynchronous: one group samples and assesses with weights of bounded age while another trains."""

from __future__ import annotations

from graphs.placements.placement import Group, Placement, Seat
from graphs.stages.stage import TRAINING

PLACEMENT = Placement(
    "asynchronous",
    "Asynchronous",
    (Group("rollout"), Group("train")),
    (Seat(TRAINING, "*", "train"), Seat("*", "*", "rollout")),
    source="caption of Table IX: Generation and Assessment overlap Training, bounded weight staleness",
    staleness=1,
)
