"""From a published form to its verdict, with what lies between the printed form and the derived one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from derive import expr
from derive.answers import PER, Part, counted, parts_of
from derive.asymptotics.problem import Domain
from derive.cell import Cell, bound_json, domain_json, regime_text
from derive.cells import Instance
from derive.details import explain_verdict
from derive.forms import Form, Max, symbol, total
from derive.measure import Measured
from derive.published import Published, load
from derive.readings import TYPICAL, Reading
from derive.records import ClaimError
from derive.render.typeset import display
from derive.verdict import judge, rest


def check_published(folder: Path | None = None) -> list[Cell]:
    """The verdict of every published form, in the order of the files."""
    return [check(form) for form in load(folder).values()]


def check(form: Published) -> Cell:
    """The verdict on what the form speaks of; ``residual`` is all that is derived minus what is printed."""
    claim, derived, printed = form.claim, spoken_of(form), printed_value(form)
    domain = Domain(dict(form.asked.question.factors), {"m": 2}, TYPICAL)
    found, against = Max.of(derived), Max.of(printed)
    judged = judge(found, against, claim.kind, domain, ())
    instance = Instance(None, form.asked.question, lambda _: Measured(found, ()))
    reading = Reading(instance, (), Measured(found, ()), against, domain, (), judged)
    regime = regime_text(judged.regimes[0]) if judged.regimes else None
    slack = rest(found, against)
    return Cell(
        id=claim.id,
        table=claim.table,
        row=claim.row,
        column=claim.column,
        printed=claim.latex,
        printed_expr=_text(printed),
        derived=_text(derived),
        verdict=judged.verdict,
        assumptions=(),
        kind=claim.kind,
        detail=explain_verdict(claim, judged.verdict, reading, reading, (), regime),
        value=found,
        slack=_text(slack) if slack else None,
        regime=regime,
        regime_verdict=judged.under,
        directions=judged.directions,
        certificate=judged.certificate,
        witness=judged.witness,
        context=_context(form, domain) | {"regime_bounds": [bound_json(b) for r in judged.regimes for b in r.bounds]},
    )


def spoken_of(form: Published) -> Form:
    """What is derived, but for what the form says it leaves out."""
    return total(p.amount for p in derived_parts(form) if not p.is_of(form.leaves_out))


def derived_parts(form: Published) -> list[Part]:
    """The answer to the form's question under its relations; ClaimError where it leaves out what is not there."""
    found = parts_of(form.asked)
    known = {name for p in found for name in p.groups}
    if strange := sorted(set(form.leaves_out) - known):
        parts = ", ".join(sorted(known))
        raise ClaimError(f"{form.claim.id}: leaves out {strange[0]!r}, which is no part of it; the parts are {parts}")
    return [Part(p.where, p.groups, p.amount.substitute(form.relations)) for p in found]


def printed_value(form: Published) -> Form:
    """The printed form over the whole batch, with the parameters counted and under its relations."""
    counts = {n: total(p.amount for p in counted(form.asked, uses)) for n, uses in form.counts.items()}
    return (PER[form.per](form.asked) * form.value.substitute(counts)).substitute(form.relations)


# -- what the residual is made of -------------------------------------------------------------------------------------
def residual(form: Published) -> Form:
    """All that is derived minus what is printed."""
    return total(p.amount for p in derived_parts(form)) - printed_value(form)


def made_of(form: Published) -> list[dict[str, Any]]:
    """Each term of the residual with all that contributes to it: operations, counted parameters, printed terms."""
    sources = _contributions(form)
    out = []
    for monomial, coefficient in residual(form).ordered:
        by = [(name, Form({monomial: amount.terms[monomial]})) for name, amount in sources if monomial in amount.terms]
        listed = [{"from": name, "amount": _text(amount)} for name, amount in by]
        out.append({"term": _text(Form({monomial: coefficient})), "of": listed})
    return out


def _contributions(form: Published) -> list[tuple[str, Form]]:
    """What the residual is the sum of: derived parts, and with the other sign the printed form's."""
    merged: dict[str, Form] = {}
    for p in derived_parts(form):
        merged[p.where] = merged.get(p.where, Form.constant(0)) + p.amount
    printed, unit = form.value, PER[form.per](form.asked)
    for letter, uses in form.counts.items():
        times = Form({m: c for m, c in printed.terms.items() if dict(m).get(letter) == 1})
        printed = printed - times
        for p in counted(form.asked, uses):
            amount = (unit * times / symbol(letter) * p.amount).substitute(form.relations)
            merged[f"printed: {letter} counts {p.where}"] = -amount
    merged["printed"] = -(unit * printed).substitute(form.relations)
    return list(merged.items())


def _context(form: Published, domain: Domain) -> dict[str, Any]:
    left = residual(form)
    return {
        "asked": form.asked.said(),
        "source": form.source,
        "place": form.place,
        "per": form.per,
        "leaves_out": list(form.leaves_out),
        "residual": _text(left) if left else None,
        "made_of": made_of(form),
        "reads": {},
        "domain": domain_json(domain),
        "hypotheses": [],
    }


def _text(form: Form) -> str:
    return expr.text(display(form))
