"""The verdict on one printed form against one derived form.

A ladder per kind of claim is tried from its strongest rung down; every rung is a question to the prover, and nothing
but a checked certificate proves or refutes.  Where the claim fails in general, regimes under which it is proven are
tried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from derive.asymptotics.problem import Answer, Bound, Domain, Proved, Refuted, Regime
from derive.asymptotics.prove import at_most, equal, leading, order
from derive.asymptotics.regimes import search
from derive.forms import Form, Max, total

VERDICTS = ("EQUAL", "LEADING", "TIGHT", "UPPER", "CONDITIONAL", "REFUTED", "NOT_PRINTED", "UNDECIDED")
#: verdicts under which a printed form stands, without further conditions
HOLDS = frozenset({"EQUAL", "LEADING", "TIGHT", "UPPER"})

#: asks the prover; ``refute`` says whether a counterexample is wanted where there is no proof
Question = Callable[..., Answer]


@dataclass(frozen=True)
class Judgement:
    """A verdict with what supports it.

    For CONDITIONAL, ``regimes`` are conditions that suffice, readable and weak ones first, and ``under`` is the verdict
    under the first of them; the weakest condition is among them, marked, where it is known.
    ``directions`` are the sizes in which a LEADING form leads: whichever of them grows, the rest fades.
    """

    verdict: str
    certificate: Mapping[str, Any] = field(default_factory=dict)
    witness: Mapping[str, Any] | None = None
    regimes: tuple[Regime, ...] = ()
    under: str | None = None
    directions: tuple[str, ...] = ()
    reason: str = ""


def _equal(f: Max, g: Max, domain: Domain, _hypotheses: Sequence[Bound], **_: object) -> Answer:
    return equal(f, g, domain)


def _at_most(f: Max, g: Max, domain: Domain, _hypotheses: Sequence[Bound], **_: object) -> Answer:
    return at_most(f, g, domain)


def _leading(f: Max, g: Max, domain: Domain, hypotheses: Sequence[Bound], *, refute: bool) -> Answer:
    return leading(f, g, domain, hypotheses, refute=refute)


def _order(f: Max, g: Max, domain: Domain, hypotheses: Sequence[Bound], *, refute: bool) -> Answer:
    return order(f, g, domain, hypotheses, refute=refute)


#: kind of claim -> (verdict, question) from the strongest; the last question is the claim itself
LADDERS: dict[str, tuple[tuple[str, Question], ...]] = {
    "equal": (("EQUAL", _equal),),
    "approx": (("EQUAL", _equal), ("LEADING", _leading)),
    "leading": (("EQUAL", _equal), ("LEADING", _leading)),
    "upper": (("EQUAL", _equal), ("UPPER", _at_most)),
    "order": (("UPPER", _order),),
}


def climb(
    derived: Max, printed: Max, kind: str, domain: Domain, hypotheses: Sequence[Bound], *, refute: bool = True
) -> Judgement:
    """The strongest rung that is proven, else REFUTED or UNDECIDED; no conditions are added."""
    answer: Answer | None = None
    for verdict, question in LADDERS[kind]:
        answer = question(derived, printed, domain, hypotheses, refute=refute)
        if isinstance(answer, Proved):
            if kind == "order":
                return _tight(derived, printed, domain, hypotheses, answer)
            directions = tuple(answer.certificate.get("directions", ()))
            return Judgement(verdict, {"kind": verdict.lower(), "proof": answer.certificate}, directions=directions)
    if isinstance(answer, Refuted):
        return Judgement("REFUTED", witness=answer.witness)
    return Judgement("UNDECIDED", reason=getattr(answer, "reason", ""))


def judge(
    derived: Max,
    printed: Max,
    kind: str,
    domain: Domain,
    hypotheses: Sequence[Bound],
    constants: Collection[str] | None = None,
    most: int = 2,
) -> Judgement:
    """The strongest proven verdict, else CONDITIONAL with the regimes (of at most so many bounds) that save it.

    Only ``constants`` may be kept below a constant by a regime; by default any size.
    """
    found = climb(derived, printed, kind, domain, hypotheses)
    if found.verdict in HOLDS or kind not in ("order", "leading"):
        return found
    saved = search(derived, printed, domain, hypotheses, kind, most, constants)
    if not saved:
        return found
    best = climb(derived, printed, kind, domain, [*hypotheses, *saved[0].bounds], refute=False)
    certificate: dict[str, Any] = {
        "kind": "conditional",
        "regimes": [{"regime": saved[0].text, "proof": best.certificate}],
    }
    certificate["regimes"] += [{"regime": r.text, "proof": r.certificate} for r in saved[1:]]
    verdict = "CONDITIONAL" if found.verdict == "REFUTED" else "UNDECIDED"
    under, directions = best.verdict, best.directions
    return replace(found, verdict=verdict, regimes=saved, under=under, directions=directions, certificate=certificate)


def _tight(f: Max, g: Max, domain: Domain, hypotheses: Sequence[Bound], upper: Proved) -> Judgement:
    """TIGHT when the printed argument is also at most a constant times the derived cost."""
    lower = order(g, f, domain, hypotheses, names=("printed", "derived"), refute=False)
    if isinstance(lower, Proved):
        return Judgement("TIGHT", {"kind": "tight", "upper": upper.certificate, "lower": lower.certificate})
    return Judgement("UPPER", {"kind": "upper", "upper": upper.certificate})


def unbounded_terms(derived: Max, printed: Max, domain: Domain, hypotheses: Sequence[Bound]) -> list[Form]:
    """Monomials of the derived cost that the printed argument does not bound."""
    terms = {m for f in derived.members for m, c in f.terms.items() if c > 0}
    single = [Form({m: 1}) for m in terms]
    return sorted(
        (t for t in single if isinstance(order(Max.of(t), printed, domain, hypotheses), Refuted)), key=lambda t: t.text
    )


def rest(derived: Max, printed: Max) -> Form | None:
    """derived - printed where both are single forms."""
    if len(derived.members) == 1 and len(printed.members) == 1:
        return total((derived.members[0], -printed.members[0]))
    return None
