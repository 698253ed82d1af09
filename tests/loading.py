"""Schemes of users' files in tests: what is loaded inside the block is forgotten after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from derive import cells, measure
from graphs import schemes
from graphs.schemes import Declaration
from graphs.symbols import SIZES

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TENSOR_2D = str(EXAMPLES / "tensor_2d.py")
HYBRID = str(EXAMPLES / "attention_data_experts.py")


@contextmanager
def forgetting() -> Iterator[None]:
    """Registered names return to what they were, and answers about schemes, which are kept by name, are dropped."""
    loaded, sizes = dict(schemes._loaded), dict(SIZES)
    try:
        yield
    finally:
        schemes._loaded.clear()
        schemes._loaded.update(loaded)
        SIZES.clear()
        SIZES.update(sizes)
        schemes._installed.cache_clear()
        measure._graph.cache_clear()
        cells._answer.cache_clear()


@contextmanager
def named(word: str) -> Iterator[Declaration]:
    """The scheme of that name or file."""
    with forgetting():
        yield schemes.find(word)
