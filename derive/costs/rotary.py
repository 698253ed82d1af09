"""A rotation takes two products and a sum per channel; sines and cosines are tables."""

from __future__ import annotations

from derive.costs.counting import volume
from derive.costs.rule import FREE, Cost, Site, rule
from derive.forms import Form
from graphs.ops.rotary import Rotary


@rule(Rotary)
def rotary(site: Site) -> Cost:
    if site.model.gemm_only:
        return FREE
    (result,) = site.results
    return Cost(3 * volume(result.axes, result.domain, site.model), Form.constant(2))
