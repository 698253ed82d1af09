"""A collective does no arithmetic on one rank; derive/depth charges its share of a reduction in the global view."""

from __future__ import annotations

from derive.costs.rule import FREE, Cost, Site, rule
from graphs.ops.collective import Collective


@rule(Collective)
def collective(_site: Site) -> Cost:
    return FREE
