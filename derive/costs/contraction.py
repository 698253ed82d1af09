"""A contraction does one multiplication per index point and adds each result's products in a balanced tree.

Under the GEMM-only convention its depth is that of the tree alone.
"""

from __future__ import annotations

from derive.costs.counting import longest_row, volume
from derive.costs.rule import Cost, Site, rule
from graphs.ops.contraction import Contraction, index_space


@rule(Contraction)
def contraction(site: Site) -> Cost:
    space = index_space(*site.operands)
    points = volume(space.values(), site.restrictions, site.model)
    (result,) = site.results
    contracted = [a for n, a in space.items() if n not in result.names]
    length = longest_row(contracted, site.restrictions, site.model)
    steps = site.chain(length) if site.model.gemm_only else site.chain(length) + 1
    if site.model.dot_product == "2k":
        return Cost(2 * points, steps)
    return Cost(2 * points - volume(result.axes, result.domain, site.model), steps)
