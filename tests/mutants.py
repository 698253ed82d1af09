"""Perturbations of printed formulas, and an independent judge of whether one changes the truth.

The judge knows nothing of proofs: it follows the perturbed and the printed formula along families of sizes that grow at
random rates, and looks whether their ratio settles where it has to.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from derive import expr as ex
from derive.asymptotics.problem import Bound
from derive.expr import Expr
from derive.forms import Form, Max

FAMILIES = 400


@dataclass(frozen=True)
class Mutant:
    """One perturbation: what was done, and the result."""

    what: str
    expr: Expr


def mutants(e: Expr) -> Iterator[Mutant]:
    """Every single-place perturbation: a coefficient, an exponent, a symbol, a dropped term, a degree that goes."""
    for what, child in _here(e):
        yield Mutant(what, child)
    for i, child in enumerate(ex.children(e)):
        for inner in mutants(child):
            yield Mutant(inner.what, _with_child(e, i, inner.expr))


def _with_child(e: Expr, index: int, new: Expr) -> Expr:
    seen = iter(range(len(ex.children(e))))
    return ex.rebuild(e, lambda child: new if next(seen) == index else child)


def _here(e: Expr) -> Iterator[tuple[str, Expr]]:
    if isinstance(e, ex.Num) and e.value > 0:
        yield f"coefficient {e.value} + 1", ex.num(e.value + 1)
    if isinstance(e, ex.Pow):
        yield f"exponent {e.exponent} + 1", ex.Pow(e.base, e.exponent + 1)
    if isinstance(e, ex.Sym):
        yield f"{e.name} squared", ex.Pow(e, 2)
        yield f"{e.name} becomes {'m' if e.name != 'm' else 'd'}", ex.Sym("m" if e.name != "m" else "d")
    if isinstance(e, ex.Add):
        for i, term in enumerate(e.terms):
            yield f"without {ex.text(term)}", ex.add(*e.terms[:i], *e.terms[i + 1 :])
    if isinstance(e, ex.Div):
        yield f"without the divisor {ex.text(e.bottom)}", e.top


# -- the independent judge --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Families:
    """Sizes that grow as 2**(rate n): products of free factors, restricted to where all ``bounds`` hold."""

    factors: Mapping[str, Form]
    bounds: tuple[Bound, ...]

    def sizes(self, rates: Mapping[str, int], n: int) -> dict[str, Fraction]:
        free = {name: Fraction(2) ** (rate * n) for name, rate in rates.items()}
        spanned = {name: form for name, form in self.factors.items() if form.symbols <= free.keys()}
        sizes = {name: form.evaluate(free) for name, form in spanned.items()} | free
        return sizes | ({"m": max(sizes["m"], Fraction(2))} if "m" in sizes else {})

    def allowed(self, rates: Mapping[str, int]) -> bool:
        near, far = self.sizes(rates, NEAR), self.sizes(rates, FAR)
        return all(_quotient(b.left, b.right, far) <= 2 * _quotient(b.left, b.right, near) for b in self.bounds)

    def free(self, names: frozenset[str]) -> list[str]:
        names |= {n for b in self.bounds for n in b.left.symbols | b.right.symbols}
        return sorted({s for n in names for s in (self.factors[n].symbols if n in self.factors else {n})})


NEAR, FAR = 20, 1000


def _quotient(one: Form | Max, other: Form | Max, sizes: Mapping[str, Fraction]) -> Fraction:
    below = other.evaluate(sizes)
    return one.evaluate(sizes) / below if below > 0 else Fraction(1)


def same_order(one: Max, other: Max, families: Families, seed: int) -> bool:
    """Does the ratio of the two stay between constants along all of many random families?"""
    rng = random.Random(seed)
    free = families.free(one.symbols | other.symbols)
    for _ in range(FAMILIES):
        rates = {name: rng.choice((0, 0, 0, 1, 2, 5)) for name in free}
        if not families.allowed(rates):
            continue
        near, far = (_quotient(one, other, families.sizes(rates, n)) for n in (NEAR, FAR))
        if far > 3 * near or near > 3 * far:
            return False
    return True


def same_value(one: Max, other: Max, families: Families, seed: int) -> bool:
    """Are the two equal at some random sizes?"""
    rng = random.Random(seed)
    free = families.free(one.symbols | other.symbols)
    points = [families.sizes({name: rng.randint(1, 4) for name in free}, 1) for _ in range(5)]
    return all(one.evaluate(sizes) == other.evaluate(sizes) for sizes in points)
