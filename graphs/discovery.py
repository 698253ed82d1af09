"""Folders whose files each declare one thing, found in sorted order: adding a thing is adding a file."""

from __future__ import annotations

import pkgutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, TypeVar

from graphs.errors import GraphError


class Named(Protocol):
    """Whatever has a name."""

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)
T = TypeVar("T")


def modules(package: str, helpers: Collection[str] = ()) -> Iterator[ModuleType]:
    """The files of a package but for the helpers, imported, in the order of their names; a broken one is named."""
    stems = sorted(m.name for m in pkgutil.iter_modules(import_module(package).__path__) if m.name not in helpers)
    return (_imported(f"{package}.{stem}") for stem in stems)


def declarations(package: str, attribute: str, helpers: Collection[str] = ()) -> Iterator[Any]:
    """What each file of a package declares under that name."""
    for module in modules(package, helpers):
        if not hasattr(module, attribute):
            raise GraphError(f"{_file(module.__name__)} declares no {attribute}; add one, or remove the file")
        yield getattr(module, attribute)


def _imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        said = str(error) if isinstance(error, GraphError) else f"{type(error).__name__}: {error}"
        raise GraphError(f"{_file(name)}: {said}; mend or remove the file") from error


def _file(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


def by_name(found: Iterable[N], what: str) -> dict[str, N]:
    """The declarations by name; two of one name are refused."""
    out: dict[str, N] = {}
    for one in found:
        if one.name in out:
            raise GraphError(f"two {what} files declare the name {one.name!r}; rename one")
        out[one.name] = one
    return out


def chosen(name: str, known: Mapping[str, T], what: str) -> T:
    """The declaration of that name, whatever its capitals; GraphError lists the known ones."""
    same = {n.lower(): one for n, one in known.items()}
    if name.lower() not in same:
        raise GraphError(f"no {what} is called {name!r}; choose one of {', '.join(same)}")
    return same[name.lower()]
