"""The one sentence that says why a cell has its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from derive import expr
from derive.claims import Claim
from derive.forms import Form, Max
from derive.ledger import under
from derive.placements import StageQuestion, stage_work
from derive.readings import Reading
from derive.render.typeset import display
from derive.verdict import unbounded_terms


def explain_verdict(
    claim: Claim, verdict: str, plain: Reading, decided: Reading, rescue: Sequence[str], regime: str | None
) -> str:
    """One sentence in plain words; formulas in text form."""
    if verdict == "EQUAL":
        return "The derived cost is the printed one."
    if verdict == "LEADING":
        directions = _listed(decided.judgement.directions)
        return f"The same in leading order as {directions} grows; the rest is {_difference(decided)}."
    if verdict == "TIGHT":
        return f"The printed argument bounds the derived cost from above and from below, up to constants{_idle(plain)}."
    if verdict == "UPPER":
        return f"The derived cost stays below the printed bound, which is larger than necessary{_idle(plain)}."
    if verdict == "UNDECIDED":
        return f"Neither a proof nor a counterexample was found: {plain.judgement.reason}."
    return _failure(claim, plain, rescue, regime)


def _idle(reading: Reading) -> str:
    """Named costs that the printed form counts and the stage does not have, and where the iteration has them."""
    question = reading.instance.question
    if not isinstance(question, StageQuestion):
        return ""
    whole = stage_work(replace(under(question, reading.assumptions), stage=None))
    out = []
    for name in sorted(reading.printed.symbols - reading.measured.value.symbols):
        runs = [where for where, amount in whole.parts if name in amount.symbols]
        elsewhere = f"the iteration has it in {' and '.join(runs)} alone" if runs else "nor has any other stage"
        out.append(f": it counts {name}, which no invocation of this stage has ({elsewhere})")
    return ";".join(out)


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "one or another size"
    return " or ".join(names) if len(names) < 3 else ", ".join(names[:-1]) + f" or {names[-1]}"


def _failure(claim: Claim, plain: Reading, rescue: Sequence[str], regime: str | None) -> str:
    why = _excess(claim, plain)
    if regime is None:
        return f"{why}, and no condition that was tried saves the printed form."
    verb = "is" if len(rescue) == 1 else "are"
    against = f" ({' and '.join(rescue)} {verb} against the paper's own words)" if rescue else ""
    return f"{why}; the printed form holds under {regime}{against}."


def _excess(claim: Claim, plain: Reading) -> str:
    of = f" for the model {plain.model}" if plain.model else ""
    if claim.kind != "order":
        return f"Derived minus printed{of} is {_difference(plain)}, which is not of lower order"
    terms = unbounded_terms(plain.measured.value, plain.printed, plain.domain, plain.hypotheses)
    if not terms:
        return f"The derived cost{of} outgrows the printed argument where the latter's signed logs cancel"
    named = " and ".join(f"{expr.text(display(t))}{_source(plain, t)}" for t in terms[:2])
    return f"The derived cost{of} contains {named}, which the printed argument does not bound"


def _difference(reading: Reading) -> str:
    """derived - printed, for each member of a derived maximum."""
    gaps = [f - g for f in reading.measured.value.members for g in reading.printed.members]
    return expr.text(display(gaps[0] if len(gaps) == 1 else Max.of(*gaps)))


def _source(reading: Reading, term: Form) -> str:
    """The occurrences that contribute a monomial of the derived cost."""
    (monomial,) = term.terms
    names = [where for where, amount in reading.measured.parts if monomial in amount.terms]
    return f" (from {', '.join(names[:2])})" if names else ""


def explain_correction(claim: Claim, verdict: str, regime: str | None, implied: Sequence[str]) -> str:
    """Why an ill-formed printed form says nothing, what it must say, and whether that holds."""
    assert claim.corrected is not None
    said = f"The index {claim.corrected.index} stands outside the sum that binds it, so the printed form has no value"
    holds = {
        "CONDITIONAL": f"fails in general and holds under {regime}",
        "REFUTED": "fails",
        "UNDECIDED": "is undecided",
    }
    under = f" (given {', '.join(implied)})" if implied else ""
    return f"{said}; corrected to `{expr.text(claim.corrected)}` it {holds.get(verdict, f'is {verdict}')}{under}."
