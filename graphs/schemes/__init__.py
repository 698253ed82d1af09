"""Parallelism schemes: those of this folder, those of installed packages, and those of a user's own files.

The files of this folder are discovered in sorted order.  An installed package declares a scheme by an entry point of
the group ``rlm_workdepth.schemes``, which names a module or an object in one.
"""

from __future__ import annotations

import importlib.util
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from graphs.discovery import chosen, modules
from graphs.errors import GraphError
from graphs.schemes.declaration import Declaration, blaming, declaration_in
from graphs.schemes.scheme import Mapping, Scheme

__all__ = [
    "Declaration",
    "Mapping",
    "Scheme",
    "blaming",
    "cuts",
    "declared",
    "find",
    "load",
    "schemes",
    "with_policies",
]

GROUP = "rlm_workdepth.schemes"
HELPERS = ("declaration", "scheme")

#: schemes of files that `load` was given, by path, and of `with_policies`, by name
_loaded: dict[Path | str, Declaration] = {}


@lru_cache(maxsize=1)
def _discovered() -> tuple[Declaration, ...]:
    found = modules(__name__, HELPERS)
    return tuple(declaration_in(module, f"{module.__name__.rpartition('.')[2]}.py") for module in found)


@lru_cache(maxsize=1)
def _installed() -> tuple[Declaration, ...]:
    """The schemes of installed packages; a broken one is refused by name."""
    return tuple(_entry(point) for point in sorted(metadata.entry_points(group=GROUP), key=lambda p: (p.name, p.value)))


def _entry(point: metadata.EntryPoint) -> Declaration:
    place = f"entry point {point.name} = {point.value} (group {GROUP})"
    try:
        with redirect_stdout(sys.stderr):
            found = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise GraphError(f"{place}: {_said(error)}; mend or remove the package that declares it") from error
    return declaration_in(found, place)


def declared() -> dict[str, Declaration]:
    """Every known scheme by name, with what its table row speaks of; two of one name are refused."""
    out: dict[str, Declaration] = {}
    for one in (*_discovered(), *_installed(), *_loaded.values()):
        _refuse_clash(one, out)
        out[one.scheme.name] = one
    return out


def schemes() -> dict[str, Scheme]:
    """Every known scheme by name."""
    return {name: one.scheme for name, one in declared().items()}


def cuts(name: str) -> frozenset[tuple[str, str]]:
    """Which axis the scheme of that name, in any case, cuts over which mesh dimension while a model runs."""
    entries = chosen(name, schemes(), "scheme").entries
    return frozenset((e.axis, e.mesh) for e in entries if not e.stored)


def find(word: str) -> Declaration:
    """The scheme of that name, whatever its capitals, or the one of the Python file at that path (`load`)."""
    by_name = {name.lower(): one for name, one in declared().items()}
    if word.lower() in by_name:
        return by_name[word.lower()]
    if not word.endswith(".py"):
        raise GraphError(
            f"no scheme is called {word!r}; choose one of {', '.join(by_name)} or name a Python file that ends in .py"
        )
    return load(Path(word))


def load(path: Path) -> Declaration:
    """Execute the Python file at ``path`` and register the scheme that it declares.

    The module declares ``SCHEME`` and may declare ``FFN``, ``ATTENTION`` and ``ASSUMES`` (see `Declaration`).
    GraphError where there is no such file, or it does not declare a scheme, or one whose name is taken.
    """
    if not path.is_file():
        there = "not a file" if path.exists() else "no such file"
        raise GraphError(f"{path}: {there}; name the Python file that declares the scheme")
    path = path.resolve()
    one = declaration_in(_executed(path), str(path))
    _refuse_clash(one, {n: d for n, d in declared().items() if d != _loaded.get(path)})
    if _loaded.setdefault(path, one) != one:
        raise GraphError(f"{path}: the file has changed since it was loaded; start anew")
    return _loaded[path]


def with_policies(one: Declaration, gathered: str | None, accumulated: str | None) -> Declaration:
    """The scheme with these policies, where they are given; known by a name that says what differs."""
    own = one.scheme
    ways = gathered or own.gathered, accumulated or own.accumulated
    changed = [way for way, was in zip(ways, (own.gathered, own.accumulated), strict=True) if way != was]
    if not changed:
        return one
    name = " ".join((own.name, *changed))
    with blaming(one.place):
        other = replace(one, scheme=replace(own, name=name, gathered=ways[0], accumulated=ways[1]))
    _refuse_clash(other, {n: d for n, d in declared().items() if d != other})
    return _loaded.setdefault(name, other)


class _Source(SourceFileLoader):
    """Reads a user's file and leaves no compiled copy beside it, which could be out of date the next time."""

    def set_data(self, path: str, data: object, *, _mode: int = 0) -> None:
        """Write nothing."""


def _executed(path: Path) -> ModuleType:
    name = f"user_scheme_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Source(name, str(path)))
    assert spec is not None  # a loader is given
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        with blaming(str(path)), redirect_stdout(sys.stderr):  # what a command prints is its own
            spec.loader.exec_module(module)
    except (GraphError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise GraphError(f"{path}: {_said(error)}; mend the file, or name the one that declares the scheme") from error
    return module


def _said(error: BaseException) -> str:
    """The error in one line, with the line of a syntax error."""
    if isinstance(error, SyntaxError):
        return f"not valid Python ({error.msg}" + (f", line {error.lineno})" if error.lineno else ")")
    said = " ".join(str(error).split())
    return f"cannot be imported ({type(error).__name__}{': ' if said else ''}{said})"


def _refuse_clash(one: Declaration, known: dict[str, Declaration]) -> None:
    """Names are told apart without regard to capitals, as the command line does."""
    for name, other in known.items():
        if name.lower() == one.scheme.name.lower():
            raise GraphError(
                f"{one.place}: a scheme is called {name!r} already (in {other.place}); rename one of the two"
            )
