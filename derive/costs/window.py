"""A window places data and computes nothing, and so does its transpose."""

from __future__ import annotations

from derive.costs.rule import FREE, Cost, Site, rule
from graphs.ops.window import Insert, Window


@rule(Window, Insert)
def window(_site: Site) -> Cost:
    return FREE
