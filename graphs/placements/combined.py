"""Combined: asynchronous, with a group for every model and the parallelism of hybrid execution in each stage."""

from __future__ import annotations

from graphs.placements.hybrid import PLACEMENT as HYBRID
from graphs.placements.placement import Group, Placement, Seat
from graphs.placements.stage_fusion import PLACEMENT as STAGE_FUSION
from graphs.stages.stage import MODELS, TRAINED, TRAINING

PLACEMENT = Placement(
    "combined",
    "Combined",
    tuple(Group(name) for name in (*MODELS, *(f"{role}-training" for role in TRAINED))),
    (
        *(Seat(TRAINING, role, f"{role}-training") for role in TRAINED),
        *(Seat("*", role, role) for role in MODELS),
    ),
    source="caption of Table IX: asynchronous overlap, disaggregated placement, hybrid parallelism; RLHFuse",
    barriers=STAGE_FUSION.barriers,
    schemes=HYBRID.schemes,
    staleness=1,
)
