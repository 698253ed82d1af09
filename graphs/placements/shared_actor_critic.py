"""Shared actor-critic: one backbone plays both, so it is another model, not another place for the same ones."""

from __future__ import annotations

from dataclasses import replace

from graphs.placements.baseline import PLACEMENT as BASELINE

PLACEMENT = replace(
    BASELINE, name="shared-actor-critic", heading="AC shared", shared=True, source="row AC shared of Table IX"
)
