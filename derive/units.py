"""Quantities with their unit: elements, bytes, messages and steps cannot be added to each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from derive.forms import Form, Max
from graphs.errors import GraphError

ELEMENTS, BYTES, MESSAGES, STEPS = "elements", "bytes", "messages", "steps"


@dataclass(frozen=True)
class Quantity:
    """An amount of one unit; adding another unit to it is a GraphError."""

    amount: Max
    unit: str

    @staticmethod
    def of(amount: Form | Max, unit: str) -> Quantity:
        return Quantity(Max.of(amount), unit)

    @staticmethod
    def total(parts: Iterable[Quantity], unit: str) -> Quantity:
        """The sum of the parts, of which there may be none."""
        out = Quantity.of(Form.constant(0), unit)
        for part in parts:
            out = out + part
        return out

    def __add__(self, other: Quantity) -> Quantity:
        if self.unit != other.unit:
            raise GraphError(f"cannot add {other.unit} to {self.unit}; convert one of them first")
        return replace(self, amount=self.amount + other.amount)

    def in_bytes(self, width: int) -> Quantity:
        """Bytes of so many elements that take ``width`` bytes each."""
        if self.unit != ELEMENTS:
            raise GraphError(f"only elements have a width in bytes, {self.unit} have none; leave them as they are")
        return Quantity(self.amount.scale(Form.constant(width)), BYTES)
