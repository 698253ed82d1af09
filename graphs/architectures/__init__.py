"""Architectures by the ``model_type`` of their configurations; this folder is searched in sorted order."""

from __future__ import annotations

from functools import lru_cache

from graphs.architectures.architecture import Architecture
from graphs.architectures.config import Config
from graphs.discovery import declarations
from graphs.errors import GraphError, shown
from graphs.models.transformer import Transformer

__all__ = ["Architecture", "Config", "architectures", "model_of"]

HELPERS = ("architecture", "config", "decoder")


@lru_cache(maxsize=1)
def architectures() -> tuple[Architecture, ...]:
    """All of this folder; two files for one model type are refused."""
    found: tuple[Architecture, ...] = tuple(declarations(__name__, "ARCHITECTURE", HELPERS))
    types = [t for a in found for t in a.model_types]
    for one in types:
        if types.count(one) > 1:
            raise GraphError(f"model_type {one!r} is declared twice in graphs/architectures; remove one")
    return found


def model_of(config: Config) -> Transformer:
    """The model of a configuration; GraphError names an unknown ``model_type`` or the key that is missing."""
    by_type = {t: a for a in architectures() for t in a.model_types}
    found = by_type.get(config.model_type)
    if found is None:
        config.refuse(f"model_type {shown(config.model_type)} is unknown; known are {', '.join(sorted(by_type))}")
    return found.read(config)
