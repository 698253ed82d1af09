"""A lookup moves rows and computes nothing; its transpose adds rows, in the worst case all into one."""

from __future__ import annotations

from derive.costs.counting import longest_row, volume
from derive.costs.rule import FREE, ZERO, Cost, Site, rule
from graphs.ops.lookup import Lookup, Scatter


@rule(Lookup)
def lookup(_site: Site) -> Cost:
    return FREE


@rule(Scatter)
def scatter(site: Site) -> Cost:
    rows, ids = site.operands
    steps = site.chain(longest_row(ids.axes, (), site.model))
    if site.model.gemm_only:
        return Cost(ZERO, steps)
    row = volume(rows.without(*ids.names).axes, (), site.model)
    return Cost(volume(rows.axes, rows.domain, site.model) - row, steps)
