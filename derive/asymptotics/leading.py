"""Proofs of leading order: every term of the difference fades against g as some size grows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from derive.asymptotics import checker
from derive.asymptotics.checker import Mono, Poly, is_log, poly_text, split
from derive.asymptotics.problem import Answer, Undecided
from derive.asymptotics.question import Question
from derive.asymptotics.witnesses import keeps_up, simple
from derive.forms import Form

SMALL_POWER = Fraction(1, 64)


class Leading:
    """The search for one claim of leading order."""

    def __init__(self, question: Question) -> None:
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
