"""Hybrid: one device group that changes its parallelism from stage to stage."""

from __future__ import annotations

from dataclasses import replace

from graphs.placements.baseline import PLACEMENT as BASELINE
from graphs.stages.stage import ASSESSMENT, GENERATION, TRAINING

PLACEMENT = replace(
    BASELINE,
    name="hybrid",
    heading="Hybrid",
    schemes=((GENERATION, ("tensor",)), (ASSESSMENT, ("tensor", "pipeline")), (TRAINING, ("zero-3",))),
    source="caption of Table IX: TP for Generation, TP/PP for Assessment, ZeRO-3 for Training, one device group",
)
