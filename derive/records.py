"""Strict reading of TOML records: every broken rule is a `ClaimError` that names the file, the record and the mend."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class ClaimError(ValueError):
    """The claims or the ledger are not well formed; the message names the file, the id and the mend."""


def read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ClaimError(f"{file}: cannot be read ({error.strerror}); name a TOML file of claims") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ClaimError(f"{file.name}: not valid TOML ({error}); mend it or name another file") from None


def entries(data: dict[str, Any], key: str, place: str) -> list[dict[str, Any]]:
    found = data.get(key)
    if not isinstance(found, list) or not found or not all(isinstance(e, dict) for e in found):
        raise ClaimError(f"{place}: has no list of {key} entries")
    return found


def text(entry: dict[str, Any], key: str, place: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ClaimError(f"{place}: `{key}` is missing or is not text")
    return value


def texts(entry: dict[str, Any], key: str, place: str) -> tuple[str, ...]:
    value = entry.get(key, [])
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ClaimError(f"{place}: `{key}` must be a list of texts")
    return tuple(value)


def one_of(value: object, allowed: tuple[str, ...], key: str, place: str) -> str:
    if value not in allowed:
        raise ClaimError(f"{place}: {key} {value!r} is not one of {', '.join(allowed)}")
    return str(value)


def refuse_unknown_keys(entry: dict[str, Any], known: frozenset[str], place: str) -> None:
    if unknown := sorted(entry.keys() - known):
        raise ClaimError(f"{place}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")


def refuse_duplicates(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ClaimError(f"{what} id {name!r} occurs twice; remove one")
        seen.add(name)
