"""What `derive communication` prints: every exchange, and totals by phase, as formulas or numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from derive.communication import Communication, Item
from derive.communication_depth import communication_depth
from derive.completions import completions
from derive.forms import Max
from derive.measure import STEP, graph_of
from derive.report import EXACT_IN_JSON
from derive.units import BYTES, ELEMENTS, MESSAGES, STEPS, Quantity
from graphs.axes import Role
from graphs.errors import GraphError

WHOLE_STEP = "step"
Widths = Mapping[Role, int]


def widths_given(words: Sequence[str]) -> dict[Role, int]:
    """``2`` for every tensor, ``gradient=4`` for those of one role; empty where volumes stay in elements."""
    roles, out = {role.value.replace(" ", "-"): role for role in Role}, {}
    for word in words:
        name, _, value = word.rpartition("=")
        if not (value.isascii() and value.isdigit()) or (name and name not in roles):
            raise GraphError(f"--bytes {word}: write a width, or one for a role ({', '.join(roles)}) as in gradient=4")
        if not int(value):
            raise GraphError(f"--bytes {word}: an element cannot take 0 bytes; write at least 1")
        out.update(dict.fromkeys([roles[name]] if name else Role, int(value)))
    if out and len(out) < len(Role):
        raise GraphError("--bytes gives some tensors no width; first give one for all, as in --bytes 2")
    return out


def communication_report(found: Communication, widths: Widths, depth: Max | None = None) -> dict[str, Any]:
    """Items and totals; a volume is in bytes where there are widths, else in elements.

    ``gradient_of`` is the parameter whose gradient an exchange completes, if it does.
    """
    q, unit = found.question, BYTES if widths else ELEMENTS
    gradients = completions(graph_of(q, STEP))
    phases = {phase: _totals(found.during(phase), widths) for phase in found.phases}
    out = {
        "scheme": q.scheme.lower(),
        "algorithm": found.algorithm,
        "unit": unit,
        "items": [_item(i, widths) | {"gradient_of": gradients.get(i.where)} for i in found.items],
        "totals": {**phases, WHOLE_STEP: _totals(found, widths)},
    }
    return out if depth is None else out | {"depth": shown(depth)}


def depth_of(found: Communication, sizes: Mapping[str, int]) -> Max:
    return communication_depth(found.question, found.algorithm, sizes=sizes).value


def _volume(of: Callable[[Item], Quantity], widths: Widths) -> Callable[[Item], Quantity]:
    return (lambda i: of(i).in_bytes(widths[i.role])) if widths else of


def _item(item: Item, widths: Widths) -> dict[str, Any]:
    sent, total = _volume(lambda i: i.sent, widths), _volume(lambda i: i.total, widths)
    return {
        "where": item.where,
        "phase": item.phase,
        "action": item.action,
        "mesh": item.mesh,
        "axes": list(item.axes),
        "role": item.role.value,
        "stages": list(item.positions),
        "count": shown(Max.of(item.count)),
        "per_rank": _amounts(sent(item), item.messages, item.steps),
        "global": _amounts(total(item), item.total_messages),
    }


def _totals(found: Communication, widths: Widths) -> dict[str, Any]:
    unit = BYTES if widths else ELEMENTS
    sent = found.per_rank(_volume(lambda i: i.sent, widths), unit)
    messages = found.per_rank(lambda i: i.messages, MESSAGES)
    steps = found.per_rank(lambda i: i.steps, STEPS)
    total = found.overall(_volume(lambda i: i.total, widths), unit)
    return {
        "per_rank": _amounts(sent, messages, steps),
        "global": _amounts(total, found.overall(lambda i: i.total_messages, MESSAGES)),
    }


def _amounts(volume: Quantity, *others: Quantity) -> dict[str, Any]:
    return {"volume": shown(volume.amount)} | {q.unit: shown(q.amount) for q in others}


def shown(amount: Max) -> int | str:
    """A whole number that JSON keeps exact, else the text form."""
    if amount.symbols or any(f.has_logs for f in amount.members):
        return amount.text
    value: Fraction = amount.evaluate({})
    whole = value.denominator == 1 and value.numerator <= EXACT_IN_JSON
    return value.numerator if whole else str(value)


def communication_text(report: Mapping[str, Any]) -> str:
    """One line per exchange, then the totals."""
    head = ("where", "action", "mesh", "tensor", "times", f"{report['unit']} per rank", "messages", "steps")
    lines = []
    for phase in (p for p in report["totals"] if p != WHOLE_STEP):
        rows = [_cells(i) for i in report["items"] if i["phase"] == phase]
        lines += [f"{phase}:", *_aligned([head, *rows]), ""]
    for phase, totals in report["totals"].items():
        for view in ("per_rank", "global"):
            amounts = {report["unit"] if k == "volume" else k: v for k, v in totals[view].items()}
            lines += [f"{phase}, {view.replace('_', ' ')}:", *(f"  {unit:<9} {v}" for unit, v in amounts.items())]
    if "depth" in report:
        lines.append(f"depth with communication:\n  {report['depth']}")
    return "\n".join(lines) + "\n"


def _cells(item: Mapping[str, Any]) -> tuple[str, ...]:
    own = item["per_rank"]
    tensor = " ".join(item["axes"]) or "scalar"
    where = f"grad {item['gradient_of']}" if item["gradient_of"] else item["where"]
    words = (where, item["action"], item["mesh"], tensor, item["count"], own["volume"])
    return tuple(map(str, (*words, own["messages"], own["steps"])))


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(w.ljust(n) for w, n in zip(row, widths, strict=True)).rstrip() for row in rows]
