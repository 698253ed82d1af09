"""A cell's verdict with all that it carries, as one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from derive import expr
from derive.asymptotics.problem import Bound, Domain, Regime
from derive.forms import Form, Max
from derive.render.typeset import display

#: the record's keys in their order
FIRST = "id table row column printed printed_expr derived derived_order verdict assumptions regime weakest slack"
THEN = "expanded regime_verdict directions certificate kind implied witness detail"


@dataclass(frozen=True)
class Cell:
    """One entry of `derive check --json`.

    ``value`` and ``order_form`` are the forms behind its texts.  ``context`` is what the checker needs to tie the
    certificate to the cell: ``domain``, ``hypotheses`` in force, ``regime_bounds``, what named costs stand for
    (``reads``), the derived cost under a further assumption that rescues the claim (``rescued``), and the ``readings``
    for other models, or of the ``corrected`` form where the printed one is ill-formed.  ``expanded`` is the derived
    cost with derived building blocks in place of named costs.
    """

    id: str
    table: str
    row: str
    column: str
    derived: str
    verdict: str
    assumptions: tuple[str, ...]
    detail: str
    value: Max
    order_form: Form | Max | None = None
    derived_order: str | None = None
    expanded: str | None = None
    printed: str | None = None
    printed_expr: str | None = None
    kind: str | None = None
    implied: tuple[str, ...] = ()
    regime: str | None = None
    regime_verdict: str | None = None
    weakest: str | None = None
    directions: tuple[str, ...] = ()
    slack: str | None = None
    certificate: Mapping[str, Any] | None = None
    witness: Mapping[str, Any] | None = None
    context: Mapping[str, Any] | None = None

    def json(self) -> dict[str, Any]:
        """The record as plain data, in a fixed order."""
        names = [*FIRST.split(), *THEN.split()]
        assert set(names) == {f.name for f in fields(self)} - {"value", "order_form", "context"}
        out = {name: getattr(self, name) for name in names}
        lists = {name: list(getattr(self, name)) for name in ("assumptions", "implied", "directions")}
        return out | lists | {"certificate": self.certificate or {}, **(self.context or {})}


def regime_text(regime: Regime) -> str:
    """``h*m = O(d) and V = O(d)``, arranged for reading."""
    sides = ((expr.text(display(b.left)), expr.text(display(b.right))) for b in regime.bounds)
    return " and ".join(f"{left} = O({right})" for left, right in sides)


def bound_json(bound: Bound) -> dict[str, str]:
    return {"left": bound.left.text, "right": bound.right.text}


def domain_json(domain: Domain) -> dict[str, dict[str, Any]]:
    factors = {name: f.text for name, f in sorted(domain.factors.items())}
    return {"factors": factors, "least": dict(sorted(domain.least.items()))}
