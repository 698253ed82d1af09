"""Monomials and the order in which the paper writes sizes: degrees, tokens, layers, vocabulary, heads, widths."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from derive import expr as ex
from derive.expr import WITHOUT_MODEL, Div, Expr, Sym
from derive.forms import is_sum
from derive.textform import parse_text

BATCH = ("B", "B_pairs", "K")
TOKENS = ("B", "B_pairs", "K", "S", "T", "m", "t")
DEGREES = ("N", "P_d", "P_p", "P_t", "P_c", "P_e")
WIDTHS = ("d", "d_h", "d_ff", "d_e")
OUTER = (*TOKENS, "n_mb", "n_vs", "L")
MODELS = ("pi", "SH", "ref", "R", "V", "M")
ORDER = (*DEGREES, *OUTER, "V", "E", "E_a", "h", "h_kv", *WIDTHS)


@dataclass(frozen=True)
class Term:
    """One monomial without logs; `outer` are the tokens and layers that multiply the bracket it stands in.

    A token or layer counts as outer once: the second ``m`` of ``m^2`` is inner, hence ``BmL(4d^2 + md)``.  Without a
    batch the one ``m`` is inner too, hence ``2L(4d^2 + md)`` per token.
    """

    coefficient: Fraction
    powers: Mapping[str, int]
    outer: frozenset[str]

    @staticmethod
    def of(coefficient: Fraction | int, powers: Mapping[str, int]) -> Term:
        batched = any(powers.get(s, 0) > 0 for s in BATCH)
        outer = frozenset(s for s, p in powers.items() if stem(s) in OUTER and p > 0 and (batched or s not in TOKENS))
        return Term(Fraction(coefficient), powers, outer)

    def over(self, common: Term) -> Term:
        """The quotient by a common factor."""
        left = dict(self.powers)
        for name, power in common.powers.items():
            left[name] = left.get(name, 0) - power
        kept = {s: p for s, p in left.items() if p}
        return Term(self.coefficient / common.coefficient, kept, self.outer - common.outer)

    @property
    def degrees(self) -> tuple[tuple[str, int], ...]:
        """The part in degrees of parallelism."""
        return tuple(sorted((s, p) for s, p in self.powers.items() if is_degree(s)))


def is_degree(name: str) -> bool:
    """True for the paper's degrees and for those that schemes bring along."""
    return name in DEGREES or name.startswith("P_")


def stem(name: str) -> str:
    """A per-model size counts as its size: ``d_ff_pi`` as ``d_ff``."""
    if name in ORDER:
        return name
    head = name.rpartition("_")[0]
    return head if head in ORDER else name


def rank(name: str) -> tuple[int, str]:
    """Place of a size inside a product; named costs come last, ordered by their models."""
    base = stem(name)
    if base in ORDER:
        return ORDER.index(base), name
    if is_cost(name):
        model = name.partition("(")[2].rstrip(")")
        return len(ORDER), f"{MODELS.index(model) if model in MODELS else len(MODELS)} {name}"
    return (len(DEGREES) - 1 if is_degree(name) else len(ORDER)), name


def is_cost(name: str) -> bool:
    """True for the name of an opaque cost, ``C_f_tok(pi)`` or ``M_KV``."""
    return name in WITHOUT_MODEL or ("(" in name and not is_sum(name))


def gcd(values: Iterable[Fraction]) -> Fraction:
    """The largest positive rational of which all are integer multiples."""
    numbers = list(values)
    top = math.gcd(*(v.numerator for v in numbers))
    return Fraction(top, math.lcm(*(v.denominator for v in numbers)))


def product(term: Term) -> Expr:
    """One monomial as a product, or as a fraction where something is in the denominator."""
    names = sorted(term.powers, key=rank)
    above = [power_of(s, term.powers[s]) for s in names if term.powers[s] > 0]
    below = [power_of(s, -term.powers[s]) for s in names if term.powers[s] < 0]
    size = abs(term.coefficient)
    if size.numerator != 1 or not above:
        above.insert(0, ex.num(size.numerator))
    if size.denominator != 1:
        below.insert(0, ex.num(size.denominator))
    out = Div(ex.mul(*above), ex.mul(*below)) if below else ex.mul(*above)
    return ex.negate(out) if term.coefficient < 0 else out


def power_of(name: str, exponent: int) -> Expr:
    """A size, a named cost or a sum of logs, the latter two under their text, to a power."""
    base = parse_text(name) if "(" in name or is_cost(name) else Sym(name)
    return base if exponent == 1 else ex.Pow(base, exponent)
