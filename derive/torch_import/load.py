"""A layer by the name of the function that makes it, ``module:factory``.  Importing the module executes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from graphs.errors import GraphError

PROTOCOL = "return (module, inputs), or (module, inputs, sizes) with names of sizes and their numbers in the example"


@dataclass(frozen=True)
class Layer:
    """A module, one example of its inputs, and names for the sizes of that example.

    ``inputs`` are positional (a sequence) or keyword arguments (a mapping).
    """

    place: str
    module: Any
    inputs: Sequence[Any] | Mapping[str, Any]
    sizes: Mapping[str, int] = field(default_factory=dict)


def load(spec: str) -> Layer:
    """What ``module:factory`` makes; GraphError where there is no such factory or it makes something else.

    The module is looked for in the current folder too.
    """
    name, colon, attribute = spec.partition(":")
    if not (colon and all(part.isidentifier() for part in (*name.split("."), attribute))):
        raise GraphError(f"{spec!r} is no module:factory; write something like layers:block")
    with _here():
        made = _made(_found(spec, name, attribute), spec)
    return layer_of(made, spec)


@contextmanager
def _here() -> Iterator[None]:
    """Modules are looked for in the current folder first."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _found(spec: str, name: str, attribute: str) -> Any:
    try:
        module = import_module(name)
    except (Exception, SystemExit) as error:
        raise GraphError(f"{spec}: module {name!r} {said(error)}; mend it, or name another") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        what = "is not a function" if hasattr(module, attribute) else "is not in it"
        raise GraphError(f"{spec}: {attribute!r} {what}; name a function of module {name!r}")
    return factory


def _made(factory: Any, spec: str) -> Any:
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise GraphError(f"{spec}: the factory {said(error)}; it is called without arguments, mend it") from error


def layer_of(made: Any, place: str) -> Layer:
    """The layer of what a factory returned."""
    from torch import nn

    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise GraphError(f"{place}: the factory returned {_kind(made)}; {PROTOCOL}")
    layer = Layer(place, *made)
    if not isinstance(layer.module, nn.Module):
        raise GraphError(f"{place}: {_kind(layer.module)} is not a torch.nn.Module; {PROTOCOL}")
    if not isinstance(layer.inputs, tuple | list | Mapping):
        raise GraphError(f"{place}: inputs are {_kind(layer.inputs)}; make them a tuple, or a dict by name")
    _check_sizes(layer.sizes, place)
    return layer


def _check_sizes(sizes: object, place: str) -> None:
    if not isinstance(sizes, Mapping):
        raise GraphError(f"{place}: sizes are {_kind(sizes)}; make them a dict such as {{'B': 2, 'm': 5}}")
    owners: dict[int, str] = {}
    for name, number in sizes.items():
        if not (isinstance(name, str) and name.isidentifier() and type(number) is int and number > 1):
            raise GraphError(f"{place}: size {name!r} = {number!r}; a size is a name with a whole number above 1")
        if owners.setdefault(number, name) != name:
            raise GraphError(f"{place}: sizes {owners[number]} and {name} are both {number}; make the example's differ")


def _kind(thing: object) -> str:
    return f"something of type {type(thing).__name__}"


def said(error: BaseException) -> str:
    """The first line of the error."""
    text = str(error).strip().partition("\n")[0]
    if isinstance(error, ModuleNotFoundError):
        return f"cannot be imported ({text})"
    return f"fails with {type(error).__name__}: {text}" if text else f"fails with {type(error).__name__}"
