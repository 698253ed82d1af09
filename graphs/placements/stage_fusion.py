"""Stage fusion: a sample is assessed as soon as it is generated, and actor and critic are trained side by side.

The group is concurrent: where one invocation runs at a time, fusing stages overlaps nothing.
"""

from __future__ import annotations

from graphs.placements.placement import Group, Placement, Seat
from graphs.stages.stage import ASSESSMENT, TRAINING

PLACEMENT = Placement(
    "stage-fusion",
    "Stage fusion",
    (Group("all", exclusive=False),),
    (Seat("*", "*", "all"),),
    source="caption of Table IX: inter-stage fusion of Generation and Assessment, intra-stage fusion of Training",
    barriers=((ASSESSMENT, TRAINING),),
)
