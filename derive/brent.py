"""What work and depth say about the time on p processors (Brent 1974; Graham 1969 for greedy schedules).

With work W and depth D, every schedule takes at least max(W/p, D) steps, and a greedy one at most D + (W - D)/p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from graphs.errors import GraphError


@dataclass(frozen=True)
class Bounds:
    """Steps of any schedule at least, and of a greedy one at most."""

    lower: Fraction
    upper: Fraction


def bounds(work: int | Fraction, depth: int | Fraction, processors: int) -> Bounds:
    """For unit-time operations; GraphError where work is below depth or there is no processor."""
    if processors < 1 or not 0 <= depth <= work:
        raise GraphError(f"work {work}, depth {depth} on {processors} processors is no computation; check the numbers")
    w, d = Fraction(work), Fraction(depth)
    return Bounds(max(w / processors, d), d + (w - d) / processors)


def level_by_level(levels: Sequence[int], processors: int) -> int:
    """Steps when each level of a graph, of so many operations, is done before the next."""
    return sum(-(-level // processors) for level in levels)
