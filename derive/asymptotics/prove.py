"""The questions that can be asked: `order`, `leading`, `equal`, `at_most`, and `regimes`.

``f`` is normally the derived expression and ``g`` the printed one (``names`` says otherwise).  Whatever is returned as
`Proved` or `Refuted` has passed the `checker`; search limits are counted in steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from derive.asymptotics import checker
from derive.asymptotics.checker import (
    Mono,
    Poly,
    Rejected,
    Setting,
    add,
    is_log,
    mono_text,
    poly_text,
    scale,
    shifted,
    split,
)
from derive.asymptotics.families import Finder, accepted, illustrate, keeps_up, points, simple, specialised
from derive.asymptotics.lemmas import lower
from derive.asymptotics.problem import Answer, Bound, Domain, Proved, Refuted, Regime, Undecided, as_max
from derive.asymptotics.proofs import Prover, Tree
from derive.asymptotics.simplex import Budget, OutOfSteps
from derive.forms import Form, Max

STEPS = 40_000
Names = tuple[str, str]
DERIVED: Names = ("derived", "printed")
SMALL_POWER = Fraction(1, 64)
Value = Form | Max


class _Question:
    """One claim about two expressions: the certificate's header, its setting, a budget."""

    def __init__(
        self,
        claim: str,
        f: Value,
        g: Value,
        domain: Domain,
        hypotheses: Iterable[Bound],
        names: Names,
        refute: bool = True,
    ) -> None:
        self.refute = refute
        self.f, self.g = as_max(f), as_max(g)
        self.domain = domain
        self.header: dict[str, Any] = {
            "claim": claim,
            "f": self.f.text,
            "g": self.g.text,
            "f_is": names[0],
            "g_is": names[1],
            "factors": {name: form.text for name, form in sorted(domain.factors.items())},
            "least": dict(sorted(domain.least.items())),
            "hypotheses": [{"left": b.left.text, "right": b.right.text} for b in hypotheses],
        }
        self.setting = Setting(self.header)
        self.budget = Budget(STEPS)
        self.prover = Prover(self.setting, self.budget)

    @property
    def names(self) -> list[str]:
        """Sizes of the claim, its hypotheses and the bounds of its domain, to be shown by a witness."""
        texts = self.f.symbols | self.g.symbols | set(self.domain.least)
        for left, right in ((h["left"], h["right"]) for h in self.header["hypotheses"]):
            texts |= {
                g
                for p in checker.Reader({}).read(left) + checker.Reader({}).read(right)
                for m in p
                for g, _ in m
                if not is_log(g)
            }
        return sorted(texts)

    def proved(self, body: Mapping[str, Any]) -> Proved:
        certificate = {**self.header, **body}
        checker.check_certificate(certificate)
        return Proved(certificate)

    def witness(self, grow: bool = False) -> Refuted | None:
        """A family that refutes the claim, checked; none is looked for where only a proof is asked for."""
        if not self.refute:
            return None
        settings = [self.setting] if grow else specialised(self.setting)
        for free in (f for s in settings for f in Finder(s, self.budget, self.domain.typical, grow).families()):
            self.budget.spend()
            if not accepted(self.setting, free, self.header["claim"]):
                continue
            witness = illustrate(self.setting, self.header, free, self.names)
            if witness is not None:
                try:
                    checker.check_witness(witness)
                except Rejected:
                    continue
                return Refuted(witness)
        return None


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
        question = _Question(claim, f, g, Domain(*(dict(part) for part in domain)), hypotheses, names, refute)
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


def _order(question: _Question) -> Answer:
    setting = question.setting
    if not question.refute and simple(setting):
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


class _Leading:
    def __init__(self, question: _Question) -> None:
        self.question, self.setting, self.prover = question, question.setting, question.prover
        still = self.setting.bounded()
        names = sorted(question.f.symbols | question.g.symbols)
        self.symbols = [s for s in names if not still.issuperset(x for x, _ in self.setting.mono(s))]
        self.rest: dict[str, list[str]] = {}
        self.logs = any(is_log(g) for poly in self.setting.g for m in poly for g, _ in m)

    def ask(self) -> Answer:
        if not self.question.refute and not self.logs and simple(self.setting):
            return Undecided("it fails as a single factor grows")
        positive = self.prover.positive(self.setting.g)
        if positive is None or "floor" not in positive:
            return self.question.witness(grow=True) or Undecided("the printed form is not bounded below")
        members = list(self.question.f.members), list(self.question.g.members)
        upper = self.side(members[0], members[1])
        low = self.side(members[1], members[0]) if upper is not None else None
        if upper is None or low is None:
            return self.question.witness(grow=True) or Undecided("a term fades in no direction, yet no family shows it")
        common = [s for s in self.ways() if all(s in ways for ways in self.rest.values())]
        body = {"positive": positive, "upper": upper, "lower": low}
        return self.question.proved({**body, "directions": common, "rest": self.rest})

    def ways(self) -> list[str]:
        return [*self.symbols, *(f"log({s})" for s in self.symbols)]

    def side(self, mine: Sequence[Form], others: Sequence[Form]) -> list[dict[str, Any]] | None:
        """For each member an opposite one such that all pieces of the difference fade."""
        out = []
        for form in mine:
            for j in sorted(range(len(others)), key=lambda j: len((form - others[j]).terms)):
                pieces = self.pieces(form - others[j])
                if pieces is not None:
                    out.append({"against": j, "pieces": pieces})
                    break
            else:
                return None
        return out

    def pieces(self, gap: Form) -> list[dict[str, Any]] | None:
        """The positive terms of the difference one by one, or else its groups in free factors as wholes."""
        terms = [Form({m: c}).text for m, c in gap.ordered if c > 0]
        return self.fading(terms) or (self.fading(self.groups(gap)) if terms else []) if terms else []

    def groups(self, gap: Form) -> list[str]:
        groups, products = split(self.setting.reader.single(gap.text))
        out = [
            poly_text(_group_poly(mono, form))
            for mono, form in sorted(groups.items())
            if any(c > 0 for c in form.values())
        ]
        return out + [
            poly_text({checker.times(mono, logs): c}) for (mono, logs), c in sorted(products.items()) if c > 0
        ]

    def fading(self, terms: Iterable[str]) -> list[dict[str, Any]] | None:
        out, rest = [], {}
        for text in terms:
            if keeps_up(self.setting, self.setting.reader.single(text), self.question.budget):
                return None
            whole = self.prover.prove(self.setting.reader.single(text), {}, self.setting.g) is not None
            ways = [way for symbol in self.symbols if (way := self.direction(text, symbol, whole)) is not None]
            if not ways:
                return None
            rest[text] = [f"log({w['symbol']})" if w.get("log") else w["symbol"] for w in ways]
            out.append({"text": text, "directions": ways})
        self.rest |= rest
        return out

    def direction(self, text: str, symbol: str, bounded: bool) -> dict[str, Any] | None:
        """``text * symbol**power = O(g)`` (only where g bounds the text itself), or ``text * log(symbol) = O(g)``."""
        piece = self.setting.reader.single(text)
        mono = self.setting.mono(symbol)
        best = None
        for power in (
            (SMALL_POWER, Fraction(1)) if bounded else ()
        ):  # the larger power follows only where the smaller one holds
            tree = self.prover.prove(piece, {s: p * power for s, p in mono}, self.setting.g)
            if tree is None:
                break
            best = {"symbol": symbol, "power": str(power), "proof": tree}
        if best is not None or not (bounded or self.logs):
            return best
        tree = self.prover.prove(checker.mul(piece, self.setting.reader.log({mono: Fraction(1)})), {}, self.setting.g)
        return None if tree is None else {"symbol": symbol, "log": True, "proof": tree}


def _group_poly(mono: Mono, form: checker.Affine) -> Poly:
    return {checker.times(mono, ((gen, 1),) if gen else ()): c for gen, c in form.items() if c}


def equal(f: Value, g: Value, domain: Domain, names: Names = DERIVED) -> Answer:
    """Are f and g the same function on the domain (by normal form in free factors)?"""
    return _ask("equal", f, g, domain, (), names)


def _equal(question: _Question) -> Answer:
    try:
        return question.proved({})
    except Rejected:
        return _point(question) or Undecided("the normal forms differ, yet no point tells them apart")


def _point(question: _Question) -> Refuted | None:
    for witness in points(question.setting, question.header, question.names):
        checker.check_witness(witness)
        return Refuted(witness)
    return None


def at_most(f: Value, g: Value, domain: Domain, names: Names = DERIVED) -> Answer:
    """Is ``f <= g`` everywhere on the domain?  The certificate's ``slack`` is g - f when both are single forms."""
    return _ask("at_most", f, g, domain, (), names)


def _at_most(question: _Question) -> Answer:
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


def _differences(question: _Question, poly: Poly) -> Iterator[dict[str, Any]]:
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


def regimes(f: Value, g: Value, domain: Domain, candidates: Sequence[Bound], hypotheses: Sequence[Bound] = (),
            ask: Callable[..., Answer] = order) -> list[Regime]:  # fmt: skip
    """The smallest sets (one or two) of candidate hypotheses under which the claim is proved, in the order given."""
    out = []
    alone: set[int] = set()
    for i, bound in enumerate(candidates):
        answer = ask(f, g, domain, [*hypotheses, bound])
        if isinstance(answer, Proved):
            alone.add(i)
            out.append(Regime((bound,), answer.certificate))
    rest = [b for i, b in enumerate(candidates) if i not in alone]
    for a, b in itertools.combinations(rest, 2):
        answer = ask(f, g, domain, [*hypotheses, a, b])
        if isinstance(answer, Proved):
            out.append(Regime((a, b), answer.certificate))
    return out


ASK: dict[str, Callable[[_Question], Answer]] = {
    "order": _order,
    "leading": lambda question: _Leading(question).ask(),
    "equal": _equal,
    "at_most": _at_most,
}

__all__ = ["at_most", "equal", "leading", "mono_text", "order", "regimes"]
