"""The questions that can be asked: `order`, `leading`, `equal` and `at_most`.

``f`` is normally the derived expression and ``g`` the printed one (``names`` says otherwise).  Whatever is returned as
`Proved` or `Refuted` has passed the `checker`; search limits are counted in steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

from derive.asymptotics.checker import Poly, Rejected, Setting, add, check_witness, is_log, scale, shifted
from derive.asymptotics.leading import Leading
from derive.asymptotics.lemmas import lower
from derive.asymptotics.problem import Answer, Bound, Domain, Refuted, Undecided, as_max
from derive.asymptotics.proofs import Prover, Tree
from derive.asymptotics.question import Names, Question, Value
from derive.asymptotics.simplex import OutOfSteps
from derive.asymptotics.witnesses import points, simple
from derive.forms import Max

STEPS = 40_000
DERIVED: Names = ("derived", "printed")


@lru_cache(maxsize=4096)
def _answer(
    claim: str,
    f: Max,
    g: Max,
    domain: tuple[tuple[tuple[str, Any], ...], ...],
    hypotheses: tuple[Bound, ...],
    names: Names,
    refute: bool,
) -> Answer:
    """The answer to one question, remembered; limits and unsupported expressions are reasons, not failures."""
    try:
        question = Question(claim, f, g, Domain(*(dict(part) for part in domain)), hypotheses, names, STEPS, refute)
        return ASK[claim](question)
    except OutOfSteps:
        return Undecided("the step budget is used up")
    except Rejected as error:
        return Undecided(str(error))


def _ask(
    claim: str,
    f: Value,
    g: Value,
    domain: Domain,
    hypotheses: Iterable[Bound],
    names: Names,
    refute: bool = True,
) -> Answer:
    parts = tuple(tuple(sorted(part.items())) for part in (domain.factors, domain.least, domain.typical))
    return _answer(claim, as_max(f), as_max(g), parts, tuple(hypotheses), names, refute)


def order(
    f: Value,
    g: Value,
    domain: Domain,
    hypotheses: Iterable[Bound] = (),
    names: Names = DERIVED,
    *,
    refute: bool = True,
) -> Answer:
    """Is ``f = O(g)`` on the domain under the hypotheses?  Without ``refute`` only a proof is searched for."""
    return _ask("order", f, g, domain, hypotheses, names, refute)


def _order(question: Question) -> Answer:
    setting = question.setting
    if not question.refute and simple(question.against):
        return Undecided("it fails as a single factor grows")
    positive = question.prover.positive(setting.g)
    closer = Prover(setting, question.budget, sizes=True)
    for prover in (question.prover, closer):
        if prover is closer and closer.splits(setting.g) == question.prover.splits(setting.g):
            continue
        proofs = _trees(prover, setting) if positive is not None else None
        if proofs is not None:
            return question.proved({"positive": positive, "proofs": proofs})
        if prover is question.prover and (refuted := question.witness()) is not None:
            return refuted
    return Undecided("the right side may be negative" if positive is None else "neither a proof nor a family was found")


def _trees(prover: Prover, setting: Setting) -> list[Tree] | None:
    """One proof tree per member of f."""
    out = []
    for poly in setting.f:
        tree = prover.prove(poly, {}, setting.g)
        if tree is None:
            return None
        out.append(tree)
    return out


def leading(
    f: Value,
    g: Value,
    domain: Domain,
    hypotheses: Iterable[Bound] = (),
    names: Names = DERIVED,
    *,
    refute: bool = True,
) -> Answer:
    """Do f and g have the same leading order: does every term of their difference fade against g in some direction?

    The certificate lists ``rest`` (term and directions) and ``directions`` (those common to all terms).
    """
    return _ask("leading", f, g, domain, hypotheses, names, refute)


def equal(f: Value, g: Value, domain: Domain, names: Names = DERIVED) -> Answer:
    """Are f and g the same function on the domain (by normal form in free factors)?"""
    return _ask("equal", f, g, domain, (), names)


def _equal(question: Question) -> Answer:
    try:
        return question.proved({})
    except Rejected:
        return _point(question) or Undecided("the normal forms differ, yet no point tells them apart")


def _point(question: Question) -> Refuted | None:
    for witness in points(question.against, question.header, question.names):
        check_witness(witness)
        return Refuted(witness)
    return None


def at_most(f: Value, g: Value, domain: Domain, names: Names = DERIVED) -> Answer:
    """Is ``f <= g`` everywhere on the domain?  The certificate's ``slack`` is g - f when both are single forms."""
    return _ask("at_most", f, g, domain, (), names)


def _at_most(question: Question) -> Answer:
    setting = question.setting
    proofs = []
    for poly in setting.f:
        found = next(iter(_differences(question, poly)), None)
        if found is None:
            break
        proofs.append(found)
    if len(proofs) == len(setting.f):
        single = len(question.f.members) == len(question.g.members) == 1
        slack = {"slack": (question.g.members[0] - question.f.members[0]).text} if single else {}
        return question.proved({"proofs": proofs, **slack})
    return _point(question) or Undecided("no proof by signs, shifts or means, and no point where it fails")


def _differences(question: Question, poly: Poly) -> Iterator[dict[str, Any]]:
    """Proofs of ``poly <= g``: unshifted first, then with each size written as its lower bound plus a remainder."""
    setting = question.setting
    count = len(setting.g)
    choices = [[i] for i in range(count)] + [
        list(c) for r in range(2, count + 1) for c in itertools.combinations(range(count), r)
    ]
    for chosen in choices[:32]:
        weights = [Fraction(int(i in chosen), len(chosen)) for i in range(count)]
        gap = add(*(scale(m, w) for m, w in zip(setting.g, weights, strict=True) if w), scale(poly, -1))
        sizes = sorted({g for m in gap for g, _ in m if not is_log(g)})
        for shift in ({}, {s: setting.least.get(s, 1) for s in sizes}):
            atoms = lower(setting, shifted(gap, shift), question.budget, exact=shift)
            if atoms is not None:
                yield {"combine": [str(w) for w in weights], "shift": shift, "lower": atoms.spec}


ASK: dict[str, Callable[[Question], Answer]] = {
    "order": _order,
    "leading": lambda question: Leading(question).ask(),
    "equal": _equal,
    "at_most": _at_most,
}

__all__ = ["at_most", "equal", "leading", "order"]
