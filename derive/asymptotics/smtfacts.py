"""What a proof may use: the facts of its domain and hypotheses, and the cases it may split into, with their scripts.

Names of facts are part of the certificate format.  No code is shared with the search or the checker.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from derive.asymptotics.smtscripts import Fact, Sheet, declared, gens_of, log_of, refuted
from derive.asymptotics.smtterms import (
    ExportError,
    Linear,
    Mono,
    Poly,
    Texts,
    add,
    combine,
    is_log,
    linear_term,
    mono_text,
    poly_term,
    split,
    times,
)

Node = Mapping[str, Any]
UNIT: Linear = {"": Fraction(1)}


def bounds_of_log(value: int) -> tuple[Fraction, Fraction]:
    """Sixteenths around log2 of a positive integer."""
    low = (value**16).bit_length() - 1
    return Fraction(low, 16), Fraction(low + (value & (value - 1) != 0), 16)


class Context:
    """What a proof may use: facts in logs, and products of sizes that stay below a constant."""

    def __init__(self, data: Node) -> None:
        self.texts = Texts(products_of_free_factors(data["factors"]))
        self.f, self.g = self.texts.read(data["f"]), self.texts.read(data["g"])
        self.hyps = [(self.texts.one(h["left"]), self.texts.one(h["right"])) for h in data.get("hypotheses", ())]
        self.facts: dict[str, Fact] = {}
        self.powers: dict[str, Mono] = {}
        self.least: dict[str, int] = dict(data.get("least", {}))
        for name, value in self.least.items():
            log = self.texts.linear(self.texts.log(self.texts.one(name)))
            self.facts[f"{name} >= {value}"] = Fact(combine((1, log), (-bounds_of_log(value)[0], UNIT)))
        for gen, arg in sorted(self.texts.logs.items()):
            (self.facts_of_ceiling if gen.startswith("ceil_") else self.facts_of_log)(gen, arg)
        for i, hyp in enumerate(self.hyps):
            if is_power(hyp) and len(largest_terms(hyp[1])) == 1:
                self.assume(i, largest_terms(hyp[1])[0])

    def facts_of_ceiling(self, gen: str, arg: Poly) -> None:
        log, one = self.texts.linear(self.texts.log(arg)), {gen: Fraction(1)}
        self.facts[f"{gen} from below"] = Fact(combine((1, one), (-1, log)))
        if any(c >= 1 and all(p > 0 for _, p in m) for m, c in arg.items()):
            self.facts[f"{gen} from above"] = Fact(combine((1, log), (-1, one), (1, UNIT)))

    def facts_of_log(self, gen: str, arg: Poly) -> None:
        """A sum is at least each of its terms, and between its number of terms and that many times the top product."""
        one, count = {gen: Fraction(1)}, int(sum(arg.values()))
        low, high = bounds_of_log(count)
        top: Mono = tuple(sorted((g, max(dict(m).get(g, 0) for m in arg)) for g in {g for m in arg for g, _ in m}))

        def fact(name: str, form: Linear, small: Poly, large: Poly, *ways: str) -> None:
            body = declared({g for m in arg for g, _ in m}, "1.0")
            body.append(refuted([f"(> {poly_term(small)} {poly_term(large)})", *ways]))
            self.facts[f"{gen} from {name}"] = Fact(form, why=(f"What is used of {gen}, from {name}.", tuple(body)))

        lowest, highest = (f"{Fraction(2) ** int(bound * 16)}.0" for bound in (low, high))
        total: Poly = {(): Fraction(count)}
        power = f"{count**16}.0"
        fact("below", combine((1, one), (-low, UNIT)), total, arg, f"(> {lowest} {power})")
        above = combine((1, log_of(top)), (high, UNIT), (-1, one))
        fact("above", above, arg, {top: Fraction(count)}, f"(< {highest} {power})")
        for mono in (m for m in arg if m):
            term = {mono: arg[mono]}
            fact(mono_text(mono), combine((1, one), (-1, self.texts.linear(self.texts.log(term)))), term, arg)

    def assume(self, index: int, right: Mono) -> None:
        """The right side of the hypothesis is, up to a constant, this term."""
        for mono in self.hyps[index][0]:
            ratio, name = times(mono, right, -1), f"hypothesis {index}: {mono_text(mono)}"
            self.powers[name] = ratio
            self.facts[name] = Fact(combine((-1, log_of(ratio))), unknown=True)

    def fact(self, name: str) -> Fact:
        if name not in self.facts:
            raise ExportError(f"nothing is known under the name {name!r}")
        return self.facts[name]

    def power(self, name: str) -> Mono:
        if name not in self.powers:
            raise ExportError(f"no product is bounded under the name {name!r}")
        return self.powers[name]

    def cases(self, on: str, g: list[Poly], sheet: Sheet) -> list[tuple[Context, list[Poly]]]:
        if on == "max":
            return list(self.cases_of_max(g, sheet))
        kinds = {"hypothesis": self.cases_of_hypothesis, "size": self.cases_of_size}
        return [(case, g) for case in kinds.get(on.split(maxsplit=1)[0], self.cases_of_sum)(on, sheet)]

    def cases_of_max(self, g: list[Poly], sheet: Sheet) -> Iterator[tuple[Context, list[Poly]]]:
        sheet.convex("Some member of a maximum is the largest.", [Fraction(1, len(g))] * len(g))
        for poly in g:
            case = self.copy()
            for i, other in enumerate(g):
                groups, products = split(add((1, poly), (-1, other)))
                if len(groups) == 1 and not products:
                    case.facts[f"member {i}"] = Fact(next(iter(groups.values())))
            yield case, [poly]

    def cases_of_hypothesis(self, on: str, sheet: Sheet) -> Iterator[Context]:
        index = int(on.split()[1])
        if not is_power(self.hyps[index]):
            raise ExportError(f"{on} is not about sizes")
        right = self.hyps[index][1]
        terms = {mono_text(m): right.get(m, Fraction(0)) for m in largest_terms(right)}
        sheet.largest(f"1 + the right side of {on} is below a multiple of its largest term.", terms)
        for mono in largest_terms(right):
            case = self.copy()
            case.assume(index, mono)
            yield case

    def cases_of_size(self, on: str, sheet: Sheet) -> Iterator[Context]:
        mono = self.texts.mono(on.removeprefix("size "))
        log = linear_term(log_of(mono))
        body = [*declared(gens_of(log_of(mono))), f"(assert (and (> {log} 1.0) (< {log} 1.0)))"]
        sheet.put("cases", f"{on} is at most 2 or at least 2.", "QF_LRA", body)
        for way in (-1, 1):
            case = self.copy()
            case.facts[on] = Fact(combine((way, log_of(mono)), (-way, UNIT)))
            if way < 0:
                case.powers[on] = mono
            yield case

    def cases_of_sum(self, on: str, sheet: Sheet) -> Iterator[Context]:
        if on not in self.texts.logs or not on.startswith("log("):
            raise ExportError(f"there are no cases on {on!r}")
        arg = self.texts.logs[on]
        count = int(sum(arg.values()))
        sheet.largest(f"The sum in {on} is at most {count} times its largest product.",
                      {mono_text(m): c for m, c in arg.items()})  # fmt: skip
        for mono in sorted(arg):
            case = self.copy()
            for term in arg:
                ratio = times(term, mono, -1)
                case.powers[f"{on}: {mono_text(term)}"] = ratio
                case.facts[f"{on}: {mono_text(term)}"] = Fact(combine((-1, log_of(ratio))))
            high = bounds_of_log(count)[1]
            case.facts[on] = Fact(combine((1, log_of(mono)), (high, UNIT), (-1, {on: Fraction(1)})))
            yield case

    def copy(self) -> Context:
        other = copy.copy(self)
        other.facts, other.powers = dict(self.facts), dict(self.powers)
        return other


def products_of_free_factors(factors: Mapping[str, str]) -> dict[str, Poly]:
    """Domains are not statements a script could refute, so what is not a product is an error."""
    out = {name: {Texts().mono(text): Fraction(1)} for name, text in factors.items()}
    for name, poly in out.items():
        for gen, power in next(iter(poly)):
            if power < 0 or gen in out or is_log(gen):
                raise ExportError(f"{name} = {factors[name]} is not a product of free factors")
    return out


def is_power(hyp: tuple[Poly, Poly]) -> bool:
    return not any(is_log(g) for side in hyp for m in side for g, _ in m) and all(c > 0 for c in hyp[0].values())


def largest_terms(right: Poly) -> list[Mono]:
    """Terms one of which, times a constant, is at least 1 + right."""
    out = sorted(m for m, c in right.items() if c > 0)
    return out if any(all(p > 0 for _, p in m) for m in out) else [*out, ()]
