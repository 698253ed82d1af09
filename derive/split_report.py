"""What `derive split` prints: the cost of an iteration and the points of an iso-compute curve, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from derive.budget import iso_compute, split
from derive.forms import symbol
from derive.options import parse_sizes, parse_values
from derive.placements import StageQuestion
from derive.stage_report import shown
from graphs.errors import GraphError


def split_report(
    q: StageQuestion, budget: int | None, over: str, solve_for: str, given: Sequence[str]
) -> dict[str, Any]:
    """The derived cost, per prompt and per rollout; with a budget, points of equal compute."""
    found = split(q)
    out: dict[str, Any] = {
        "algorithm": q.graph.name,
        "cost": shown(found.total),
        "per_prompt": shown(found.per_prompt),
        "per_rollout": shown(found.per_rollout),
    }
    if budget is None:
        return out
    cost = found.total.substitute({"m": symbol("S") + symbol("T")})
    name, values = parse_values(over, cost.symbols)
    known = parse_sizes(given, cost.symbols)
    if "m" in (*known, name, solve_for):
        raise GraphError("m is S+T here; give S and T")
    if twice := sorted(known.keys() & {name, solve_for}):
        raise GraphError(f"{twice[0]} is set, and varied or solved for; leave out one of these")
    points = iso_compute(cost, budget, (name, values), solve_for, known)
    if not points:
        raise GraphError(f"a budget of {budget} operations buys no iteration; give a larger one")
    return {**out, "budget": str(budget), "over": name, "for": solve_for, "points": points}


def split_text(data: dict[str, Any]) -> str:
    lines = [f"{data['algorithm']}, work of one iteration"]
    lines += [f"  {label:<12} {data[key]}" for label, key in (("in all", "cost"), ("per prompt", "per_prompt"))]
    lines.append(f"  {'per rollout':<12} {data['per_rollout']}")
    if "points" in data:
        lines += ["", f"  {data['over']:>8} {data['for']:>12}   within {data['budget']} operations"]
        lines += [f"  {p[data['over']]:>8} {p[data['for']]:>12}" for p in data["points"]]
    return "\n".join(lines) + "\n"
