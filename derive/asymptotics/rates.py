"""Many families of sizes at once: free factors that are powers of n, and what outgrows what along each.

A `Pool` decides nothing: it tells the search cheaply which proofs cannot exist, so that only promising ones are looked
for.  Along a family a term grows like ``n**k * log(n)**j``; k and j are packed into one integer, the level.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from derive.asymptotics.checker import Mono, Poly, Setting, is_log
from derive.asymptotics.problem import Bound
from derive.forms import Form

Levels = NDArray[np.int64]  # one number for each family
Some = NDArray[np.bool_]  # a set of families
MAX_FAMILIES = 600
STEP = 64  # levels between two powers of n
CONSTANT = STEP * 100_000  # the level of a constant
NONE = -1  # the level of nothing


@dataclass(frozen=True)
class Group:
    """Terms with the same sizes in front: exponents, a form affine in logs (or None), and products of logs."""

    sizes: Levels
    affine: list[tuple[int, str]]
    products: list[tuple[int, list[str]]]


class Pool:
    """Families that the domain and the hypotheses of a setting allow."""

    def __init__(self, setting: Setting, symbols: Sequence[str], most: int = 3) -> None:
        """At most so many factors grow at the same rate."""
        self.setting, self.symbols = setting, symbols
        self.at = {s: i for i, s in enumerate(symbols)}
        self.base = self.bits()
        self.known: dict[str, list[Group]] = {}
        tried = [*itertools.islice(_corners(len(symbols), most), MAX_FAMILIES)]
        self.rates: Levels = np.array(tried, dtype=np.int64).reshape(len(tried), len(symbols))
        allowed = self.every
        for left, right in setting.hyps:
            allowed &= self.most(self.groups(left)) <= self.least(self.groups(right))
        self.rates = self.rates[allowed]

    def bits(self) -> list[int]:
        """Exponents of two that meet the lower bounds."""
        out = [0] * len(self.symbols)
        for name, value in sorted(self.setting.least.items()):
            known = [self.at[s] for s, _ in self.setting.mono(name) if s in self.at]
            if known:
                out[known[-1]] = max(out[known[-1]], (value - 1).bit_length())
        return out

    @property
    def every(self) -> Some:
        return np.ones(len(self.rates), dtype=np.bool_)

    def grows(self, symbol: str) -> Some:
        return self.rates[:, self.at[symbol]] > 0

    # -- growth -------------------------------------------------------------------------------------------------------
    def vector(self, mono: Iterable[tuple[str, int]]) -> Levels:
        out = np.zeros(len(self.symbols), dtype=np.int64)
        for s, p in mono:
            if s in self.at:
                out[self.at[s]] = p
        return out

    def groups(self, poly: Poly) -> list[Group]:
        found: dict[Mono, dict[Mono, Any]] = {}
        for mono, c in poly.items():
            sizes = tuple(x for x in mono if not is_log(x[0]))
            found.setdefault(sizes, {})[tuple(x for x in mono if is_log(x[0]))] = c
        out = []
        for sizes, terms in sorted(found.items()):
            scale = math.lcm(*(c.denominator for c in terms.values()))
            group = Group(self.vector(sizes), [], [])
            for logs, c in sorted(terms.items()):
                gens = [g for g, p in logs for _ in range(p)]
                if len(gens) < 2:
                    group.affine.append((int(c * scale), gens[0] if gens else ""))
                else:
                    group.products.append((int(c * scale), gens))
            out.append(group)
        return out

    def form(self, form: Form) -> list[Group]:
        """The groups of a form, read once."""
        if form.text not in self.known:
            self.known[form.text] = self.groups(self.setting.reader.single(form.text))
        return self.known[form.text]

    def log(self, gen: str) -> tuple[Levels, int]:
        """A log along the families: multiples of log n, and the constant where there is none."""
        arg = self.setting.reader.logs.get(gen)
        if arg is None:
            i = self.at.get(gen[4:-1])
            return (self.rates[:, 0] * 0, 0) if i is None else (self.rates[:, i], self.base[i])
        monos = [self.vector(m) for m in arg]
        fixed = max(int(v @ np.array(self.base)) for v in monos)
        return np.max([self.rates @ v for v in monos], axis=0), fixed + (len(arg) > 1 or arg.keys() == {()})

    def growth(self, groups: Iterable[Group]) -> tuple[Levels, Levels]:
        """Levels of the positive terms and of the negative ones."""
        best = [np.full(len(self.rates), NONE, dtype=np.int64) for _ in range(2)]
        for group in groups:
            front = CONSTANT + STEP * (self.rates @ group.sizes)
            for negative, levels in self._logs(group, front):
                best[negative] = np.maximum(best[negative], levels)
        return best[0], best[1]

    def _logs(self, group: Group, front: Levels) -> Iterator[tuple[bool, Levels]]:
        if group.affine:
            rate, constant = np.zeros(len(front), dtype=np.int64), np.zeros(len(front), dtype=np.int64)
            for c, gen in group.affine:
                r, b = self.log(gen) if gen else (0, 1)
                rate, constant = rate + c * r, constant + c * b
            sign = np.where(rate == 0, np.sign(constant), np.sign(rate))
            levels = front + (rate != 0)
            yield False, np.where(sign > 0, levels, NONE)
            yield True, np.where(sign < 0, levels, NONE)
        for c, gens in group.products:
            found = [self.log(gen) for gen in gens]
            there = np.all([(r > 0) | (b > 0) for r, b in found], axis=0)
            yield c < 0, np.where(there, front + sum(r > 0 for r, _ in found), NONE)

    def least(self, groups: Iterable[Group]) -> Levels:
        """What a sum grows like at least; constant where negative terms lead."""
        positive, negative = self.growth(groups)
        return np.where(negative >= positive, CONSTANT, np.maximum(positive, CONSTANT))

    def most(self, groups: Iterable[Group]) -> Levels:
        return np.maximum(self.growth(groups)[0], CONSTANT)

    # -- sets of families ---------------------------------------------------------------------------------------------
    def satisfied(self, bound: Bound) -> Some:
        """Families along which the bound holds."""
        return self.most(self.form(bound.left)) <= self.least(self.form(bound.right))

    def level(self, members: Sequence[Form]) -> Levels:
        """What the largest of the members grows like at most."""
        out: Levels = np.max([self.most(self.form(x)) for x in members], axis=0)
        return out

    def outgrown(self, f: Sequence[Form], g: Sequence[Form]) -> Some:
        """Families along which the largest of f outgrows all of g."""
        return self.over([self.form(x) for x in f], [self.form(x) for x in g])

    def over(self, f: Sequence[list[Group]], g: Sequence[list[Group]]) -> Some:
        out: Some = np.max([self.least(x) for x in f], axis=0) > np.max([self.most(x) for x in g], axis=0)
        return out


def _corners(count: int, most: int) -> Iterator[list[int]]:
    """Few factors grow, the others are constant; then two at different rates."""
    for size in range(1, most + 1):
        for chosen in itertools.combinations(range(count), size):
            yield [int(i in chosen) for i in range(count)]
    for a, b in itertools.permutations(range(count), 2) if most > 1 else ():
        yield [1 if i == a else 2 if i == b else 0 for i in range(count)]
