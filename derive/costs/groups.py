"""The two best of every group as two successive maxima and their sum, then the best groups as successive maxima."""

from __future__ import annotations

from derive.costs.counting import product, volume
from derive.costs.rule import FREE, Cost, Site, rule
from derive.forms import Form
from derive.interchange import from_sympy
from graphs.ops.groups import SPOKESMEN, Groups


@rule(Groups)
def groups(site: Site) -> Cost:
    if site.model.gemm_only:
        return FREE
    op = site.node.op
    assert isinstance(op, Groups)
    (scores,) = site.operands
    members, every = from_sympy(scores.axis(op.axis).extent / op.groups), Form.constant(op.groups)
    tokens = volume(scores.without(op.axis).axes, (), site.model)
    within = op.groups * (SPOKESMEN * (members - 1) + SPOKESMEN - 1)
    depth = SPOKESMEN * site.chain(members) + SPOKESMEN - 1 + op.kept * site.chain(every)
    return Cost(product((tokens, within + op.kept * (every - 1))), depth)
