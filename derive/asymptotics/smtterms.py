"""Text forms and polynomials for the SMT-LIB export: a reader and a writer of their own.

Nothing here is shared with the checker or the search, so that a fault of theirs does not repeat itself in what an
outsider's solver is given.  The reader walks Python's syntax tree of a text (the forms are written in that syntax) and
evaluates none of it.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

Mono = tuple[tuple[str, int], ...]  # sorted (generator, power); a generator is a size or a log such as "log(d)"
Poly = dict[Mono, Fraction]
Linear = dict[str, Fraction]  # by log generator; "" is the constant
ONE: Poly = {(): Fraction(1)}
LONGEST = 20_000
LARGEST_POWER = 39


class ExportError(ValueError):
    """The file cannot be exported; the message is one sentence that names the place."""


def is_log(gen: str) -> bool:
    return gen.startswith(("log(", "ceil_log("))


def combine(*parts: tuple[Fraction | int, Mapping[str, Fraction]]) -> Linear:
    out: Linear = {}
    for k, form in parts:
        for gen, c in form.items():
            out[gen] = out.get(gen, Fraction(0)) + k * c
    return {gen: c for gen, c in out.items() if c}


def add(*parts: tuple[Fraction | int, Poly]) -> Poly:
    out: Poly = {}
    for k, poly in parts:
        for mono, c in poly.items():
            out[mono] = out.get(mono, Fraction(0)) + k * c
    return {mono: c for mono, c in out.items() if c}


def times(a: Mono, b: Mono, power: int = 1) -> Mono:
    out = dict(a)
    for gen, p in b:
        out[gen] = out.get(gen, 0) + p * power
    return tuple(sorted((gen, p) for gen, p in out.items() if p))


def mul(a: Poly, b: Poly) -> Poly:
    return add(*((c, {times(m, n): k}) for m, c in a.items() for n, k in b.items()))


def lowest_powers(poly: Poly) -> dict[str, int]:
    gens = {gen for mono in poly for gen, _ in mono}
    return {gen: min(dict(mono).get(gen, 0) for mono in poly) for gen in gens}


def split(poly: Poly) -> tuple[dict[Mono, Linear], dict[tuple[Mono, Mono], Fraction]]:
    """Group by the powers of sizes: linear forms in logs, and apart from them what has several log factors."""
    groups: dict[Mono, Linear] = {}
    products: dict[tuple[Mono, Mono], Fraction] = {}
    for mono, c in poly.items():
        sizes, logs = (tuple(x for x in mono if is_log(x[0]) == wanted) for wanted in (False, True))
        if logs in ((), ((logs[0][0], 1),) if logs else ()):
            groups.setdefault(sizes, {})[logs[0][0] if logs else ""] = c
        else:
            products[sizes, logs] = c
    return groups, products


def mono_text(mono: Mono) -> str:
    return "*".join(g if p == 1 else f"{g}**{p}" if p > 0 else f"{g}**({p})" for g, p in mono) or "1"


def poly_text(poly: Poly) -> str:
    parts = (mono_text(m) if c == 1 else f"{c}*{mono_text(m)}" if m else f"{c}" for m, c in sorted(poly.items()))
    return " + ".join(parts) or "0"


# -- reading -----------------------------------------------------------------------------------------------------------
def parsed(text: object) -> ast.expr:
    if not isinstance(text, str) or len(text) > LONGEST:
        raise ExportError(f"{str(text)[:60]!r} is not an expression")
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExportError(f"cannot read the expression {text[:60]!r}") from error


class Texts:
    """Reads expressions as polynomials over free factors; ``named`` says what some names stand for."""

    def __init__(self, named: Mapping[str, Poly] | None = None) -> None:
        self.named = dict(named or {})
        self.spelled: dict[str, ast.expr] = {}  # what is written out instead of an opaque cost
        self.logs: dict[str, Poly] = {}  # arguments of the logs of sums and of numbers

    def read(self, text: str) -> list[Poly]:
        """The members of the maximum that the text denotes."""
        return self.members(parsed(text))

    def one(self, text: str) -> Poly:
        members = self.read(text)
        if len(members) != 1:
            raise ExportError(f"{text!r} has a Max where none may be")
        return members[0]

    def mono(self, text: str) -> Mono:
        poly = self.one(text)
        if list(poly.values()) != [Fraction(1)]:
            raise ExportError(f"{text!r} is not a product")
        return next(iter(poly))

    def linear(self, poly: Poly) -> Linear:
        groups, products = split(poly)
        if products or set(groups) - {()}:
            raise ExportError(f"{poly_text(poly)!r} is not linear in logs")
        return groups.get((), {})

    def members(self, node: ast.expr) -> list[Poly]:
        match node:
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                return [add((value, ONE))]
            case ast.Name(id=name):
                return [self.named.get(name, {((name, 1),): Fraction(1)})]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return [add((-1, self.only(operand)))]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return [add((1, a), (1, b)) for a in self.members(left) for b in self.members(right)]
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return [add((1, a), (-1, self.only(right))) for a in self.members(left)]
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return [mul(a, b) for a in self.members(left) for b in self.members(right)]
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return [mul(a, self.inverse(self.only(right))) for a in self.members(left)]
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return [self.raised(self.only(left), exponent(right))]
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.call(name, args, node)
        raise ExportError(f"cannot read {ast.unparse(node)[:60]!r}")

    def only(self, node: ast.expr) -> Poly:
        return self.one(ast.unparse(node))

    def inverse(self, poly: Poly) -> Poly:
        if len(poly) != 1:
            raise ExportError(f"division by {poly_text(poly)!r}, which is not a product")
        ((mono, c),) = poly.items()
        if any(is_log(gen) for gen, _ in mono):
            raise ExportError(f"division by {poly_text(poly)!r}, which may be 0")
        return {times((), mono, -1): 1 / c}

    def raised(self, poly: Poly, power: int) -> Poly:
        out = ONE
        for _ in range(abs(power)):
            out = mul(out, poly)
        return out if power >= 0 else self.inverse(out)

    def summed(self, node: ast.Call) -> Poly:
        return ClosedSum.of(node, self).value

    def call(self, name: str, args: list[ast.expr], node: ast.Call) -> list[Poly]:
        if name == "Max" or (name == "O" and len(args) == 1):
            return [poly for arg in args for poly in self.members(arg)]
        if name == "log" and len(args) == 1:
            return [self.log(poly) for poly in self.members(args[0])]
        if name == "ceil_log" and len(args) == 1:
            return [self.note(name, self.only(args[0]))]
        if name == "Sum":
            return [self.summed(node)]
        if name == "Min":
            raise ExportError(f"{name} has no export yet, in {ast.unparse(node)[:60]!r}")
        atom = ast.unparse(node).replace(" ", "")  # an opaque cost such as C_f_tok(pi)
        return [self.named.get(atom, {((atom, 1),): Fraction(1)})]

    def log(self, arg: Poly) -> Poly:
        """log2 as a sum of logs of sizes, of the odd parts of coefficients, and of what does not factor."""
        if not arg or any(c <= 0 for c in arg.values()):
            raise ExportError(f"log of {poly_text(arg)!r}, which is not a sum of positive terms")
        shared = tuple(sorted(lowest_powers(arg).items()))
        top = math.gcd(*(c.numerator for c in arg.values()))
        bottom = math.lcm(*(c.denominator for c in arg.values()))
        rest = {times(m, shared, -1): c * bottom / top for m, c in arg.items()}
        logs: list[tuple[Fraction | int, Poly]] = [(p, {((f"log({g})", 1),): Fraction(1)}) for g, p in shared]
        logs += [(1, self.log_of(top)), (-1, self.log_of(bottom))]
        return add(*logs, *([] if len(rest) == 1 else [(1, self.note("log", rest))]))

    def log_of(self, value: int) -> Poly:
        twos = (value & -value).bit_length() - 1
        odd = value >> twos
        return add((twos, ONE), *([] if odd == 1 else [(1, self.note("log", {(): Fraction(odd)}))]))

    def note(self, function: str, arg: Poly) -> Poly:
        gen = f"{function}({poly_text(arg)})"
        self.logs[gen] = arg
        return {((gen, 1),): Fraction(1)}


def exponent(node: ast.expr) -> int:
    text = ast.unparse(node)
    if re.fullmatch(r"-?\d{1,2}", text) is None:
        raise ExportError(f"{text[:60]!r} is not a small integer power")
    return int(text)


# -- sums over an index: closed forms by Bernoulli numbers -------------------------------------------------------------
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


# -- writing -----------------------------------------------------------------------------------------------------------
def number(value: Fraction | int) -> str:
    value = Fraction(value)
    size = abs(value)
    text = f"{size.numerator}.0" if size.denominator == 1 else f"(/ {size.numerator}.0 {size.denominator}.0)"
    return text if value >= 0 else f"(- {text})"


def quoted(name: str) -> str:
    return f"|{name.replace('|', '/').replace(chr(92), '/')}|"


def apply(function: str, parts: Iterable[str], empty: str) -> str:
    listed = list(parts)
    return empty if not listed else listed[0] if len(listed) == 1 else f"({function} {' '.join(listed)})"


def scaled(c: Fraction, text: str) -> str:
    return number(c) if not text else text if c == 1 else f"(* {number(c)} {text})"


def linear_term(form: Mapping[str, Fraction]) -> str:
    return apply("+", (scaled(c, quoted(g) if g else "") for g, c in sorted(form.items()) if c), "0.0")


def poly_term(poly: Poly, name: Callable[[str], str] = quoted) -> str:
    return apply("+", (scaled(c, mono_term(m, name)) for m, c in sorted(poly.items())), "0.0")


def mono_term(mono: Mono, name: Callable[[str], str] = quoted) -> str:
    return apply("*", (name(gen) for gen, p in mono for _ in range(p)), "")
