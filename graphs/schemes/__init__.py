"""Parallelism schemes, one file each; the files of this folder are discovered in sorted order."""

from __future__ import annotations

import pkgutil
from functools import lru_cache
from importlib import import_module

from graphs.errors import GraphError
from graphs.schemes.scheme import Mapping, Scheme

__all__ = ["Mapping", "Scheme", "schemes"]


@lru_cache(maxsize=1)
def _discovered() -> tuple[Scheme, ...]:
    stems = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "scheme")
    return tuple(import_module(f"{__name__}.{stem}").SCHEME for stem in stems)


def schemes() -> dict[str, Scheme]:
    """Every declared scheme by name; two of one name are refused."""
    out: dict[str, Scheme] = {}
    for scheme in _discovered():
        if scheme.name in out:
            raise GraphError(f"two scheme files declare the name {scheme.name!r}; rename one")
        out[scheme.name] = scheme
    return out
