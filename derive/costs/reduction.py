"""A reduction of k values takes k-1 operations in a balanced tree.

Under the GEMM-only convention it counts towards depth where it accumulates a parameter's gradient.
"""

from __future__ import annotations

from derive.costs.counting import longest_row, volume
from derive.costs.rule import ZERO, Cost, Site, rule
from graphs.ops.reduction import Reduction


@rule(Reduction)
def reduction(site: Site) -> Cost:
    (operand,), (result,) = site.operands, site.results
    contracted = [a for a in operand.axes if a.name not in result.names]
    steps = site.chain(longest_row(contracted, site.restrictions, site.model))
    if site.model.gemm_only:
        return Cost(ZERO, steps if site.accumulates_parameter_gradient else ZERO)
    points = volume(operand.axes, operand.domain, site.model)
    return Cost(points - volume(result.axes, result.domain, site.model), steps)
