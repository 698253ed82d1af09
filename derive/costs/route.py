"""Top-k as k successive maxima over the scores: k(E-1) comparisons per token, k ceil(log2 E) deep."""

from __future__ import annotations

from derive.costs.counting import product, volume
from derive.costs.rule import FREE, Cost, Site, rule
from derive.interchange import from_sympy
from graphs.ops.route import Route


@rule(Route)
def route(site: Site) -> Cost:
    if site.model.gemm_only:
        return FREE
    op = site.node.op
    assert isinstance(op, Route)
    scores = site.operands[0]
    kept, every = from_sympy(op.active), from_sympy(scores.axis(op.axis).extent)
    tokens = volume(scores.without(op.axis).axes, (), site.model)
    return Cost(product((tokens, kept, every - 1)), kept * site.chain(every))
