"""The error of this package."""

from __future__ import annotations


class GraphError(ValueError):
    """A graph, scheme or size that has no meaning; the message is one sentence: what, where, and the mend."""


#: how much of a wrong value a message shows
SHOWN = 60


def shown(value: object) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
