"""Terms and shapes of SMT-LIB scripts: each states the negation of one lemma, so that ``unsat`` means the lemma holds.

A lemma that a certificate states with numbers (multipliers, weights) is refuted in three ways, all in one disjunction:
the conclusion fails under the facts, the numbers do not give the conclusion, or they are not of the sign they need.
So a wrong number makes the script satisfiable even where another number would do.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from derive.asymptotics.smtterms import (
    Linear,
    Mono,
    Poly,
    Texts,
    apply,
    exponent,
    is_log,
    linear_term,
    lowest_powers,
    mono_term,
    mono_text,
    number,
    poly_term,
    quoted,
    scaled,
    times,
)

LARGER = "(define-fun larger ((a Real) (b Real)) Real (ite (>= a b) a b))"


Quotient = tuple[str, Mono]  # a term without divisions, and the product of sizes that it is to be divided by


def common(parts: Sequence[Quotient]) -> tuple[list[str], Mono]:
    """The parts over one denominator."""
    gens = sorted({gen for _, below in parts for gen, _ in below})
    whole = tuple((gen, max(dict(below).get(gen, 0) for _, below in parts)) for gen in gens)
    return [apply("*", [mono_term(times(whole, below, -1)), text], "") if times(whole, below, -1) else text
            for text, below in parts], whole  # fmt: skip


def normal_term(polys: Sequence[Poly]) -> Quotient:
    """The maximum of polynomials in normal form."""
    parts = []
    for poly in polys:
        below = tuple(sorted((gen, -p) for gen, p in lowest_powers(poly).items() if p < 0))
        parts.append((poly_term({times(mono, below): c for mono, c in poly.items()}), below))
    terms, whole = common(parts)
    return maximum(terms), whole


def raw_term(node: ast.expr, texts: Texts) -> Quotient:
    """The expression as it is written, brackets and all.

    Logs are taken apart into logs of sizes, sums over an index are in closed form; divisions are put below, as solvers
    are weak at them.
    """
    match node:
        case ast.Constant(value=int() as value):
            return number(value), ()
        case ast.Name(id=name):
            return quoted(name), ()
        case ast.UnaryOp(operand=operand):
            text, below = raw_term(operand, texts)
            return f"(- {text})", below
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return divided(raw_term(left, texts), texts.only(right))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return powered(left, exponent(right), texts)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            (a, below), (b, under) = raw_term(left, texts), raw_term(right, texts)
            return f"(* {a} {b})", times(below, under)
        case ast.BinOp(left=left, op=op, right=right):
            terms, whole = common([raw_term(left, texts), raw_term(right, texts)])
            return f"({'+' if isinstance(op, ast.Add) else '-'} {' '.join(terms)})", whole
        case ast.Call(func=ast.Name(id=name), args=args) if name in ("O", "Max", "log", "ceil_log", "Sum"):
            return raw_maximum(args, texts) if name in ("O", "Max") else normal_term(texts.members(node))
    atom = ast.unparse(node).replace(" ", "")
    return raw_term(texts.spelled[atom], texts) if atom in texts.spelled else (quoted(atom), ())


def raw_maximum(nodes: Sequence[ast.expr], texts: Texts) -> Quotient:
    terms, whole = common([raw_term(node, texts) for node in nodes])
    return maximum(terms), whole


def divided(above: Quotient, divisor: Poly) -> Quotient:
    ((mono, c),) = Texts().inverse(divisor).items()
    return scaled(c, above[0]), times(above[1], mono, -1)


def powered(base: ast.expr, power: int, texts: Texts) -> Quotient:
    if power < 0:
        return divided(("1.0", ()), texts.raised(texts.only(base), -power))
    text, below = raw_term(base, texts)
    return apply("*", [text] * power, "1.0"), tuple((gen, p * power) for gen, p in below if power)


def maximum(terms: Sequence[str]) -> str:
    out = terms[0]
    for term in terms[1:]:
        out = f"(larger {out} {term})"
    return out


@dataclass(frozen=True)
class Script:
    """One lemma of one certificate."""

    cell: str
    proof: str
    lemma: str
    says: str
    logic: str
    body: tuple[str, ...]

    @property
    def text(self) -> str:
        head = [
            f"cell {self.cell}, {self.proof}: {self.lemma}",
            self.says,
            "The negation is asserted; expected: unsat.",
        ]
        comment = [f"; {line}" for part in head for line in textwrap.wrap(part, 110)]
        return "\n".join([*comment, f"(set-logic {self.logic})", *self.body, "(check-sat)"]) + "\n"


@dataclass(frozen=True)
class Fact:
    """A linear form in logs that is >= 0, or when ``unknown`` >= minus a constant nobody knows."""

    form: Linear
    unknown: bool = False
    why: tuple[str, tuple[str, ...]] | None = None  # a lemma behind it: what it says, and the negation


def declared(names: Iterable[str], least: str = "0.0") -> list[str]:
    out = []
    for name in sorted(set(names)):
        out.append(f"(declare-const {quoted(name)} Real)")
        if least:
            out.append(f"(assert (>= {quoted(name)} {least}))")
    return out


def refuted(ways: Sequence[str]) -> str:
    return f"(assert {apply('or', ways, 'false')})"


def negative(values: Iterable[Fraction]) -> list[str]:
    return [f"(< {number(v)} 0.0)" for v in values]


def not_convex(weights: Sequence[Fraction]) -> list[str]:
    return [*negative(weights), f"(not (= {apply('+', map(number, weights), '0.0')} 1.0))"]


def log_of(mono: Iterable[tuple[str, int | Fraction]]) -> Linear:
    """The log of a product of sizes, a linear form: ``log(x**2*y)`` is ``2*log(x) + log(y)``."""
    return {f"log({gen})": Fraction(p) for gen, p in mono}


def gens_of(*forms: Mapping[str, Fraction]) -> set[str]:
    return {gen for form in forms for gen in form if gen}


@dataclass
class Sheet:
    """Collects the scripts of one certificate; the same lemma is written once."""

    cell: str
    proof: str
    scripts: list[Script] = field(default_factory=list)
    seen: set[tuple[str, ...]] = field(default_factory=set)

    def put(self, lemma: str, says: str, logic: str, body: Sequence[str]) -> None:
        if tuple(body) not in self.seen:
            self.seen.add(tuple(body))
            self.scripts.append(Script(self.cell, self.proof, lemma, says, logic, tuple(body)))

    def farkas(self, says: str, total: Linear, used: Mapping[str, tuple[Fact, Fraction]], loose: bool = False,
               also: Sequence[str] = ()) -> None:  # fmt: skip
        """``total >= 0``, for total minus the multiples of the facts has no negative coefficient."""
        body = declared(gens_of(total, *(fact.form for fact, _ in used.values())))
        known, constants, multiples = [], [], []
        for name, (fact, k) in used.items():
            term, constant = quoted(f"fact {name}"), f"constant of {name}"
            body.append(f"(define-fun {term} () Real {linear_term(fact.form)})")
            multiples.append(scaled(k, term))
            if fact.unknown:
                body += declared([constant])
                constants.append(scaled(k, quoted(constant)))
            known.append(f"(>= (+ {term} {quoted(constant)}) 0.0)" if fact.unknown else f"(>= {term} 0.0)")
            if fact.why:
                self.put("fact", fact.why[0], "QF_NRA", fact.why[1])
        target = linear_term(total)
        reached = apply("+", [target, *(constants if loose else ())], "0.0")
        conclusion = apply("and", [*known, f"(< {reached} 0.0)"], "true")
        ways = [conclusion, *([f"(< {target} {apply('+', multiples, '0.0')})"] if used else ())]
        body.append(refuted([*ways, *negative(k for _, k in used.values()), *also]))
        self.put("nonnegative form", says, "QF_LRA", body)

    def below(self, lemma: str, says: str, small: Linear, large: Linear, ways: Sequence[str] = (),
              given: Sequence[tuple[Linear, Linear]] = (), signed: Iterable[str] = ()) -> None:  # fmt: skip
        """``small <= large`` for nonnegative values of the variables (any value for the signed ones)."""
        names, free = gens_of(small, large, *(form for pair in given for form in pair)), set(signed)
        body = [*declared(names - free), *declared(names & free, "")]
        body += [f"(assert (<= {linear_term(a)} {linear_term(b)}))" for a, b in given]
        body.append(refuted([f"(> {linear_term(small)} {linear_term(large)})", *ways]))
        self.put(lemma, says, "QF_LRA", body)

    def identity(self, says: str, body: Sequence[str], left: Quotient, right: Quotient) -> None:
        """Two terms are the same function; what the body does not introduce is a size >= 1 or a log >= 0."""
        terms, whole = common([left, right])
        text = " ".join([*body, *terms])
        names = set(re.findall(r"\|([^|]*)\|", text)) - set(
            re.findall(r"(?:define-fun|declare-const) \|([^|]*)\|", text)
        )
        logs = {name for name in names if is_log(name)}
        lines = [*declared(names - logs, "1.0"), *declared(logs), *body, f"(assert (not (= {' '.join(terms)})))"]
        says += f" (Both sides are multiplied by {mono_text(whole)}, which is positive.)" if whole else ""
        self.put("identity", says, "QF_NRA", [LARGER, *lines] if "(larger " in text else lines)

    def cover(self, says: str, gap: Poly) -> None:
        """A polynomial is >= 0 whatever nonnegative values its products take: no coefficient is negative."""
        products = {mono_text(mono): c for mono, c in gap.items() if mono}
        body = declared(products)
        form = {**products, "": gap.get((), Fraction(0))}
        self.put("sign", says, "QF_LRA", [*body, refuted([f"(< {linear_term(form)} 0.0)"])])

    def convex(self, says: str, weights: Sequence[Fraction]) -> None:
        """A convex combination of the members of a maximum is below it."""
        members = [f"member {i}" for i in range(len(weights))]
        mean = linear_term(dict(zip(members, weights, strict=True)))
        above = apply("and", [f"(> {mean} {quoted(m)})" for m in members], "true")
        self.put("convex combination", says, "QF_LRA", [*declared(members, ""), refuted([above, *not_convex(weights)])])

    def largest(self, says: str, terms: Mapping[str, Fraction], unit: Fraction = Fraction(0),
                least: Mapping[str, int] | None = None) -> None:  # fmt: skip
        """Some term v_j has ``unit + sum of c_i*v_i <= (unit + sum of c_i)*v_j``: the cases cover everything."""
        total = unit + sum(terms.values())
        value = linear_term({**terms, "": unit})
        beyond = [f"(> {value} {scaled(total, quoted(t))})" for t in terms]
        body = [line for t in sorted(terms) for line in declared([t], number((least or {}).get(t, 0)))]
        self.put("cases", says, "QF_LRA", [*body, refuted([apply("and", beyond, "true")])])

    def shift(self, gap: Poly, clear: Mono, moved: Poly, amounts: Mapping[str, tuple[int, int]]) -> None:
        """The polynomial, times a product that clears divisions, rewritten in remainders over lower bounds."""
        rest = {s: f"{s} less {value}" for s, (value, _) in amounts.items()}
        body = declared(rest.values())
        for s, (value, _) in amounts.items():
            body.append(f"(define-fun {quoted(s)} () Real (+ {quoted(rest[s])} {number(value)}))")
        left = poly_term({times(m, clear): c for m, c in gap.items()})
        right = poly_term(moved, lambda name: quoted(rest.get(name, name)))
        self.identity("The difference, rewritten in remainders over lower bounds.", body, (left, ()), (right, ()))
        for s, (value, least) in amounts.items():
            ways = [f"(< {quoted(s)} {number(value)})"]
            self.put(
                "lower bound", f"{s} is at least {value}.", "QF_LRA", [*declared([s], number(least)), refuted(ways)]
            )
