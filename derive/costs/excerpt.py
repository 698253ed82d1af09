"""An excerpt places data and computes nothing, and so does its transpose."""

from __future__ import annotations

from derive.costs.rule import FREE, Cost, Site, rule
from graphs.ops.excerpt import Excerpt, Insert


@rule(Excerpt, Insert)
def excerpt(_site: Site) -> Cost:
    return FREE
