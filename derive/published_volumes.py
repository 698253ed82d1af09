"""Published volumes of sharded data parallelism, and what is between them and what the graphs exchange.

A volume counts the elements of parameters and gradients that a rank sends per optimizer step, in parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from derive import expr
from derive.communication import Item, items
from derive.costs.model import PAPER
from derive.forms import Form, total
from derive.memory import elements
from derive.normal import single_form
from derive.render.typeset import display
from derive.textform import parse_text
from graphs.axes import Role
from graphs.blocks.decoder import DENSE
from graphs.gallery import step
from graphs.models.roles import POLICY
from graphs.schemes import schemes
from graphs.transforms.accumulate import accumulate
from graphs.transforms.optimizer import with_optimizer
from graphs.transforms.partition import partition

ZERO = "Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, Section 7"
FSDP = "Zhao et al. 2023, PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel"
STATE = (Role.PARAMETER, Role.PARAMETER_GRADIENT)


@dataclass(frozen=True)
class Volume:
    """``form``, in text form, times the parameters; the policies are those of `graphs.schemes.scheme`."""

    name: str
    source: str
    form: str
    scheme: str
    gathered: str = "again"
    accumulated: str = "shards"
    micro_batches: bool = False

    @property
    def value(self) -> Form:
        return single_form(parse_text(self.form))


FORMS = (
    Volume("replicated", ZERO, "2*(P_d - 1)/P_d", "Data"),
    Volume("ZeRO-1", ZERO, "2*(P_d - 1)/P_d", "ZeRO-1"),
    Volume("ZeRO-2", ZERO, "2*(P_d - 1)/P_d", "ZeRO-2"),
    Volume("ZeRO-3", ZERO, "3*(P_d - 1)/P_d", "ZeRO-3"),
    Volume("ZeRO-3, weights kept", FSDP, "2*(P_d - 1)/P_d", "ZeRO-3", gathered="kept"),
    Volume("ZeRO-3 with micro-batches", FSDP, "3*n_mb*(P_d - 1)/P_d", "ZeRO-3", micro_batches=True),
    Volume(
        "ZeRO-3 with micro-batches, reduced once",
        FSDP,
        "(2*n_mb + 1)*(P_d - 1)/P_d",
        "ZeRO-3",
        accumulated="partial",
        micro_batches=True,
    ),
)


def exchanged(volume: Volume) -> list[Item]:
    """All exchanges of an optimizer step of the canonical decoder."""
    graph = step(POLICY.name, DENSE)
    graph = with_optimizer(accumulate(graph) if volume.micro_batches else graph)
    scheme = replace(schemes()[volume.scheme], gathered=volume.gathered, accumulated=volume.accumulated)
    return list(items(partition(graph, scheme), scheme.meshes))


def compare(volume: Volume) -> dict[str, Any]:
    """The published volume, the derived one, and the residual with what it is made of, as plain data."""
    found = exchanged(volume)
    parameters = total(elements(t, PAPER) for _, t in step(POLICY.name, DENSE).parameters())
    published, derived = volume.value * parameters, total(map(_sent, found))
    others = [(i.where, _sent(i)) for i in found if i.role not in STATE]
    times = multiple(derived - total(amount for _, amount in others), parameters)
    residual = derived - published
    return {
        "name": f"volume, {volume.name}",
        "source": volume.source,
        "of": "elements that a rank sends",
        "scheme": volume.scheme.lower(),
        "gathered": volume.gathered,
        "accumulated": volume.accumulated,
        "published": f"{volume.form} of a parameter",
        "derived": _text(derived),
        "multiple": None if times is None else _text(times),
        "residual": _text(residual),
        "left_out": [{"from": where, "amount": _text(amount)} for where, amount in others],
        "unexplained": _text(residual - total(amount for _, amount in others)),
    }


def multiple(form: Form, of: Form) -> Form | None:
    """The factor, free of the sizes in ``of``, that makes it the form; None where there is none."""
    monomial, coefficient = of.ordered[0]
    quotients = (form / Form({monomial: coefficient})).terms.items()
    factor = Form({m: c for m, c in quotients if not Form({m: 1}).symbols & of.symbols})
    return factor if factor * of == form else None


def _sent(item: Item) -> Form:
    (form,) = item.sent.amount.members
    return form


def _text(form: Form) -> str:
    return expr.text(display(form))


def compared(forms: Iterable[Volume] = FORMS) -> list[dict[str, Any]]:
    return [compare(volume) for volume in forms]


def to_text(rows: Iterable[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        lines.append(f"{row['name']}: under {row['scheme']}, gathered {row['gathered']}, added to {row['accumulated']}")
        lines += [f"  {key:<9} {row[key]}" for key in ("published", "derived")]
        if row["multiple"]:
            lines.append(f"  {'that is':<9} {row['multiple']} of a parameter, and the residual")
        lines.append(f"  {'residual':<9} {row['residual']}")
        lines += [f"  {'made of':<9} {part['from']} {part['amount']}" for part in row["left_out"]]
        if row["unexplained"] != "0":
            lines.append(f"  {'beyond it':<9} {row['unexplained']}")
        lines.append(f"  {'source':<9} {row['source']}")
    return "\n".join(lines) + "\n"
