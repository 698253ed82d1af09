"""What a training step computes again in its backward pass instead of keeping it."""

from __future__ import annotations

from enum import Enum

from graphs.ir import ATTENTION, REGIONS


class Recompute(Enum):
    """What a training step computes again instead of keeping it: nothing, the attention region, or whole layers."""

    NONE = "none"
    SELECTIVE = "selective"
    LAYER_BOUNDARY = "layer_boundary"

    @property
    def regions(self) -> tuple[str | None, ...]:
        """The regions of a loop body that are computed again (None: what lies in no region)."""
        return {"none": (), "selective": (ATTENTION,), "layer_boundary": (None, *REGIONS)}[self.value]
