"""Post-training algorithms as graphs of model invocations, one file each; discovered in sorted order."""

from __future__ import annotations

from functools import lru_cache

from graphs.discovery import by_name, chosen, declarations
from graphs.stages.stage import Algorithm, Options, StageGraph

__all__ = ["Algorithm", "Options", "StageGraph", "algorithms", "stage_graph"]

HELPERS = ("compose", "stage")


@lru_cache(maxsize=1)
def _discovered() -> tuple[Algorithm, ...]:
    return tuple(declarations(__name__, "ALGORITHM", HELPERS))


def algorithms() -> dict[str, Algorithm]:
    """Every declared algorithm by name."""
    return by_name(_discovered(), "stage")


@lru_cache(maxsize=256)
def stage_graph(name: str, options: Options) -> StageGraph:
    """The invocation graph of an algorithm, by its name in any case."""
    return chosen(name, algorithms(), "algorithm").build(options)
