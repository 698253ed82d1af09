"""Search for proof trees of ``f = O(g)``: a direct bound, chains through hypotheses, then case splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    mono_text,
    scale,
    split,
)
from derive.asymptotics.lemmas import ONE, Atoms, Part, farkas, lower, mean, parts, support, with_one
from derive.asymptotics.simplex import Budget

Tree = dict[str, Any]
Boost = Mapping[str, Fraction]
Use = tuple[Affine, dict[str, Any]]  # a form that may be used at a monomial, and why
MAX_SPLITS = 6


class Prover:
    """Searches within one setting (a domain, hypotheses, and the cases taken so far)."""

    def __init__(
        self,
        setting: Setting,
        budget: Budget,
        split_on: frozenset[str] = frozenset(),
        sizes: bool = False,
        suspects: list[Mono] | None = None,
    ) -> None:
        self.setting, self.budget, self.split_on, self.sizes = setting, budget, split_on, sizes
        self.suspects: list[Mono] = [] if suspects is None else suspects  # groups that failed before are tried first
        self.bounds: dict[tuple[str, ...], list[tuple[list[str], Atoms]]] = {}

    # -- one bound ------------------------------------------------------------------------------------------------
    def lower_bounds(self, g: Sequence[Poly]) -> list[tuple[list[str], Atoms]]:
        """Convex combinations of the members, each with a lower bound of 1 + it."""
        key = tuple(str(sorted(m.items())) for m in g)
        if key not in self.bounds:
            self.bounds[key] = list(self._lower_bounds(g))
        return self.bounds[key]

    def _lower_bounds(self, g: Sequence[Poly]) -> list[tuple[list[str], Atoms]]:
        single = [lower(self.setting, with_one(m), self.budget) for m in g]
        good = [i for i, atoms in enumerate(single) if atoms is not None]
        choices = [good] if len(good) > 1 else [[i] for i in good]
        if len(good) < len(g) and len(g) > 1:
            choices.append(list(range(len(g))))
        out = []
        for chosen in choices:
            weights = [Fraction(int(i in chosen), len(chosen)) for i in range(len(g))]
            mean_poly = add(*(scale(m, w) for m, w in zip(g, weights, strict=True) if w))
            atoms = lower(self.setting, with_one(mean_poly), self.budget)
            if atoms is not None:
                out.append(([str(w) for w in weights], atoms))
        return out

    def bound(self, f: Poly, boost: Boost, g: Sequence[Poly]) -> Tree | None:
        """The rule ``bound`` for f, or None."""
        for weights, atoms in self.lower_bounds(g):
            found = _Bound(self, atoms, boost).prove(f)
            if found is not None:
                lowered = {"lower": atoms.spec} if atoms.spec else {}
                return {"rule": "bound", "combine": weights, **lowered, **found}
        return None

    # -- trees ----------------------------------------------------------------------------------------------------
    def prove(self, f: Poly, boost: Boost, g: Sequence[Poly]) -> Tree | None:
        """A proof tree of ``f * boost = O(g)``, or None."""
        return self.bound(f, boost, g) or self.chain(f, boost, g) or self.split(f, boost, g)

    def chain(self, f: Poly, boost: Boost, g: Sequence[Poly]) -> Tree | None:
        """Use hypotheses whose right side is O(g): their left sides may be added to g."""
        links: list[tuple[int, Tree]] = []
        taken = list(g)
        for _ in self.setting.hyps:
            for i, (left, right) in enumerate(self.setting.hyps):
                if any(i == j for j, _ in links) or (proof := self.bound(right, {}, taken)) is None:
                    continue
                one = [add(m, left) for m in taken]
                rest = self.bound(f, boost, one)
                if rest is None:
                    links, taken = [*links, (i, proof)], one
                    continue
                for j, earlier in ((i, proof), *reversed(links)):
                    rest = {"rule": "chain", "hypothesis": j, "right": earlier, "rest": rest}
                return rest
        return None

    def splits(self, g: Sequence[Poly]) -> list[str]:
        """What can still be split into cases: hypotheses with sums, logs of sums, the maximum on the right."""
        setting = self.setting
        out = [
            f"hypothesis {i}"
            for i, h in enumerate(setting.hyps)
            if setting.is_power(h) and len(setting.candidates(h)) > 1
        ]
        out += [gen for gen, arg in sorted(setting.reader.logs.items()) if gen.startswith("log(") and len(arg) > 1]
        if self.sizes:  # x <= 2 or x >= 2, for factors in logs on the right: their log is then at least 1
            out += [f"size {s}" for s in sorted({s for m in g for mono in m for s in _in_logs(setting, mono)})]
        out += ["max"] if len(g) > 1 else []  # last: the case forgets the other members
        return [name for name in out if name not in self.split_on]

    def split(self, f: Poly, boost: Boost, g: Sequence[Poly]) -> Tree | None:
        remaining = self.splits(g)
        if not remaining or len(self.split_on) >= MAX_SPLITS:
            return None
        branches = []
        for case, members in self.setting.cases(remaining[0], list(g)):
            prover = Prover(case, self.budget, self.split_on | {remaining[0]}, self.sizes, self.suspects)
            branch = prover.prove(f, boost, members)
            if branch is None:
                return None
            branches.append(branch)
        return {"rule": "cases", "on": remaining[0], "branches": branches}

    # -- the right side -------------------------------------------------------------------------------------------
    def positive(self, g: Sequence[Poly]) -> dict[str, Any] | None:
        """That g >= 0, with a floor when one is found."""
        best: dict[str, Any] | None = None
        count = len(g)
        choices = [[i] for i in range(count)] + ([list(range(count))] if count > 1 else [])
        for chosen in choices:
            weights = [Fraction(int(i in chosen), len(chosen)) for i in range(count)]
            atoms = lower(self.setting, add(*(scale(m, w) for m, w in zip(g, weights, strict=True) if w)), self.budget)
            if atoms is None:
                continue
            spec: dict[str, Any] = {"combine": [str(w) for w in weights]} | (
                {"lower": atoms.spec} if atoms.spec else {}
            )
            best = best or spec
            for mono in sorted(m for m in atoms.groups if all(p > 0 for _, p in m)):
                found = support(self.setting, atoms.groups[mono], ONE, self.budget)
                if found is not None:
                    floor = {"group": mono_text(mono), "value": str(found[0])} | (
                        {"nonneg": found[1]} if found[1] else {}
                    )
                    return {**spec, "floor": floor}
        return best


class _Bound:
    """One right side, one boost: a bound for each group of f."""

    def __init__(self, prover: Prover, atoms: Atoms, boost: Boost) -> None:
        self.prover, self.atoms, self.boost = prover, atoms, boost
        self.setting, self.budget = prover.setting, prover.budget

    def prove(self, f: Poly) -> dict[str, Any] | None:
        groups, products = split(f)
        out: dict[str, Any] = {}
        suspects = self.prover.suspects
        for mono in [*(m for m in suspects if m in groups), *sorted(groups.keys() - set(suspects))]:
            entry = self.group(mono, groups[mono])
            if entry is None:
                suspects[:] = [mono, *(m for m in suspects if m != mono)]
                return None
            if entry:
                out[mono_text(mono)] = entry
        logs: dict[str, Any] = {}
        for (mono, gens), c in sorted(products.items()):
            if c > 0:
                forms = {gen: {gen: Fraction(1)} for gen, _ in gens}
                spec = self.mean(mono, dict(gens), forms)
                if spec is None:
                    return None
                logs[f"{mono_text(mono)} {mono_text(gens)}"] = spec
        return {"groups": dict(sorted(out.items()))} | ({"products": logs} if logs else {})

    def mean(
        self, mono: Mono, target: Mapping[str, int], forms: Mapping[str, Affine], only: Mono | None = None
    ) -> dict[str, Any] | None:
        if only is None:
            candidates = parts(self.setting, self.atoms, forms, self.budget)
        else:
            candidates = [Part(only, {"u": 1}, {"atom": mono_text(only), "label": "u"})]
        return mean(self.setting, mono, self.boost, target, forms, candidates, self.budget)

    def group(self, mono: Mono, form: Affine, used: frozenset[int] = frozenset()) -> dict[str, Any] | None:
        """Uses and multipliers for ``X^mono*form``: atoms that dominate it first, then single logs by means."""
        if all(c <= 0 for c in form.values()):
            return {}
        uses: list[Use] = []
        one = self.mean(mono, {}, {})
        if one is not None:
            uses.append((ONE, one))
        if one is not None and not any(c > 0 for gen, c in form.items() if gen):
            return {"uses": [{"form": {"": "1"}, "times": str(form[""]), **one}]}
        for atom, value in sorted(self.atoms.groups.items()):
            if any(c > 0 for gen, c in value.items() if gen):
                spec = self.mean(mono, {"u": 1}, {"u": value}, only=atom)
                if spec is not None:
                    uses.append((value, spec))
        loose = one is not None
        found = self.solve(form, uses, loose)
        if found is None:
            uses += self.more(mono, form, uses)
            found = self.solve(form, uses, loose)
        if found is None and loose:
            found = self.solve(form, [*uses, *self.lefts(mono, used)], loose)
        return found

    def lefts(self, mono: Mono, used: frozenset[int]) -> list[Use]:
        """Left sides of hypotheses in logs whose right side, times X^mono, is O(g)."""
        out: list[Use] = []
        for i, (left, right) in enumerate(self.setting.hyps):
            if i not in used and is_affine(left) and is_affine(right):
                entry = self.group(mono, affine(right), used | {i})
                if entry is not None:
                    out.append((affine(left), {"hypothesis": i, "right": entry}))
        return out

    def more(self, mono: Mono, form: Affine, uses: Sequence[Use]) -> list[Use]:
        """Further usable forms: whole groups and single logs that lie under a mean of several atoms."""
        known = [u for u, _ in uses]
        logs = {gen for value in (form, *(c for c, _ in self.setting.cons.values())) for gen in value if gen}
        values = [v for v in self.atoms.groups.values() if any(gen for gen in v)] + [
            {gen: Fraction(1)} for gen in sorted(logs)
        ]
        out: list[Use] = []
        for value in values:
            if value in known:
                continue
            spec = self.mean(mono, {"u": 1}, {"u": value})
            if spec is not None:
                known.append(value)
                out.append((value, spec))
        return out

    def solve(self, form: Affine, uses: Sequence[Use], loose: bool) -> dict[str, Any] | None:
        found = farkas(self.setting, form, [u for u, _ in uses], self.budget, loose)
        if found is None:
            return None
        chosen, multipliers = found
        unknown = any(self.setting.cons[name][1] for name in multipliers)
        unknown |= any("hypothesis" in spec for (_, spec), k in zip(uses, chosen, strict=True) if k)
        data = [
            {"times": str(k), **spec}
            | ({} if "hypothesis" in spec else {"form": {g: str(c) for g, c in sorted(u.items()) if c}})
            for (u, spec), k in zip(uses, chosen, strict=True)
            if k or (unknown and u is ONE)
        ]
        return {"uses": data} | ({"nonneg": multipliers} if multipliers else {})


def is_affine(poly: Poly) -> bool:
    """Affine in logs, without sizes outside them."""
    return all(all(is_log(g) for g, _ in m) and sum(p for _, p in m) <= 1 for m in poly)


def _in_logs(setting: Setting, mono: Mono) -> set[str]:
    return {s for g, _ in mono if is_log(g) for s in setting.inside(g)}
