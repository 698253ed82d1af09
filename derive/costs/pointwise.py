"""A pointwise function is one operation per point, and one more where it also multiplies by a constant factor."""

from __future__ import annotations

from derive.costs.counting import volume
from derive.costs.rule import FREE, Cost, Site, rule
from derive.forms import Form
from graphs.ops.pointwise import Pointwise
from graphs.ops.softmax import MaskedExp


def per_point(site: Site, steps: int) -> Cost:
    if site.model.gemm_only:
        return FREE
    result = site.results[0]
    return Cost(steps * volume(result.axes, result.domain, site.model), Form.constant(steps))


@rule(Pointwise)
def pointwise(site: Site) -> Cost:
    op = site.node.op
    assert isinstance(op, Pointwise)
    return per_point(site, (op.fn != "scale") + (op.factor != 1))


@rule(MaskedExp)
def masked_exp(site: Site) -> Cost:
    return per_point(site, 1)
