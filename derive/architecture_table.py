"""The status of every architecture as a table in Markdown, for the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from derive.evaluate import MESHES, PIPELINE, Setting
from graphs.architectures import Architecture, architectures
from graphs.errors import GraphError
from graphs.models.transformer import forward, periods

YES, NO = "yes", "no"


def table() -> str:
    """One row for each architecture; a mesh dimension says yes where the tiny example can be cut over it."""
    heads = (
        "architecture",
        "`model_type`",
        "layers",
        "loops",
        *(f"`{mesh}`" for mesh in MESHES),
        "left out",
        "as in `transformers`",
    )
    rows = [_row(a) for a in architectures()]
    return "\n".join(_line(cells) for cells in (heads, ["---"] * len(heads), *rows)) + "\n"


def _row(a: Architecture) -> list[str]:
    model = a.example()
    cuts = [YES if cut_over(a, mesh) else NO for mesh in MESHES]
    types = ", ".join(f"`{t}`" for t in a.model_types)
    return [
        a.name,
        types,
        ", ".join(a.parts),
        str(len(periods(model.layers))),
        *cuts,
        "; ".join(a.left_out),
        ", ".join(a.compared),
    ]


def cut_over(a: Architecture, mesh: str) -> bool:
    """Can the example be cut over the mesh dimension at all, if its sizes are multiples of the degree?"""
    model = a.example()
    degree = len(model.layers) if mesh == PIPELINE else 2
    for rank, _ in Setting(model, S=2, T=2, degrees={mesh: degree}).stages:
        try:
            rank.cut(forward(rank.model))
        except GraphError:
            return False
    return True


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
