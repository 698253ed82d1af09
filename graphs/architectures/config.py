"""A model's configuration as Hugging Face's config.json has it: checked access to its keys."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from graphs.errors import GraphError, shown

#: a larger size is a slip
LARGEST = 10**18


@dataclass(frozen=True)
class Config:
    """Keys and values of one file; ``place`` is its name, for messages."""

    values: Mapping[str, object]
    place: str

    def refuse(self, sentence: str) -> NoReturn:
        raise GraphError(f"{self.place}: {sentence}")

    @property
    def model_type(self) -> str:
        return self.text("model_type")

    def has(self, key: str) -> bool:
        """Is there a value for the key, other than null?"""
        return self.values.get(key) is not None

    def needs(self, *keys: str) -> None:
        """Each key is in the file, be it as null: absent, it would stand for the size of some other model."""
        for key in keys:
            if key not in self.values:
                self.refuse(f"the key {key!r} is missing; add it to the configuration")

    def _value(self, key: str) -> object:
        if not self.has(key):
            self.refuse(f"the key {key!r} is missing; add it to the configuration")
        return self.values[key]

    def text(self, key: str) -> str:
        value = self._value(key)
        if not isinstance(value, str):
            self.refuse(f"{key} is {shown(value)}; give it a text")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        """A positive integer; ``default`` where the key is absent or null."""
        value = self._value(key) if default is None or self.has(key) else default
        if type(value) is not int or value < 1:
            self.refuse(f"{key} is {shown(value)}; give it a positive integer")
        if value > LARGEST:
            self.refuse(f"{key} is {shown(value)}; give it at most 10**18")
        return value

    def optional(self, key: str) -> int | None:
        """A positive integer, or None where the key is absent or null."""
        return self.count(key) if self.has(key) else None

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number; ``default`` where the key is absent or null."""
        value = self._value(key) if default is None or self.has(key) else default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
            self.refuse(f"{key} is {shown(value)}; give it a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false; ``default`` where the key is absent or null."""
        value = self.values[key] if self.has(key) else default
        if not isinstance(value, bool):
            self.refuse(f"{key} is {shown(value)}; give it true or false")
        return value

    def items(self, key: str) -> list[object]:
        value = self._value(key)
        if not isinstance(value, list):
            self.refuse(f"{key} is {shown(value)}; give it a list")
        return value

    def must_be(self, key: str, *, only: object) -> None:
        """Where the key has a value, it is that one; others change what is computed."""
        value = self.values.get(key)
        if value is not None and (type(value) is not type(only) or value != only):
            self.refuse(f"{key} is {shown(value)}; only {only!r} is supported")
