"""The largest of k scores takes k - 1 comparisons in a balanced tree.

A draw adds the weights in such a tree, scales the uniform number by their sum, and descends the tree, with a comparison
and a subtraction on each level.  The GEMM-only convention leaves both out.
"""

from __future__ import annotations

from derive.costs.counting import volume
from derive.costs.rule import FREE, Cost, Site, rule
from derive.interchange import from_sympy
from graphs.ops.sample import Sample


@rule(Sample)
def sample(site: Site) -> Cost:
    if site.model.gemm_only:
        return FREE
    op = site.node.op
    assert isinstance(op, Sample)
    scores, *uniform = site.operands
    count = from_sympy(scores.axis(op.axis).extent)
    rows, levels = volume(scores.without(op.axis).axes, (), site.model), site.chain(count)
    if uniform:
        return Cost(rows * (count + 2 * levels), 3 * levels + 1)
    return Cost(rows * (count - 1), levels)
