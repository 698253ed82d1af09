"""Post-training algorithms as graphs of model invocations, one file each; discovered in sorted order."""

from __future__ import annotations

import pkgutil
from functools import lru_cache
from importlib import import_module

from graphs.errors import GraphError
from graphs.stages.stage import Algorithm, Options, StageGraph

__all__ = ["Algorithm", "Options", "StageGraph", "algorithms", "stage_graph"]

HELPERS = ("compose", "stage")


@lru_cache(maxsize=1)
def _discovered() -> tuple[Algorithm, ...]:
    stems = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in HELPERS)
    return tuple(import_module(f"{__name__}.{stem}").ALGORITHM for stem in stems)


def algorithms() -> dict[str, Algorithm]:
    """Every declared algorithm by name; two of one name are refused."""
    out: dict[str, Algorithm] = {}
    for algorithm in _discovered():
        if algorithm.name in out:
            raise GraphError(f"two stage files declare the name {algorithm.name!r}; rename one")
        out[algorithm.name] = algorithm
    return out


@lru_cache(maxsize=256)
def stage_graph(name: str, options: Options) -> StageGraph:
    """The invocation graph of an algorithm, by its name in any case."""
    known = {n.lower(): a for n, a in algorithms().items()}
    if name.lower() not in known:
        raise GraphError(f"no algorithm is called {name!r}; choose one of {', '.join(known)}")
    return known[name.lower()].build(options)
