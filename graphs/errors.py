"""The error of this package."""

from __future__ import annotations


class GraphError(ValueError):
    """A graph, scheme or size that has no meaning; the message is one sentence: what, where, and the mend."""
