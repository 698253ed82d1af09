"""Derived values as expressions and as text, the way a table writes them."""

from __future__ import annotations

from collections.abc import Iterable

from derive import cells, expr
from derive.cells import Instance
from derive.expr import Expr
from derive.forms import Max
from derive.generation import over_steps, sum_of_steps
from derive.render.typeset import SEQUENCE_TABLES, display, with_sequence


def arranged(instance: Instance, assumptions: Iterable[str], value: Max) -> Expr:
    """A derived value arranged for reading; where a cell is about decode steps, with a sum over them."""
    if instance.each is None:
        return display(value)
    (step,), (whole,) = cells.derive(instance.iteration, assumptions).value.members, value.members
    rest = whole - over_steps(step)
    return expr.add(*([display(rest)] if rest else []), sum_of_steps(display(step)))


def text(e: Expr, table: str) -> str:
    """Text form, with the context length written as the table writes it."""
    return expr.text(with_sequence(e) if table in SEQUENCE_TABLES else e)
