"""Sums over an index for the SMT-LIB export: closed forms by Bernoulli numbers, and the lemma that they telescope."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from fractions import Fraction

from derive.asymptotics.smtterms import ONE, ExportError, Poly, Texts, add, is_log, mul

LARGEST_POWER = 39


@dataclass(frozen=True)
class ClosedSum:
    """``body`` added up for ``index`` from ``low`` to ``high``: F(high) - F(low - 1), F(t) - F(t - 1) the summand."""

    summand: ast.expr
    body: Poly
    index: str
    low: Poly
    high: Poly

    @staticmethod
    def of(node: ast.Call, texts: Texts) -> ClosedSum:
        match node.args:
            case [body, ast.Tuple(elts=[ast.Name(id=index), low, high])]:
                return ClosedSum(body, texts.only(body), index, texts.only(low), texts.only(high))
        raise ExportError(f"cannot read the sum {ast.unparse(node)[:60]!r}")

    @property
    def value(self) -> Poly:
        before = add((1, self.low), (-1, ONE))
        return add((1, self.up_to(self.high)), (-1, self.up_to(before)))

    @property
    def step(self) -> Poly:
        """F(t) - F(t - 1), which the lemma says is the summand."""
        t: Poly = {((self.index, 1),): Fraction(1)}
        return add((1, self.up_to(t)), (-1, self.up_to(add((1, t), (-1, ONE)))))

    def up_to(self, n: Poly) -> Poly:
        """F(n), the sum from 1 on."""
        out: Poly = {}
        for mono, c in self.body.items():
            power = dict(mono).get(self.index, 0)
            rest = tuple(x for x in mono if x[0] != self.index)
            if not 0 <= power <= LARGEST_POWER or any(is_log(gen) for gen, _ in mono):
                raise ExportError(f"a sum over {self.index} of what is no polynomial has no export")
            out = add((1, out), (1, mul({rest: c}, power_sum(power, n))))
        return out


def power_sum(k: int, n: Poly) -> Poly:
    """1**k + ... + n**k."""
    powers = [ONE]
    for _ in range(k + 1):
        powers.append(mul(powers[-1], n))
    terms = ((Fraction(math.comb(k + 1, j), k + 1) * bernoulli(j), powers[k + 1 - j]) for j in range(k + 1))
    return add(*terms)


def bernoulli(j: int) -> Fraction:
    """The j-th Bernoulli number, +1/2 for j = 1, by the triangle of Akiyama and Tanigawa."""
    row = [Fraction(1, i + 1) for i in range(j + 1)]
    for m in range(j, 0, -1):
        row = [(i + 1) * (row[i] - row[i + 1]) for i in range(m)]
    return row[0]
