"""Two-dimensional tensor parallelism: every weight matrix is cut along both of its sides, over a grid of ranks.

The model channel is cut over P_y; heads, feed-forward channels and vocabulary are cut over P_x.  A product over the
model channel leaves sums that are split over P_y, and what follows takes its share of them, so that between two
products heads (or channels) are cut over the whole grid.
"""

from __future__ import annotations

from graphs.schemes import Mapping, Scheme

WIDE = ("h", "f", "g", "v")

SCHEME = Scheme(
    "Tensor 2D",
    (
        Mapping("c", "P_y", priority=1),
        *(Mapping(axis, mesh) for axis in WIDE for mesh in ("P_x", "P_y")),
    ),
    source="Pope et al. 2022, Efficiently Scaling Transformer Inference (2D weight-stationary layout)",
    nesting=tuple((axis, ("P_x", "P_y")) for axis in WIDE),
    dimensions=(("P_x", "columns of a grid of tensor ranks"), ("P_y", "rows of a grid of tensor ranks")),
)
