"""Dropout multiplies every entry by the mask and by a constant; drawing the mask is no arithmetic on data."""

from __future__ import annotations

from derive.costs.pointwise import per_point
from derive.costs.rule import Cost, Site, rule
from graphs.ops.dropout import Dropout


@rule(Dropout)
def dropout(site: Site) -> Cost:
    return per_point(site, 2)
