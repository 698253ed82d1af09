"""What `derive pipeline` prints: a table, a chart of the ranks over time, or one JSON object."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from derive.induction import check
from derive.pipeline_forms import CLOSED_FORMS
from derive.pipeline_proofs import PROOFS
from derive.schedules import Durations, Step
from graphs.errors import GraphError
from graphs.schedules import Schedule, Task

WIDEST_CHART = 400  # columns of time


def to_data(schedule: Schedule, step: Step, durations: Durations, timeline: bool = False) -> dict[str, Any]:
    """Readable names; exact fractions as strings."""
    pipeline = step.pipeline
    data: dict[str, Any] = {
        "schedule": schedule.name,
        "source": schedule.source,
        "stages": pipeline.stages,
        "micro_batches": pipeline.micro_batches,
        "virtual_stages": pipeline.virtual,
        "durations": {
            "forward": str(durations.forward),
            "backward": str(durations.backward),
            "weight_gradient": str(durations.weight_gradient),
            "transfer": str(durations.transfer),
        },
        "layers": [str(n) for n in step.layers],
        "makespan": str(step.makespan),
        "useful": str(step.useful),
        "idle": str(step.idle),
        "bubble_over_ideal": str(step.bubble_over_ideal),
        "bubble_over_total": str(step.bubble_over_total),
        "efficiency": str(step.efficiency),
        "closed_form": _closed_form(schedule, step, durations),
        "ranks": [
            {
                "rank": rank,
                "useful": str(step.busy[rank]),
                "idle": str(step.makespan - step.busy[rank]),
                "in_flight": step.in_flight[rank],
                "in_flight_layers": str(step.in_flight_layers[rank]),
            }
            for rank in range(pipeline.stages)
        ],
    }
    if timeline:
        data["timeline"] = [[_task_data(step, task) for task in tasks] for tasks in step.ranks]
    return data


def to_text(schedule: Schedule, step: Step, durations: Durations) -> str:
    rows = [
        ("makespan", step.makespan, ""),
        ("useful", step.useful, "all ranks together"),
        ("idle", step.idle, "all ranks together"),
        ("bubble / ideal", step.bubble_over_ideal, "idle per useful time"),
        ("bubble / total", step.bubble_over_total, "idle per available time"),
        ("efficiency", step.efficiency, "useful per available time"),
    ]
    lines = [f"{name:<15} {_number(value):<24} {note}".rstrip() for name, value, note in rows]
    found = _closed_form(schedule, step, durations)
    if found:
        how = "equal" if found["agrees"] else "DIFFERENT"
        proved = ", proved" if found["proved"] else ""
        lines.append(f"{'closed form':<15} bubble / ideal = {found['bubble_over_ideal']}: {how}{proved}")
    lines += ["", f"{'rank':<6}{'useful':>12}{'idle':>12}{'in flight':>12}{'in layers':>12}"]
    for rank, busy in enumerate(step.busy):
        cells = (busy, step.makespan - busy, step.in_flight[rank], step.in_flight_layers[rank])
        lines.append(f"{rank:<6}" + "".join(f"{cell!s:>12}" for cell in cells))
    return "\n".join(lines) + "\n"


def chart(step: Step) -> str:
    """One line a rank, one column a unit of time: kind and micro-batch where a task starts, ``=`` while it goes on.

    On ranks with several chunks a letter says which of them.  The unit is the greatest that divides all times.
    """
    unit = _common_unit(t for span in step.spans.values() for t in span)
    columns = int(step.makespan / unit)
    if columns > WIDEST_CHART:
        raise GraphError(
            f"the chart would have {columns} columns, more than {WIDEST_CHART}; take fewer micro-batches, or durations"
            " with a greater common unit"
        )
    labels = {task: _label(step, task) for task in step.spans}
    width = max(map(len, labels.values())) + 1
    lines = [f"time per column: {unit}"]
    for rank, tasks in enumerate(step.ranks):
        cells = ["."] * columns
        for task in tasks:
            start, end = (int(t / unit) for t in step.spans[task])
            if end > start:
                cells[start:end] = [labels[task], *["=" * (width - 1)] * (end - start - 1)]
        lines.append(f"rank {rank:<4}" + "".join(cell.ljust(width) for cell in cells).rstrip())
    return "\n".join(lines) + "\n"


def _label(step: Step, task: Task) -> str:
    virtual = step.pipeline.virtual
    turn = task.chunk // step.pipeline.stages
    letter = "" if virtual == 1 else chr(ord("a") + turn) if virtual <= 26 else f"/{turn}"
    return f"{task.kind.value}{task.micro_batch}{letter}"


def _closed_form(schedule: Schedule, step: Step, durations: Durations) -> dict[str, Any] | None:
    """What is printed about the schedule, where it speaks of this pipeline: equal chunks, free transfers."""
    form = CLOSED_FORMS.get(schedule.name)
    pipeline = step.pipeline
    sizes: dict[str, Fraction] = {
        "P_p": Fraction(pipeline.stages),
        "n_mb": Fraction(pipeline.micro_batches),
        "n_vs": Fraction(pipeline.virtual),
        "t_F": durations.forward,
        "t_B": durations.backward,
        "t_W": durations.weight_gradient,
    }
    uneven = durations.transfer or len(set(step.layers)) > 1
    if form is None or uneven or form.least_batches.evaluate(sizes) > pipeline.micro_batches:
        return None
    value = form.over_ideal(sizes)
    return {
        "idle_per_rank": form.idle.text,
        "useful_per_rank": form.useful.text,
        "source": form.source,
        "bubble_over_ideal": str(value),
        "bubble_over_total": str(form.over_total(sizes)),
        "agrees": value == step.bubble_over_ideal,
        "proved": _proved(schedule, sizes),
    }


def _proved(schedule: Schedule, sizes: Mapping[str, Fraction]) -> bool:
    """True where a proof covers these sizes and durations; it is checked here, and one that fails is an error."""
    proof = PROOFS.get(schedule.name)
    if proof is None or any(form.evaluate(sizes) < 0 for form in (*proof.sizes, *proof.durations)):
        return False
    check(proof)
    return True


def _task_data(step: Step, task: Task) -> dict[str, Any]:
    start, end = step.spans[task]
    kind = task.kind.name.lower()
    return {
        "kind": kind, "chunk": task.chunk, "micro_batch": task.micro_batch, "start": str(start), "end": str(end),
    }  # fmt: skip


def _number(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"{value} = {float(value):.6g}"


def _common_unit(times: Iterable[Fraction]) -> Fraction:
    known = set(times)
    scale = math.lcm(*(t.denominator for t in known))
    return Fraction(math.gcd(*(int(t * scale) for t in known)), scale)
