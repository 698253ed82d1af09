"""The small programs behind each step of a proof: Farkas multipliers, geometric means and lower bounds.

Everything is searched in the data structures of the `checker` (so constraint names and keys agree) and written as the
JSON that the checker reads.  ``None`` means that the step was not found.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from derive.asymptotics.checker import Affine, Mono, Poly, Setting, add, combine, mono_text, split
from derive.asymptotics.simplex import Budget, Program

Products = dict[tuple[Mono, Mono], Fraction]
MAX_ABSORBED = 3  # logs of one product that powers of sizes may absorb
ONE: Affine = {"": Fraction(1)}


def texts(values: Mapping[str, Fraction]) -> dict[str, str]:
    return {name: str(v) for name, v in sorted(values.items()) if v}


def farkas(
    setting: Setting, form: Affine, uses: Sequence[Affine], budget: Budget, loose: bool = False
) -> tuple[list[Fraction], dict[str, str]] | None:
    """Multiples of ``uses`` and of constraints with ``form <= sum of uses - sum of constraints``; small ones first."""
    if all(c <= 0 for c in form.values()):
        return [Fraction(0)] * len(uses), {}
    cons = {name: con for name, (con, unknown) in setting.cons.items() if loose or not unknown}
    program = Program(budget)
    columns: dict[Any, Affine] = {("use", i): u for i, u in enumerate(uses)}
    columns |= {("con", name): {g: -c for g, c in con.items()} for name, con in cons.items()}
    for gen in sorted({g for column in columns.values() for g in column} | set(form)):
        program.add(
            {x: column[gen] for x, column in columns.items() if gen in column}, ">=", form.get(gen, Fraction(0))
        )
    found = program.solve(dict.fromkeys(columns, 1))
    if found is None:
        return None
    chosen = [found.get(("use", i), Fraction(0)) for i in range(len(uses))]
    return chosen, texts({name: found[("con", name)] for name in cons if ("con", name) in found})


def nonnegative(setting: Setting, form: Affine, budget: Budget) -> dict[str, str] | None:
    """Multipliers that show ``form >= 0``."""
    found = farkas(setting, combine((-1, form)), [], budget)
    return None if found is None else found[1]


def support(setting: Setting, atom: Affine, form: Affine, budget: Budget) -> tuple[Fraction, dict[str, str]] | None:
    """The largest k <= 1 with ``atom - k*form >= 0``, and the multipliers; None when there is no positive one."""
    if all(c >= 0 for c in atom.values()):
        ratio = min((atom.get(g, Fraction(0)) / c for g, c in form.items() if c > 0), default=Fraction(1))
        if ratio > 0:
            return min(ratio, Fraction(1)), {}
    cons = {name: con for name, (con, unknown) in setting.cons.items() if not unknown}
    program = Program(budget)
    for gen in sorted({g for con in cons.values() for g in con} | set(form) | set(atom)):
        row: dict[Any, Fraction] = {("con", name): con[gen] for name, con in cons.items() if gen in con}
        program.add({**row, "k": form.get(gen, Fraction(0))}, "<=", atom.get(gen, Fraction(0)))
    program.add({"k": 1}, "<=", 1)
    found = program.solve({"k": -1})
    if found is None or not found.get("k"):
        return None
    return found["k"], texts({name: found[("con", name)] for name in cons if ("con", name) in found})


@dataclass
class Atoms:
    """A lower bound of ``1 + g``: groups that are >= 0, products of logs, and how it was obtained."""

    groups: dict[Mono, Affine]
    products: Products
    spec: dict[str, Any]
    known: dict[tuple[Mono, tuple[tuple[str, Fraction], ...]], tuple[Fraction, dict[str, str]] | None] = field(
        default_factory=dict
    )

    def support(
        self, setting: Setting, mono: Mono, form: Affine, budget: Budget
    ) -> tuple[Fraction, dict[str, str]] | None:
        key = mono, tuple(sorted(form.items()))
        if key not in self.known:
            self.known[key] = support(setting, self.groups[mono], form, budget)
        return self.known[key]


@dataclass
class Part:
    """One candidate of a geometric mean: a size monomial, the powers of the target that it supplies, its JSON."""

    mono: Mono
    supplies: dict[str, int]
    data: dict[str, Any]


def parts(setting: Setting, atoms: Atoms, forms: Mapping[str, Affine], budget: Budget) -> list[Part]:
    """All atoms that may enter a mean, for each form that they support, and as plain monomials."""
    out = []
    for mono in sorted(atoms.groups):
        for label, form in (*forms.items(), ("", ONE)):
            found = atoms.support(setting, mono, form, budget)
            if found is None:
                continue
            data: dict[str, Any] = {"atom": mono_text(mono), "scale": str(found[0])}
            data |= {"label": label} if label else {}
            data |= {"nonneg": found[1]} if found[1] else {}
            out.append(Part(mono, {label: 1} if label else {}, data))
    for mono, gens in sorted(atoms.products):
        if all(gen in forms for gen, _ in gens):
            out.append(Part(mono, dict(gens), {"atom": mono_text(mono), "logs": mono_text(gens)}))
    return [*out, Part((), {}, {"atom": "1", "one": True})]


def mean(
    setting: Setting,
    mono: Mono,
    boost: Mapping[str, Fraction],
    target: Mapping[str, int],
    forms: Mapping[str, Affine],
    candidates: Sequence[Part],
    budget: Budget,
) -> dict[str, Any] | None:
    """A weighted mean of candidates above ``X^mono * X^boost * target``, with hypotheses and absorbed logs."""
    want: dict[str, Fraction] = {s: Fraction(p) for s, p in mono}
    for sym, power in boost.items():
        want[sym] = want.get(sym, Fraction(0)) + power
    for part in candidates:
        have = dict(part.mono)
        if part.supplies == dict(target) and all(have.get(s, 0) >= want.get(s, 0) for s in {*have, *want}):
            return {"mean": [part.data]}
    if not setting.powers and len(candidates) == 1 and candidates[0].supplies == dict(target):
        return None
    found = _mean_program(setting, want, target, {}, (), candidates, budget)
    for count in range(1, min(len(target), MAX_ABSORBED) + 1):
        for absorbed in itertools.combinations(sorted(target), count):
            if found is None:
                strict = sorted({sym for label in absorbed for sym in setting.symbols(forms[label])})
                found = _mean_program(setting, want, target, dict.fromkeys(strict, 1), absorbed, candidates, budget)
    return found


def _mean_program(
    setting: Setting,
    want: Mapping[str, Fraction],
    target: Mapping[str, int],
    strict: Mapping[str, int],
    absorbed: Sequence[str],
    candidates: Sequence[Part],
    budget: Budget,
) -> dict[str, Any] | None:
    """Labels in ``absorbed`` may be supplied in part only; the symbols in ``strict`` then need exponents to spare."""
    program = Program(budget)
    program.add(dict.fromkeys(range(len(candidates)), 1), "==", 1)
    powers = dict(want.items())
    symbols = {s for part in candidates for s, _ in part.mono} | {s for d in setting.powers.values() for s, _ in d}
    for sym in sorted(symbols | set(powers) | set(strict)):
        row: dict[Any, Any] = {i: dict(part.mono).get(sym, 0) for i, part in enumerate(candidates)}
        row |= {("power", name): dict(d).get(sym, 0) for name, d in setting.powers.items()}
        program.add({**row, "spare": -strict.get(sym, 0)}, ">=", powers.get(sym, 0))
    for label in sorted({x for part in candidates for x in part.supplies} | set(target)):
        row = {i: part.supplies.get(label, 0) for i, part in enumerate(candidates)}
        program.add(row, "<=" if label in absorbed else "==", target.get(label, 0))
    program.add({"spare": 1}, "<=", 1)
    found = program.solve({"spare": -1} if absorbed else {("power", name): 1 for name in setting.powers})
    if found is None or (absorbed and not found.get("spare")):
        return None
    chosen = [{**part.data, "weight": str(found[i])} for i, part in enumerate(candidates) if i in found]
    used = texts({name: found[("power", name)] for name in setting.powers if ("power", name) in found})
    return {"mean": chosen} | ({"powers": used} if used else {})


def lower(setting: Setting, poly: Poly, budget: Budget, exact: Iterable[str] = ()) -> Atoms | None:
    """A lower bound of the polynomial without negative groups; negative ones are absorbed by larger ones."""
    groups, products = split(poly)
    if any(c < 0 for c in products.values()):
        return None
    shown = {mono: nonnegative(setting, form, budget) for mono, form in sorted(groups.items())}
    bad = [mono for mono, found in shown.items() if found is None]
    moves: list[dict[str, Any]] = []
    if bad:
        plain = all(set(form) <= {""} for form in groups.values())
        found = _means(groups, bad, budget, set(exact)) if plain else _moves(setting, groups, bad, budget, set(exact))
        if found is None:
            return None
        moves = found
        groups = _apply(groups, moves, setting)
        shown = {mono: nonnegative(setting, form, budget) for mono, form in sorted(groups.items())}
    spec: dict[str, Any] = {"transports": moves} if moves else {}
    multipliers = {mono_text(mono): m for mono, m in shown.items() if m}
    if any(m is None for m in shown.values()):
        return None
    return Atoms(groups, products, spec | ({"nonneg": multipliers} if multipliers else {}))


def _apply(groups: Mapping[Mono, Affine], moves: Iterable[Mapping[str, Any]], setting: Setting) -> dict[Mono, Affine]:
    out = {mono: dict(form) for mono, form in groups.items()}
    for move in moves:
        form = {g: Fraction(c) for g, c in move["form"].items()}
        for text, k in [(move["to"], Fraction(1)), *((m, -Fraction(w)) for m, w in move["from"].items())]:
            mono = setting.mono(text)
            out[mono] = combine((1, out.get(mono, {})), (k, form))
    return {m: {g: c for g, c in form.items() if c} for m, form in out.items()}


def _covers(mono: Mono, target: Mono, exact: set[str]) -> bool:
    have, want = dict(mono), dict(target)
    gaps = {s: have.get(s, 0) - want.get(s, 0) for s in {*have, *want}}
    return all(gap == 0 if s in exact else gap >= 0 for s, gap in gaps.items())


def _means(
    groups: Mapping[Mono, Affine], bad: Sequence[Mono], budget: Budget, exact: set[str]
) -> list[dict[str, Any]] | None:
    """Numbers only: split each negative term among positive ones (AM-GM), leaving as many as possible positive."""
    good = [m for m in sorted(groups) if m not in bad]

    def solve(free: Mono | None) -> dict[Any, Fraction] | None:
        program = Program(budget)
        for c in bad:
            size = -groups[c][""]
            program.add({(c, b): 1 for b in good}, "==", size)
            for sym in sorted({s for m in (*good, c) for s, _ in m}):
                row = {(c, b): dict(b).get(sym, 0) for b in good}
                program.add(row, "==" if sym in exact else ">=", size * dict(c).get(sym, 0))
        for b in good:
            program.add({(c, b): 1 for c in bad}, "<=", groups[b].get("", 0))
        return program.solve({} if free is None else {(c, free): 1 for c in bad})

    solutions = []
    for b in good:
        found = solve(b)
        if found is None:
            return None
        solutions.append(found)
    if not solutions:
        return None
    mean = {
        (c, b): sum((s.get((c, b), Fraction(0)) for s in solutions), Fraction(0)) / len(solutions)
        for c in bad
        for b in good
    }
    return [
        {
            "to": mono_text(c),
            "form": {"": str(-groups[c][""])},
            "from": {mono_text(b): str(mean[c, b] / -groups[c][""]) for b in good if mean[c, b]},
        }
        for c in bad
    ]


def _moves(
    setting: Setting, groups: Mapping[Mono, Affine], bad: Sequence[Mono], budget: Budget, exact: set[str]
) -> list[dict[str, Any]] | None:
    """Affine forms: move nonnegative forms down to the negative groups, keeping a large share of the others."""
    cons = {name: con for name, (con, unknown) in setting.cons.items() if not unknown}
    gens = sorted({g for form in (*groups.values(), *cons.values()) for g in form} | {""})
    basis: dict[str, Affine] = {f"{g} >= 0": {g: Fraction(1)} for g in gens} | cons
    pairs = [(c, b) for c in bad for b in sorted(groups) if b not in bad and _covers(b, c, exact)]
    program = Program(budget)
    for mono in sorted(groups):
        for gen in gens:
            row: dict[Any, Fraction] = {}
            for c, b in pairs:
                side = 1 if c == mono else -1 if b == mono else 0
                for name, form in basis.items():
                    if side and gen in form:
                        row[c, b, name] = side * form[gen]
            row |= {(mono, name): -form[gen] for name, form in cons.items() if gen in form}
            value = groups[mono].get(gen, Fraction(0))
            share = {"share": -value} if mono not in bad else {}
            program.add({**row, **share}, ">=", -value)
    program.add({"share": 1}, "<=", 1)
    found = program.solve({"share": -1})
    if found is None:
        return None
    out = []
    for c, b in pairs:
        used = {name: found[c, b, name] for name in basis if (c, b, name) in found}
        if used:
            form = combine(*((k, basis[name]) for name, k in used.items()))
            extra = {"nonneg": texts({n: k for n, k in used.items() if n in cons})} if used.keys() & cons.keys() else {}
            out.append({"to": mono_text(c), "form": texts(form), "from": {mono_text(b): "1"}, **extra})
    return out


def with_one(poly: Poly) -> Poly:
    return add({(): Fraction(1)}, poly)
