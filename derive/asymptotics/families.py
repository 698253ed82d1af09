"""Search for families of sizes along which f outgrows g.

A family gives each free factor ``2**(c + e*n**p) * n**k``; linear programs choose k and e so that one group of f beats
every group of g, in four modes: powers of n decide (P), powers tie and log(n) decides (T), logs of sizes that occur in
logs only grow like n**p (E), and logs as variables of their own (M).  The checker decides whether a candidate counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from derive.asymptotics.checker import (
    Affine,
    Mono,
    Poly,
    Setting,
    add,
    affine,
    is_log,
    scale,
    split,
    times,
)
from derive.asymptotics.proofs import is_affine
from derive.asymptotics.simplex import Budget, Program

Row = dict[Any, Fraction]
Rows = list[tuple[Row, str, int]]
MAX_CASES = 64


@dataclass(frozen=True)
class Entry:
    """One group (or product of logs) of a side: size monomial, its affine form, its product of logs."""

    mono: Mono
    form: Affine
    logs: Mono = ()
    rivals: tuple[Mono, ...] = ()  # other groups of the same sum that may be negative


def entries(members: Iterable[Poly]) -> list[Entry]:
    out = []
    for poly in members:
        groups, products = split(poly)
        negative = {mono for mono, form in groups.items() if any(c < 0 for c in form.values())}
        for mono, form in sorted(groups.items()):
            if any(c > 0 for c in form.values()):
                out.append(Entry(mono, form, (), tuple(sorted(negative - {mono}))))
        out += [Entry(mono, {}, logs) for (mono, logs), c in sorted(products.items()) if c > 0]
    return out


def gens_of(setting: Setting, mono: Mono) -> set[str]:
    """Free factors of a monomial, inside logs too."""
    return {s for gen, _ in mono for s in setting.inside(gen)}


class Finder:
    """Candidate families for one claim; ``grow`` asks that every symbol grows (claims of leading order)."""

    def __init__(self, setting: Setting, budget: Budget, typical: Mapping[str, int], grow: bool = False) -> None:
        """``setting.f`` and ``setting.g`` may have been specialised (see `specialised`)."""
        self.setting, self.budget, self.typical, self.grow = setting, budget, typical, grow
        sides = [*setting.f, *setting.g]
        monos = [m for poly in (*sides, *(p for h in setting.hyps for p in h)) for m in poly]
        self.symbols = sorted({s for m in monos for s in gens_of(setting, m)})
        powered = {g for poly in sides for m in poly for g, _ in m if not is_log(g)}
        self.log_only = [s for s in self.symbols if s not in powered]
        self.claimed = sorted({s for poly in sides for m in poly for s in gens_of(setting, m)} - setting.bounded())
        self.heads: dict[str, Mono] = {}

    # -- linear rows ----------------------------------------------------------------------------------------------
    def rate(self, mono: Mono, kind: str, factor: Fraction | int = 1) -> Row:
        return {(kind, s): Fraction(p) * factor for s, p in mono}

    def linear(self, form: Affine, kind: str) -> Row:
        """Growth rate of an affine form in logs, given which term leads each log of a sum."""
        out: Row = {}
        for gen, c in form.items():
            if not gen:
                continue
            arg = self.setting.reader.logs.get(gen)
            if gen.startswith("ceil_log") and arg is not None:
                part = self.linear({g: c * k for g, k in affine(self.setting.reader.log(arg)).items()}, kind)
            else:
                part = self.rate(self.heads.get(gen, ((gen[4:-1], 1),)) if arg is None or len(arg) > 1 else (), kind, c)
            out = join(out, part)
        return out

    def cases(self) -> Iterator[Rows]:
        """Rows under which hypotheses hold, for each choice of the leading terms; sets ``heads`` as it goes."""
        setting = self.setting
        sums = [
            (gen, arg) for gen, arg in sorted(setting.reader.logs.items()) if gen.startswith("log(") and len(arg) > 1
        ]
        powers = [(h[0], setting.candidates(h)) for h in setting.hyps if setting.is_power(h)]
        logs = [h for h in setting.hyps if not setting.is_power(h) and _affine_hyp(h)]
        choices: list[list[Any]] = [
            *(sorted(arg) for _, arg in sums),
            *(c for _, c in powers),
            *(["left", "right", "top"] for _ in logs),
        ]
        for chosen in itertools.islice(itertools.product(*choices), MAX_CASES):
            self.budget.spend()
            rows: Rows = []
            self.heads = {gen: head for (gen, _), head in zip(sums, chosen, strict=False)}
            for (_, arg), head in zip(sums, chosen, strict=False):
                rows += self._below(arg, head)
            for (left, _), right in zip(powers, chosen[len(sums) :], strict=False):
                rows += self._below(left, right)
            for (lhs, rhs), how in zip(logs, chosen[len(sums) + len(powers) :], strict=False):
                low, high = affine(lhs), affine(rhs)
                if how == "top":
                    rows.append((self.linear(high, "e"), ">=", 1))
                    continue
                rows.append((self.linear(low, "e"), "<=", 0))
                rows.append((self.linear(low, "k"), "<=", 0) if how == "left" else (self.linear(high, "k"), ">=", 1))
            yield rows

    def _below(self, monos: Iterable[Mono], head: Mono) -> Rows:
        return [
            (self.rate(times(m, head, -1), kind), "<=", 0) for m in sorted(monos) if m != head for kind in ("k", "e")
        ]

    # -- candidates -----------------------------------------------------------------------------------------------
    def families(self) -> Iterator[dict[str, Any]]:
        """Free factors of candidate families, most telling ones first."""
        small = entries(self.setting.g)
        if self.grow:
            pairs = itertools.product(self.setting.f, self.setting.g)
            gaps = [poly for a, b in pairs for poly in (add(a, scale(b, -1)), add(b, scale(a, -1)))]
            targets = entries(gaps)
        else:
            targets = entries(self.setting.f)
        for gap in (1, 0) if self.grow else (1,):
            for rows in self.cases():
                for target in targets:
                    beats = [(join(self.rate(target.mono, "k"), self.rate(r, "k", -1)), ">=", 1) for r in target.rivals]
                    for extra in (beats, []) if beats else ([],):
                        for solution, power in self.modes(target, small, [*rows, *extra], gap):
                            yield from self.complete(solution, power, target)

    def modes(self, target: Entry, small: list[Entry], rows: Rows, gap: int) -> Iterator[tuple[Row, Fraction]]:
        if target.form:
            yield from self._powers(target, small, rows, gap)
            logged = [i for i, entry in enumerate(small) if self.linear(entry.form, "k") or entry.logs]
            subsets = [set(c) for r in range(len(logged), -1, -1) for c in itertools.combinations(logged, r)]
            for killed in subsets[:MAX_CASES]:
                yield from self._ties(target, small, killed, rows, gap)
            for killed in subsets[:MAX_CASES]:
                yield from self._exponential(target, small, killed, rows, gap)
        yield from self._monomials(target, small, rows, gap)

    def _solve(self, rows: Rows, fixed: Rows, kinds: str = "ke") -> Row | None:
        program = Program(self.budget)
        cost: dict[Any, int] = {}
        for sym in self.symbols:
            cost |= {(kind, sym): 1 for kind in kinds}
            if self.grow and sym in self.claimed:
                program.add({(kind, sym): 1 for kind in kinds}, ">=", 1)
            if sym not in self.log_only:
                program.add({("e", sym): 1}, "<=", 0)
        for row, sense, right in (*rows, *fixed):
            program.add(row, sense, right)
        return program.solve(cost)

    def _versus(self, a: Mono, b: Mono, gap: int, extra: Mapping[Any, int] | None = None) -> tuple[Row, str, int]:
        row = join(self.rate(a, "k"), self.rate(b, "k", -1))
        return join(row, {x: Fraction(c) for x, c in (extra or {}).items()}), ">=", gap

    def _powers(self, target: Entry, small: list[Entry], rows: Rows, gap: int) -> Iterator[tuple[Row, Fraction]]:
        fixed: Rows = [self._versus(target.mono, b.mono, gap) for b in small]
        fixed += [
            (self.rate(target.mono, "k"), ">=", 1),
            (self.linear(target.form, "k"), ">=", 0),
            *self._no_exponential(),
        ]
        found = self._solve(rows, fixed)
        if found is not None:
            yield found, Fraction(1)

    def balanced(self, target: Entry, rows: Rows) -> Iterator[dict[str, Any]]:
        """Families of powers of n along which no group of g outgrows the target."""
        for solution, power in self._powers(target, entries(self.setting.g), rows, 0) if target.form else ():
            yield from self.complete(solution, power, target)

    def _no_exponential(self) -> Rows:
        return [({("e", s): Fraction(1)}, "<=", 0) for s in self.log_only]

    def _ties(
        self, target: Entry, small: list[Entry], killed: set[int], rows: Rows, gap: int
    ) -> Iterator[tuple[Row, Fraction]]:
        fixed: Rows = [(self.linear(target.form, "k"), ">=", 1), *self._no_exponential()]
        for i, b in enumerate(small):
            logged = bool(self.linear(b.form, "k") or b.logs)
            fixed.append(self._versus(target.mono, b.mono, gap if logged and i not in killed else 0))
            if i in killed:
                fixed += [
                    (self.linear(b.form, "k"), "==", 0),
                    *(({("k", s): Fraction(1)}, "<=", 0) for s in _log_symbols(b)),
                ]
        fixed.append((self.rate(target.mono, "k"), ">=", 0))
        found = self._solve(rows, fixed)
        if found is not None:
            yield found, Fraction(1)

    def _exponential(
        self, target: Entry, small: list[Entry], killed: set[int], rows: Rows, gap: int
    ) -> Iterator[tuple[Row, Fraction]]:
        if not self.log_only:
            return
        fixed: Rows = [(self.linear(target.form, "e"), ">=", 1), ({"p": Fraction(1)}, ">=", 1)]
        for i, b in enumerate(small):
            logged = bool(self.linear(b.form, "e") or b.logs)
            slow = not logged or i in killed
            fixed.append(self._versus(target.mono, b.mono, gap, {"p": 1} if slow else {}))
            if i in killed:
                fixed += [
                    (self.linear(b.form, "e"), "==", 0),
                    *(({("e", s): Fraction(1)}, "<=", 0) for s in _log_symbols(b)),
                ]
        fixed.append((join(self.rate(target.mono, "k"), {"p": Fraction(1)}), ">=", 1))
        found = self._solve(rows, fixed)
        if found is not None:
            yield found, found.get("p", Fraction(1))

    def _monomials(self, target: Entry, small: list[Entry], rows: Rows, gap: int) -> Iterator[tuple[Row, Fraction]]:
        """Each log of a size that occurs in logs only as a variable n**w of its own."""

        def row(mono: Mono, logs: Mono) -> Row:
            rates = {("w", gen[4:-1]): Fraction(p) for gen, p in logs if gen[4:-1] in self.log_only}
            return join(self.rate(mono, "k"), rates)

        def terms(entry: Entry) -> list[Mono]:
            return (
                [entry.logs]
                if entry.logs
                else [((gen, 1),) if gen else () for gen, c in sorted(entry.form.items()) if c > 0]
            )

        for logs in terms(target):
            mine = row(target.mono, logs)
            fixed: Rows = [(join(mine, scale(row(b.mono, other), -1)), ">=", gap) for b in small for other in terms(b)]
            fixed += [(mine, ">=", 1), *self._no_exponential()]
            fixed += [({("k", s): Fraction(1)}, "<=", 0) for s in self.log_only]
            found = self._solve(rows, fixed, "kew")
            if found is not None and any(x[0] == "w" for x in found):
                yield found, Fraction(1)

    # -- from rates to a family -----------------------------------------------------------------------------------
    def complete(self, rates: Row, power: Fraction, target: Entry) -> Iterator[dict[str, Any]]:
        """Integral rates, constants that meet the lower bounds and keep the target positive, typical ones first."""
        scaled = [v for x, v in rates.items() if x[0] in ("k", "w")] + [power]
        common = math.lcm(*(v.denominator for v in scaled))
        tops = math.lcm(*(v.denominator for x, v in rates.items() if x[0] == "e"))
        free: dict[str, dict[str, Any]] = {sym: {"n": 0, "log": {}} for sym in self.symbols}
        for (kind, *rest), v in ((x, v) for x, v in rates.items() if x[0] in ("k", "e", "w")):
            sym = rest[0]
            if kind == "k":
                free[sym]["n"] = int(v * common)
            elif kind == "e":
                free[sym]["log"][str(int(power * common))] = int(v * tops)
            else:
                free[sym]["log"][str(int(v * common))] = 1
        constant = [s for s in self.symbols if not free[s]["n"] and not free[s]["log"]]
        for wanted in (target.form, {}):
            base = self._constants(free, constant, wanted)
            if base is None:
                continue
            for typical in (self.typical, {}) if any(s in self.typical for s in constant) else ({},):
                yield _with_constants(free, base, {s: v for s, v in typical.items() if s in constant})

    def _constants(self, free: Mapping[str, Any], constant: list[str], wanted: Affine) -> dict[str, int] | None:
        program = Program(self.budget)
        for name, value in sorted(self.setting.least.items()):
            mono = self.setting.mono(name)
            grown = sum(
                p * (free[s]["n"] + sum(e * 2 ** int(q) for q, e in free[s]["log"].items()))
                for s, p in mono
                if s in free
            )
            program.add(dict(mono), ">=", (value - 1).bit_length() - grown)
        if wanted and all(gen not in self.setting.reader.logs for gen in wanted):
            row = {gen[4:-1]: c for gen, c in wanted.items() if gen and gen[4:-1] in constant}
            program.add(row, ">=", Fraction(1) - wanted.get("", Fraction(0)))
        names = {s for name in self.setting.least for s, _ in self.setting.mono(name)} | set(constant)
        found = program.solve(dict.fromkeys(sorted(names), 1))
        if found is None:
            return None
        common = math.lcm(*(v.denominator for v in found.values()))
        return {s: int(v * common) for s, v in found.items()}


def _with_constants(free: Mapping[str, Any], base: Mapping[str, int], typical: Mapping[str, int]) -> dict[str, Any]:
    out = {}
    for sym in sorted({*free, *base}):
        data = free.get(sym, {"n": 0, "log": {}})
        c = max(base.get(sym, 0), int(typical.get(sym, 1)).bit_length() - 1)
        log = ({"0": c} if c else {}) | data["log"]
        entry = ({"n": data["n"]} if data["n"] else {}) | ({"log": log} if log else {})
        if entry:
            out[sym] = entry
    return out


def _log_symbols(entry: Entry) -> list[str]:
    return [gen[4:-1] for gen, _ in entry.logs]


def _affine_hyp(hyp: tuple[Poly, Poly]) -> bool:
    return all(is_affine(side) for side in hyp)


def join(a: Mapping[Any, Fraction], b: Mapping[Any, Fraction]) -> Row:
    out = dict(a)
    for x, c in b.items():
        out[x] = out.get(x, Fraction(0)) + c
    return out
