"""Writing a cache moves data and computes nothing."""

from __future__ import annotations

from derive.costs.rule import FREE, Cost, Site, rule
from graphs.ops.write import Write


@rule(Write)
def write(_site: Site) -> Cost:
    return FREE
