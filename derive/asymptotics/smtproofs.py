"""The walk over one certificate's proof: every step becomes a script.

It follows the certificate, so a wrong number is written down as it stands and the script turns satisfiable; only what
cannot be written at all (a constraint that does not exist, an unknown rule) is an error.  No code is shared with the
search or the checker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from derive.asymptotics.smtfacts import UNIT, Context
from derive.asymptotics.smtscripts import Sheet, gens_of, log_of, negative, not_convex
from derive.asymptotics.smtterms import (
    ONE,
    ExportError,
    Linear,
    Mono,
    Poly,
    add,
    combine,
    mono_text,
    number,
    split,
    times,
)

Node = Mapping[str, Any]
Atoms = tuple[dict[Mono, Linear], dict[tuple[Mono, Mono], Fraction]]


def fraction(text: object) -> Fraction:
    if not isinstance(text, str) or re.fullmatch(r"-?\d+(/[1-9]\d*)?", text) is None:
        raise ExportError(f"{text!r} is not a rational number")
    return Fraction(text)


class Lemmas:
    """Walks a proof under the facts of one case and writes its lemmas to the sheet."""

    def __init__(self, context: Context, sheet: Sheet) -> None:
        self.context, self.sheet, self.texts = context, sheet, context.texts

    def form(self, data: Mapping[str, str]) -> Linear:
        return combine(*((fraction(c), self.texts.linear(self.texts.one(gen or "1"))) for gen, c in data.items()))

    def nonneg(self, says: str, form: Linear, spec: Mapping[str, str], loose: bool = False,
               also: Sequence[str] = ()) -> None:  # fmt: skip
        used = {name: (self.context.fact(name), fraction(k)) for name, k in sorted(spec.items())}
        self.sheet.farkas(says, form, used, loose, also)

    def average(self, members: Sequence[Poly], weights: Sequence[str]) -> Poly:
        values = [fraction(w) for w in weights]
        if len(values) != len(members):
            raise ExportError(f"{len(values)} weights for a maximum of {len(members)}")
        if values != [Fraction(1)]:
            self.sheet.convex("The weighted sum of the members is below their maximum.", values)
        return add(*zip(values, members, strict=True))

    def lower(self, poly: Poly, spec: Node, exact: Iterable[str] = ()) -> Atoms:
        """Moves of nonnegative forms between groups, after which every group of the polynomial is nonnegative."""
        groups, products = split(poly)
        for move in spec.get("transports", ()):
            self.transport(groups, move, exact)
        for mono, form in groups.items():
            says = f"The factor of {mono_text(mono)} in the bound is nonnegative."
            self.nonneg(says, form, spec.get("nonneg", {}).get(mono_text(mono), {}))
        if products:
            says = "Products of logs in the bound have positive factors."
            self.sheet.cover(says, {times(m, logs): c for (m, logs), c in products.items()})
        return groups, products

    def transport(self, groups: dict[Mono, Linear], move: Node, exact: Iterable[str]) -> None:
        form, target = self.form(move["form"]), self.texts.mono(move["to"])
        weights = {self.texts.mono(m): fraction(w) for m, w in move["from"].items()}
        self.nonneg("The form that is moved is nonnegative.", form, move.get("nonneg", {}))
        mean = combine(*((w, log_of(m)) for m, w in weights.items()))
        says = f"{mono_text(target)} is below the weighted geometric mean, hence the weighted sum, of the sources."
        ways = not_convex([*weights.values()])
        self.sheet.below("weighted mean", says, log_of(target), mean, ways, signed={f"log({s})" for s in exact})
        groups[target] = combine((1, groups.get(target, {})), (1, form))
        for mono, w in weights.items():
            groups[mono] = combine((1, groups.get(mono, {})), (-w, form))

    def positive(self, g: list[Poly], spec: Node) -> None:
        groups, _ = self.lower(self.average(g, spec["combine"]), spec.get("lower", {}))
        floor = spec.get("floor")
        if floor is not None:
            mono, value = self.texts.mono(floor["group"]), fraction(floor["value"])
            self.sheet.below("at least 1", f"{mono_text(mono)} is at least 1.", {}, log_of(mono))
            form = combine((1, groups.get(mono, {})), (-value, UNIT))
            says = f"The factor of {mono_text(mono)} is at least {value}, so the right side stays away from 0."
            self.nonneg(says, form, floor.get("nonneg", {}), also=[f"(<= {number(value)} 0.0)"])

    def prove(self, node: Node, f: Poly, boost: Mapping[str, Fraction], g: list[Poly]) -> None:
        rule = node["rule"]
        if rule == "bound":
            self.bound(node, f, boost, g)
        elif rule == "chain":
            left, right = self.context.hyps[int(node["hypothesis"])]
            self.prove(node["right"], right, {}, g)
            self.prove(node["rest"], f, boost, [add((1, m), (1, left)) for m in g])
        elif rule == "cases":
            cases = self.context.cases(node["on"], g, self.sheet)
            if len(cases) != len(node["branches"]):
                raise ExportError(f"{len(node['branches'])} branches for {len(cases)} cases on {node['on']}")
            for (case, members), branch in zip(cases, node["branches"], strict=True):
                Lemmas(case, self.sheet).prove(branch, f, boost, members)
        else:
            raise ExportError(f"the proof rule {rule!r} has no export")

    def bound(self, node: Node, f: Poly, boost: Mapping[str, Fraction], g: list[Poly]) -> None:
        atoms = self.lower(add((1, ONE), (1, self.average(g, node["combine"]))), node.get("lower", {}))
        groups, products = split(f)
        for mono, form in groups.items():
            self.group(mono, boost, form, node.get("groups", {}).get(mono_text(mono), {}), atoms)
        for (mono, gens), c in products.items():
            if c > 0:
                spec = node["products"][f"{mono_text(mono)} {mono_text(gens)}"]
                self.mean(mono, boost, dict(gens), {gen: {gen: Fraction(1)} for gen, _ in gens}, spec, atoms)

    def group(self, mono: Mono, boost: Mapping[str, Fraction], form: Linear, entry: Node, atoms: Atoms) -> None:
        total, counts, loose, uses = combine((-1, form)), [], False, entry.get("uses", ())
        for use in uses:
            if "hypothesis" in use:
                left, right = self.context.hyps[int(use["hypothesis"])]
                u = self.texts.linear(left)
                self.group(mono, boost, self.texts.linear(right), use["right"], atoms)
            else:
                u = self.form(use["form"])
                constant = not gens_of(u)
                loose = loose or constant
                self.mean(mono, boost, {} if constant else {"u": 1}, {"u": u}, use, atoms)
            counts.append(fraction(use["times"]))
            total = combine((1, total), (counts[-1], u))
        # A hypothesis in logs holds up to a constant, which is harmless only where X^a itself is bounded.
        missing = ["true"] if not loose and any("hypothesis" in use for use in uses) else []
        says = f"The factor of {mono_text(mono)} on the left is below the sum of the forms that the right side bounds."
        self.nonneg(says, total, entry.get("nonneg", {}), loose, [*negative(counts), *missing])

    def mean(self, mono: Mono, boost: Mapping[str, Fraction], target: Mapping[str, int], forms: Mapping[str, Linear],
             spec: Node, atoms: Atoms) -> None:  # fmt: skip
        """``X^a * forms**target`` under a weighted geometric mean of atoms: linear in the logs of sizes and forms."""
        small = combine((1, log_of(mono)), (1, log_of(boost.items())), (1, log_of_forms(target)))
        large: Linear = {}
        weights, ways, given = [], [], []
        for part in spec["mean"]:
            weight = fraction(part.get("weight", "1"))
            inside, wrong = self.part(part, forms, atoms)
            large = combine((1, large), (weight, inside))
            weights.append(weight)
            ways += [*wrong, f"(<= {number(weight)} 0.0)"]
        bounded: Linear = {}
        for name, text in sorted(spec.get("powers", {}).items()):
            k, ratio = fraction(text), log_of(self.context.power(name))
            constant = {f"log of a constant, {name}": Fraction(1)}
            given.append((ratio, constant))
            large, bounded = combine((1, large), (k, constant)), combine((1, bounded), (k, ratio))
            ways += negative([k])
        gap = combine((1, large), (1, bounded), (-1, small))
        for label, k, above in self.absorbed(forms, gap):
            constant = {f"log of a constant, {label}": Fraction(1)}
            given.append(({log_name(label): Fraction(1)}, combine((1, above), (1, constant))))
            large = combine((1, large), (k, constant))
        says = (
            f"{mono_text(mono)} with its logs is below a weighted geometric mean of terms of the right side, in logs."
        )
        self.sheet.below("weighted mean", says, small, large, [*ways, *not_convex(weights)], given,
                         {g for g in gens_of(small, large) if g.startswith("log of ")})  # fmt: skip

    def part(self, part: Node, forms: Mapping[str, Linear], atoms: Atoms) -> tuple[Linear, list[str]]:
        """One term of a mean: its log, and the ways in which it may not be what the certificate says."""
        atom, logs, label = self.texts.mono(part["atom"]), part.get("logs"), part.get("label")
        if logs is not None:
            gens = self.texts.mono(logs)
            return combine((1, log_of(atom)), (1, log_of_forms(dict(gens)))), [
                f"(<= {number(atoms[1].get((atom, gens), Fraction(0)))} 0.0)"
            ]
        if atom or label or not part.get("one"):
            value, form = fraction(part.get("scale", "1")), forms[label] if label else UNIT
            rest = combine((1, atoms[0].get(atom, {})), (-value, form))
            says = f"The factor of {mono_text(atom)} on the right is at least {value} times the form in use."
            self.nonneg(says, rest, part.get("nonneg", {}), also=[f"(<= {number(value)} 0.0)"])
        return combine((1, log_of(atom)), (1, log_of_forms({label: 1} if label else {}))), []

    def absorbed(self, forms: Mapping[str, Linear], gap: Linear) -> list[tuple[str, Fraction, Linear]]:
        """Powers of forms that the mean lacks: logs are below any positive power, so spare exponents are shared out."""
        lacking = {label: -gap[log_name(label)] for label in forms if gap.get(log_name(label), Fraction(0)) < 0}
        sizes = {label: self.sizes_above(forms[label]) for label in lacking}
        spare = min((gap.get(f"log({s})", Fraction(0)) for each in sizes.values() for s in each), default=Fraction(0))
        share = spare / sum(lacking.values()) if spare > 0 else Fraction(1)
        return [(label, k, {f"log({s})": share for s in sizes[label]}) for label, k in lacking.items()]

    def sizes_above(self, form: Linear) -> set[str]:
        """The sizes in the logs that bound a form from above."""
        args = [self.texts.logs.get(g) or {((g[4:-1], 1),): Fraction(1)} for g, c in form.items() if g and c > 0]
        return {gen for arg in args for mono in arg for gen, _ in mono}


def log_name(label: str) -> str:
    return f"log of {label}"


def log_of_forms(powers: Mapping[str, int]) -> Linear:
    return {log_name(label): Fraction(p) for label, p in powers.items()}
