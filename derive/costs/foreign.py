"""Imported operations are free where contractions alone are counted, and cannot be counted where everything is."""

from __future__ import annotations

from derive.costs.rule import FREE, Cost, Site, rule
from graphs.errors import GraphError
from graphs.ops.foreign import Foreign


@rule(Foreign)
def foreign(site: Site) -> Cost:
    if not site.model.gemm_only:
        raise GraphError(
            f"{site.node.name}: of an imported graph contractions alone are counted; use the paper's model"
        )
    return FREE
