"""Published forms of the memory of training, and what is between them and what the graphs give.

A form is compared under the scheme and the recomputation that it speaks of, in bytes, with dropout and d_ff = 4 d.  It
may say which groups it leaves out; what it leaves out beyond them is unexplained.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from derive import expr
from derive.footprint import Footprint, footprint
from derive.forms import Form, symbol, total
from derive.measure import Question
from derive.memory import MIXED_COPIES, Widths, group_of
from derive.normal import single_form
from derive.render.typeset import display
from derive.textform import parse_text
from derive.work import Term
from graphs.blocks.dropout import USUAL
from graphs.errors import GraphError
from graphs.transforms.backward import Recompute

KORTHIKANTI = "Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models, Table 2"
RAJBHANDARI = "Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, Figure 1"
MEGATRON = "NVIDIA Megatron-LM, documentation of the distributed optimizer"
LAYER, PARAMETER = "a layer", "a parameter"


@dataclass(frozen=True)
class Published:
    """Bytes of one rank for ``of`` (what a layer saves, or a parameter's state), in text form."""

    name: str
    source: str
    of: str
    form: str
    scheme: str
    recompute: Recompute = Recompute.NONE
    widths: Widths = field(default_factory=Widths)
    leaves_out: tuple[str, ...] = ()

    @property
    def value(self) -> Form:
        return single_form(parse_text(self.form))


def _activations(
    name: str, form: str, scheme: str, recompute: Recompute = Recompute.NONE, *, norms: bool = True
) -> Published:
    leaves_out = ("statistics",) if norms else ()
    return Published(f"activations, {name}", KORTHIKANTI, LAYER, form, scheme, recompute, leaves_out=leaves_out)


def _state(name: str, source: str, form: str, scheme: str, gradients: int = Widths.gradients) -> Published:
    return Published(f"state, {name}", source, PARAMETER, form, scheme, widths=Widths(gradients=gradients))


FORMS = (
    _activations("no parallelism", "B*m*d*(34 + 5*h*m/d)", "None"),
    _activations("tensor", "B*m*d*(10 + 24/P_t + 5*h*m/(d*P_t))", "Tensor"),
    _activations("tensor and sequence", "B*m*d*(34/P_t + 5*h*m/(d*P_t))", "Sequence"),
    _activations("tensor, selective", "B*m*d*(10 + 24/P_t)", "Tensor", Recompute.SELECTIVE),
    _activations("tensor and sequence, selective", "B*m*d*34/P_t", "Sequence", Recompute.SELECTIVE),
    _activations("full recomputation", "2*B*m*d", "None", Recompute.LAYER_BOUNDARY, norms=False),
    _state("no ZeRO", RAJBHANDARI, "16", "Data"),
    _state("ZeRO-1", RAJBHANDARI, "4 + 12/P_d", "ZeRO-1"),
    _state("ZeRO-2", RAJBHANDARI, "2 + 14/P_d", "ZeRO-2"),
    _state("ZeRO-3", RAJBHANDARI, "16/P_d", "ZeRO-3"),
    _state("Megatron", MEGATRON, "18", "Data", gradients=4),
    _state("Megatron, distributed optimizer", MEGATRON, "6 + 12/P_d", "ZeRO-1", gradients=4),
)


@dataclass(frozen=True)
class Comparison:
    """``published = derived - left out - unexplained``; ``left_out`` are named contributions to the derived form."""

    published: Published
    derived: Form
    left_out: tuple[tuple[str, Form], ...]

    @property
    def residual(self) -> Form:
        return self.derived - self.published.value

    @property
    def unexplained(self) -> Form:
        return self.residual - total(amount for _, amount in self.left_out)


def compare(published: Published) -> Comparison:
    """Derive what the form speaks of."""
    q = Question(
        scheme=published.scheme, recompute=published.recompute, copies=MIXED_COPIES, dropout=USUAL, blocks_only=True
    )
    found = footprint(q, published.widths)
    terms = found.layer_terms() if published.of == LAYER else _of_a_parameter(found, published)
    shares = [(t, t.amount.substitute({"d_ff": 4 * symbol("d")})) for t in terms]
    left_out = [(t.where, amount) for t, amount in shares if group_of(t) in published.leaves_out]
    return Comparison(published, total(amount for _, amount in shares), tuple(left_out))


def _of_a_parameter(found: Footprint, published: Published) -> list[Term]:
    """What is kept of one parameter, which must be the same for all."""
    alone = footprint(replace(found.question, scheme="None", copies=1))
    whole = {t.where: t.amount for t in alone.terms if t.phase == "state"}
    shares: dict[str, list[Term]] = {}
    for t in found.terms:
        if t.phase == "state":
            shares.setdefault(t.where, []).append(replace(t, amount=t.amount / whole[t.where]))
    if len({total(t.amount for t in terms) for terms in shares.values()}) > 1:
        raise GraphError(f"{published.name}: parameters are kept in different ways; compare them one by one")
    return next(iter(shares.values()))


# -- the report -------------------------------------------------------------------------------------------------------
def compared(forms: Iterable[Published] = FORMS) -> list[dict[str, Any]]:
    """Every published form with the derived one and the residual, as plain data."""
    return [_row(compare(f)) for f in forms]


def _row(c: Comparison) -> dict[str, Any]:
    return {
        "name": c.published.name,
        "source": c.published.source,
        "of": c.published.of,
        "scheme": c.published.scheme.lower(),
        "recompute": c.published.recompute.value.replace("_", "-"),
        "widths": asdict(c.published.widths),
        "published": _text(c.published.value),
        "derived": _text(c.derived),
        "residual": _text(c.residual),
        "left_out": [{"from": where, "amount": _text(amount)} for where, amount in c.left_out],
        "unexplained": _text(c.unexplained),
    }


def _text(form: Form) -> str:
    return expr.text(display(form))


def _listed(widths: dict[str, int]) -> str:
    return ", ".join(f"{group} {width}" for group, width in widths.items())


def to_text(rows: Iterable[dict[str, Any]]) -> str:
    usual = asdict(Widths())
    lines = [f"bytes on a rank; d_ff = 4*d; an element of {_listed(usual)}", ""]
    for row in rows:
        lines.append(f"{row['name']}: of {row['of']} under {row['scheme']}, recompute {row['recompute']}")
        unusual = {k: v for k, v in row["widths"].items() if v != usual[k]}
        lines += [f"  bytes of {_listed(unusual)}"] if unusual else []
        lines += [f"  {key:<9} {row[key]}" for key in ("published", "derived", "residual")]
        if row["left_out"]:
            made_of = ", ".join(f"{part['from']} {part['amount']}" for part in row["left_out"])
            lines.append(f"  {'made of':<9} {made_of}")
        if row["unexplained"] != "0":
            lines.append(f"  {'beyond it':<9} {row['unexplained']}")
        lines.append(f"  {'source':<9} {row['source']}")
    return "\n".join(lines) + "\n"
