"""An evaluator of growth that shares no code with the prover: exact integers along families of sizes.

A family gives each free factor ``x = 2**(c + e*n) * n**k`` at ``n = 2**t``.  Terms are grouped by their exact power of
two, logs are exact integers (a log of a sum is a float), so ratios can be followed far beyond floating-point range.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from derive.forms import Form, Log, Max, log2, symbol


@dataclass(frozen=True)
class Rates:
    """Exponents of one free factor: constant, power of n, multiple of n in the exponent."""

    c: int = 0
    k: int = 0
    e: int = 0

    def log(self, t: int) -> int:
        return self.c + self.k * t + (self.e * 2**t if self.e else 0)


def log_value(form: Form, logs: Mapping[str, int]) -> Fraction:
    """log2 of a positive polynomial without logs at sizes given by their logs."""
    powers = [(sum(logs[str(s)] * p for s, p in m), c) for m, c in form.terms.items()]
    top = max(p for p, _ in powers)
    return top + Fraction(math.log2(sum(float(c) * 2.0 ** max(p - top, -1000) for p, c in powers)))


def size_of(form: Form, logs: Mapping[str, int]) -> tuple[Fraction | None, int]:
    """(log2 |value|, sign) of a form; the log is None at zero."""
    groups: dict[int, Fraction] = {}
    for mono, c in form.terms.items():
        power, value = 0, Fraction(c)
        for atom, p in mono:
            if isinstance(atom, Log):
                single = len(atom.arg.terms) == 1 and atom.arg.symbols
                log = Fraction(logs[next(iter(atom.arg.symbols))]) if single else log_value(atom.arg, logs)
                value *= log**p
            else:
                power += logs[atom] * p
        groups[power] = groups.get(power, Fraction(0)) + value
    groups = {p: v for p, v in groups.items() if v}
    if not groups:
        return None, 0
    top = max(groups)
    total = sum((v * Fraction(2) ** max(p - top, -20_000) for p, v in groups.items()), Fraction(0))
    if not total:
        return None, 0
    fine = Fraction(math.log2(abs(total.numerator))) - Fraction(math.log2(total.denominator))
    return top + fine, 1 if total > 0 else -1


def log_of_max(value: Max, logs: Mapping[str, int]) -> Fraction:
    """log2 of max(1, the maximum)."""
    sizes = [size_of(f, logs) for f in value.members]
    return max([Fraction(0), *(log for log, sign in sizes if sign > 0 and log is not None)])


def outgrows(f: Max, g: Max, family: Mapping[str, Rates]) -> bool:
    """Does f/max(1, g) seem to grow without bound along the family (as a power of log n at least)?"""
    exponential = any(r.e for r in family.values())
    points = (2**6, 2**9, 2**12) if exponential else (2**12, 2**18, 2**24)  # log n grows eightfold at least
    ratios = []
    for t in points:
        logs = {s: r.log(t) for s, r in family.items()}
        ratios.append(log_of_max(f, logs) - log_of_max(g, logs))
    return ratios[2] - ratios[1] > 2 and ratios[1] - ratios[0] > 2 and ratios[2] > 2


def holds(left: Form, right: Form, family: Mapping[str, Rates]) -> bool:
    """Does ``left <= C*(1 + right)`` seem to hold along the family?"""
    return not outgrows(Max.of(left), Max.of(right), family)


# -- random questions --------------------------------------------------------------------------------------------------


def product(rng: random.Random, symbols: Sequence[str], top: int = 2) -> Form:
    out = Form.constant(1)
    for s in symbols:
        power = rng.choice([0, 0, 1, 1, top])
        if power:
            out = out * symbol(s) ** power
    return out


def log_of(name: str) -> Form:
    return log2(symbol(name))


def affine(rng: random.Random, symbols: Sequence[str], signed: bool) -> Form:
    """A random affine form in logs; signed ones are differences that are nonnegative only by luck."""
    out = Form.constant(rng.choice([0, 0, 1, 2]))
    for s in symbols:
        c = rng.choice([0, 0, 1, 2, -1 if signed else 1])
        if c:
            out = out + log_of(s) * c
    return out


def family(rng: random.Random, symbols: Sequence[str], log_only: Sequence[str] = ()) -> dict[str, Rates]:
    out = {}
    for s in symbols:
        if s in log_only and rng.random() < 0.3:
            out[s] = Rates(e=rng.choice([1, 1, 2]))
        else:
            out[s] = Rates(c=rng.choice([0, 0, 1, 3]), k=rng.choice([0, 0, 1, 1, 2, 3]))
    return out


@dataclass(frozen=True)
class Question:
    """A random question ``f = O(g)`` under hypotheses; ``log_only`` sizes occur in logs alone."""

    symbols: tuple[str, ...]
    log_only: tuple[str, ...]
    f: Max
    g: Max
    hypotheses: tuple[tuple[Form, Form], ...]
    least: tuple[tuple[str, int], ...]


def random_question(rng: random.Random) -> Question:
    """Sums of monomials, affine forms in logs, both, logs of sums, maxima, negative terms, hypotheses of each kind."""
    symbols = [f"x{i}" for i in range(rng.randint(2, 5))]
    kind = rng.choice(["poly", "poly", "logs", "mixed", "mixed", "sums"])
    powered, logged = _roles(rng, kind, symbols)

    def side(terms: int, signed: bool) -> Form:
        out = Form({})
        for _ in range(terms):
            if logged and rng.random() < 0.8:
                value = affine(rng, logged, signed)
                if kind == "sums" and rng.random() < 0.4:
                    a, b = rng.sample(symbols, 2)
                    value = value + log2(symbol(a) + symbol(b))
            else:
                value = Form.constant(rng.choice([1, 2, 3, -1] if signed else [1, 2, 3]))
            out = out + product(rng, powered) * value
        return out

    f = Max.of(*(side(rng.randint(1, 3), True) for _ in range(rng.choice([1, 1, 2]))))
    g = Max.of(*(side(rng.randint(1, 4), rng.random() < 0.25) for _ in range(rng.choice([1, 1, 1, 2]))))
    hypotheses = [_hypothesis(rng, symbols, logged) for _ in range(rng.choice([0, 0, 1, 2]))]
    inside = {a for value in (f, g) for form in value.members for m in form.terms for a, _ in m if isinstance(a, str)}
    return Question(
        tuple(symbols),
        tuple(s for s in symbols if s not in inside),
        f,
        g,
        tuple(h for h in hypotheses if h[0]),
        tuple((s, 2) for s in symbols if rng.random() < 0.15),
    )


def _roles(rng: random.Random, kind: str, symbols: list[str]) -> tuple[list[str], list[str]]:
    if kind == "poly":
        return symbols, []
    if kind == "logs":
        return [], symbols
    cut = rng.randint(1, len(symbols) - 1)
    return symbols[:cut], symbols if rng.random() < 0.3 else symbols[cut:]


def _hypothesis(rng: random.Random, symbols: Sequence[str], logged: Sequence[str]) -> tuple[Form, Form]:
    if logged and rng.random() < 0.3:
        return affine(rng, logged, False), affine(rng, logged, rng.random() < 0.3)
    right = product(rng, symbols, 1)
    return product(rng, symbols, 1), right + product(rng, symbols, 1) if rng.random() < 0.4 else right


def random_family(rng: random.Random, question: Question) -> dict[str, Rates]:
    """A family within the question's lower bounds."""
    found = family(rng, question.symbols, question.log_only)
    return {s: Rates(max(r.c, 1), r.k, r.e) if (s, 2) in question.least else r for s, r in found.items()}


def admissible(question: Question, rates: Mapping[str, Rates]) -> bool:
    return all(holds(left, right, rates) for left, right in question.hypotheses)


# -- claims that are true or false by construction ---------------------------------------------------------------------


def true_claim(rng: random.Random) -> tuple[Max, Max, tuple[tuple[Form, Form], ...]]:
    """f built from g by sound steps: shrinking, geometric means, weaker logs, absorbed logs, a hypothesis."""
    sizes, logs = ["x0", "x1", "x2"], ["y0", "y1", "y2"]
    atoms = [(product(rng, sizes), affine(rng, logs, False) + 1) for _ in range(rng.randint(1, 4))]
    g = sum((a * v for a, v in atoms), Form({}))
    hypothesis = product(rng, sizes[:2], 1), product(rng, sizes[1:], 1)
    used = False
    f = Form({})
    for _ in range(rng.randint(1, 4)):
        a, v = rng.choice(atoms)
        step = rng.choice(["shrink", "mean", "weaker", "absorb", "hypothesis"])
        shrink = product(rng, sizes, 1).inverse()
        if step == "mean":
            b, _ = rng.choice(atoms)
            f = f + _root(a * b) * rng.choice([1, 5])
        elif step == "weaker":
            f = f + a * shrink * (v * rng.choice([1, 3]) - affine(rng, logs, False))
        elif step == "absorb":
            x = rng.choice(sizes)
            f = f + a * symbol(x).inverse() * log_of(x) * rng.choice([1, 4])
        elif step == "hypothesis":
            used = True
            f = f + a * hypothesis[0] * hypothesis[1].inverse() * v
        else:
            f = f + a * shrink * v * rng.choice([1, 7])
    return Max.of(f), Max.of(g), (hypothesis,) if used else ()


def _root(form: Form) -> Form:
    """A monomial whose square is at most the given one: each exponent halved, rounded down."""
    ((mono, _),) = form.terms.items()
    return Form({tuple((a, p // 2) for a, p in mono if p // 2): 1})


def false_claim(rng: random.Random) -> tuple[Max, Max, tuple[tuple[Form, Form], ...]]:
    """g random; f contains a term that outgrows every term of g along a hidden family on which the hypotheses hold."""
    sizes = ["x0", "x1", "x2"]
    rates = {s: rng.choice([0, 1, 2]) for s in sizes}
    rates[rng.choice(sizes)] = 3

    def degree(form: Form) -> int:
        return max(sum(rates[str(a)] * p for a, p in m if isinstance(a, str)) for m in form.terms)

    atoms = [product(rng, sizes) for _ in range(rng.randint(1, 4))]
    top = max(degree(a) for a in atoms)
    big = next(t for t in iter(lambda: product(rng, sizes, 4), None) if degree(t) > top)
    logs = ["x0", "x1", "x2", "y0"]
    g = sum((a * (affine(rng, logs, False) + 1) for a in atoms), Form({}))
    f = big + product(rng, sizes, 1) * rng.choice([1, 2]) + affine(rng, logs, True)
    pairs = [(product(rng, sizes, 1), product(rng, sizes, 1)) for _ in range(3)]
    return Max.of(f), Max.of(g), tuple((a, b) for a, b in pairs if degree(a) <= degree(b))[:2]
