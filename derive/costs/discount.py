"""Powers of a rate are constants of the algorithm, like a causal mask: no arithmetic on data."""

from __future__ import annotations

from derive.costs.rule import FREE, Cost, Site, rule
from graphs.ops.discount import Discount


@rule(Discount)
def discount(_site: Site) -> Cost:
    return FREE
