"""The trusted checker: every certificate and witness of a verdict file, verified from its JSON alone.

Run it as ``python checker.py verdicts.json``: exit 0 when everything checks, else 1 and the first thing that does not.
It needs the standard library only, imports nothing of the project and evaluates no text as code.  Part 1 reads text
forms, part 2 collects what domain and hypotheses give, part 3 is the proof kernel, part 4 the claims, part 5 checks
witnesses, part 6 ties all that to the cells of a file.

Meaning of the claims.  Sizes are products of free factors, each a real number >= 1.  ``f = O(g)``: for every constant
of the hypotheses there is a C with ``f <= C*(1 + g)`` on the domain, and ``f <= C*g`` when the certificate has a floor
(``g >= c > 0``).  A hypothesis ``left = O(right)`` gives ``left <= C'*(1 + max(right, 0))``.  Where a sum has a size in
its bounds, that size is an integer; polynomial sums are read in closed form, sums of logs are bounded from both sides.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any, NoReturn

Mono = tuple[tuple[str, int], ...]  # sorted (generator, power); a generator is a size or a log such as "log(d)"
Poly = dict[Mono, Fraction]
Affine = dict[str, Fraction]  # by log generator; "" is the constant
Node = Mapping[str, Any]
Lowered = tuple[
    dict[Mono, Affine], dict[tuple[Mono, Mono], Fraction]
]  # groups that are >= 0, positive products of logs
FUNCTIONS = ("log", "ceil_log", "Max", "Min", "Sum")


class Rejected(Exception):  # noqa: N818 - the verdict, not a fault of the program
    """A text, certificate or witness is not accepted; the message says why."""


def need(condition: bool, why: str) -> None:
    if not condition:
        raise Rejected(why)


def number(text: object) -> Fraction:
    """An exact rational from its JSON string, ``"3"`` or ``"-1/2"``."""
    need(isinstance(text, str) and re.fullmatch(r"-?\d+(/[1-9]\d*)?", text) is not None, f"{text!r} is not a rational")
    return Fraction(str(text))


# -- part 1: polynomials over sizes and logs, and the reader of text forms ---------------------------------------------


def add(*polys: Poly) -> Poly:
    out: Poly = {}
    for poly in polys:
        for mono, c in poly.items():
            out[mono] = out.get(mono, Fraction(0)) + c
    return {m: c for m, c in out.items() if c}


def scale(poly: Mapping[Any, Fraction], factor: Fraction | int) -> Any:
    return {m: c * factor for m, c in poly.items()}


def times(a: Mono, b: Mono, power: int = 1) -> Mono:
    out = dict(a)
    for gen, p in b:
        out[gen] = out.get(gen, 0) + p * power
    return tuple(sorted((g, p) for g, p in out.items() if p))


def mul(a: Poly, b: Poly) -> Poly:
    return add(*({times(m, n): c * k for n, k in b.items()} for m, c in a.items()))


def is_log(gen: str) -> bool:
    return gen.startswith(("log(", "ceil_log("))


def mono_text(mono: Mono) -> str:
    return "*".join(g if p == 1 else f"{g}**{p}" if p > 0 else f"{g}**({p})" for g, p in mono) or "1"


def poly_text(poly: Poly) -> str:
    """Canonical text of a polynomial: equal polynomials have equal texts."""
    return (
        " + ".join(mono_text(m) if c == 1 else f"{c}*{mono_text(m)}" if m else f"{c}" for m, c in sorted(poly.items()))
        or "0"
    )


def log_bounds(value: int) -> tuple[Fraction, Fraction]:
    """Rationals around log2 of a positive integer, equal for a power of two, else 1/16 apart."""
    low = (value**16).bit_length() - 1
    return Fraction(low, 16), Fraction(low if value & (value - 1) == 0 else low + 1, 16)


class Reader:
    """Text forms to polynomials over free factors; remembers the argument of every log it meets."""

    def __init__(
        self, factors: Mapping[str, str], transparent: Sequence[str] = (), least: Mapping[str, int] | None = None
    ) -> None:
        self.transparent = transparent  # functions read as their argument
        self.logs: dict[str, Poly] = {}
        self.sums: dict[str, tuple[Poly, Poly]] = {}  # lower and upper bounds of sums of logs
        self.two: list[Poly] = []  # sizes known to be at least 2
        self.factors: dict[str, Poly] = {}
        values = {name: self.single(text) for name, text in sorted(factors.items())}
        for name, value in values.items():
            need(len(value) == 1 and set(value.values()) == {Fraction(1)}, f"{name} is not a product of free factors")
            for gen, power in next(iter(value)):
                free = gen not in values and gen not in self.sums and not is_log(gen)
                need(power > 0 and free, f"{name}: {gen} is not a free factor")
        self.factors = values
        self.two = [self.single(name) for name, value in (least or {}).items() if value >= 2]

    def single(self, text: str) -> Poly:
        members = self.read(text)
        need(len(members) == 1, f"{text}: no Max is allowed here")
        return members[0]

    def read(self, text: str) -> list[Poly]:
        """The members of the maximum that the text denotes (one when it has no Max)."""
        need(isinstance(text, str), f"{text!r} is not a text form")
        tokens = re.findall(r"\d+|[A-Za-z_]\w*|\*\*|[-+*/(),]|\S", text)
        parser = _Parser(self, tokens, text)
        out = parser.sum()
        need(parser.at == len(tokens), f"cannot read {text!r} at {parser.peek()!r}")
        return out

    def bounded(self, poly: Poly, way: int) -> Poly:
        """Every sum of logs by its bound, so that the polynomial grows (way 1) or shrinks (way -1) nowhere."""
        parts: list[Poly] = []
        for mono, c in poly.items():
            part: Poly = {tuple(x for x in mono if x[0] not in self.sums): c}
            for gen, power in mono:
                need(gen not in self.sums or (way != 0 and power > 0), f"{gen} has bounds only")
                for _ in range(power if gen in self.sums else 0):
                    part = mul(part, self.sums[gen][int((c > 0) == (way > 0))])
            parts.append(part)
        return add(*parts)

    def sum_of(self, body: Poly, index: str, low: Poly, high: Poly) -> Poly:
        """The sum of ``body`` for index = low, ..., high: F(high + 1) - F(low) where F(index + 1) - F(index) = body."""
        one: Poly = {(): Fraction(1)}
        sizes = {g for p in (low, high, *self.factors.values()) for m in p for g, _ in m}
        whole = all(c.denominator == 1 and all(p > 0 for _, p in m) for p in (low, high) for m, c in p.items())
        need(whole and not any(is_log(g) or g in self.sums for g in sizes), f"the bounds of {index} are no integers")
        need(index not in self.factors and index not in sizes, f"the index {index} is a size")
        need(bool(low) and all(c > 0 for c in low.values()), f"the first {index} may be below 1")
        count = shifted(add(high, one, scale(low, -1)), dict.fromkeys(sizes, 1))
        need(all(c >= 0 for c in count.values()), f"the last {index} may be below the first")
        gens = {g for m in body for g, _ in m}
        need(gens.isdisjoint(self.sums), "a sum of sums of logs")
        logs = {g for g in gens if is_log(g) and (g == f"log({index})" or self.over(index, self.logs.get(g, {})))}
        plain = {m: c for m, c in body.items() if logs.isdisjoint(g for g, _ in m)}
        total = add(*(mul(part, power_sum(k, index)) for k, part in powers_of(plain, index).items()))
        step = substitute(total, index, add({((index, 1),): Fraction(1)}, one))
        need(add(step, scale(total, -1)) == plain, f"no closed form of the sum over {index}")
        out = add(substitute(total, index, add(high, one)), scale(substitute(total, index, low), -1))
        for mono, c in body.items():
            for gen in logs & {g for g, _ in mono}:
                need(low == one and dict(mono)[gen] == 1, f"{gen} summed over {index}")
                rest = tuple(x for x in mono if x[0] != gen)
                need(index not in dict(rest) and logs.isdisjoint(g for g, _ in rest), f"{mono_text(mono)} summed")
                out = add(out, mul({rest: c}, {((self.log_sum(gen, index, high), 1),): Fraction(1)}))
        return out

    @staticmethod
    def over(index: str, poly: Poly) -> bool:
        return any(g == index for m in poly for g, _ in m)

    def log_sum(self, gen: str, index: str, high: Poly) -> str:
        """A generator for the sum of log(a + index) over 1, ..., n - 1, where a, n >= 1.

        It is at most (n - 1)*log(a + n), and at least half of that: log(a + t) >= t/n*log(a + n), by concavity and as
        log(a) >= 0.  Where n >= 2, n - 1 >= n/2.
        """
        start, n = add(self.logs.get(gen, {}), {((index, 1),): Fraction(-1)}), add(high, {(): Fraction(1)})
        need(gen.startswith("log(") and bool(start) and not self.over(index, start), f"{gen} summed over {index}")
        for poly in (start, n):
            whole = all(c > 0 and c.denominator == 1 and all(p > 0 for _, p in m) for m, c in poly.items())
            need(whole and not any(is_log(g) for m in poly for g, _ in m), f"{gen} summed to {poly_text(high)}")
        name = f"Sum({gen}, ({index}, 1, {poly_text(high)}))"
        last = self.log(add(start, n))
        two = n in self.two or sum(n.values()) >= 2
        self.sums[name] = scale(mul(n if two else high, last), Fraction(1, 4 if two else 2)), mul(high, last)
        return name

    def log(self, arg: Poly) -> Poly:
        """log2 of a positive polynomial: a sum of logs, and a generator for what does not factor."""
        need(bool(arg) and all(c > 0 for c in arg.values()), "log of something that is not a sum of positive terms")
        need(not any(is_log(g) for m in arg for g, _ in m), "log of a log")
        gens = {g for m in arg for g, _ in m}
        common = tuple(sorted((g, min(dict(m).get(g, 0) for m in arg)) for g in gens))
        top = math.gcd(*(c.numerator for c in arg.values()))
        bottom = math.lcm(*(c.denominator for c in arg.values()))
        rest = {times(m, common, -1): c * bottom / top for m, c in arg.items()}
        logs: Poly = {((f"log({g})", 1),): Fraction(p) for g, p in common if p}
        out = add(logs, self.log_of(top), scale(self.log_of(bottom), -1))
        return out if len(rest) == 1 else add(out, {((self.note("log", rest), 1),): Fraction(1)})

    def log_of(self, value: int) -> Poly:
        twos = (value & -value).bit_length() - 1
        odd = value >> twos
        out: Poly = {(): Fraction(twos)} if twos else {}
        return out if odd == 1 else add(out, {((self.note("log", {(): Fraction(odd)}), 1),): Fraction(1)})

    def ceil_log(self, arg: Poly) -> Poly:
        self.log(arg)
        if set(arg) == {()}:
            return {(): Fraction(max(0, (math.ceil(arg[()]) - 1).bit_length()))}
        return {((self.note("ceil_log", arg), 1),): Fraction(1)}

    def note(self, function: str, arg: Poly) -> str:
        gen = f"{function}({poly_text(arg)})"
        self.logs[gen] = arg
        return gen


class _Parser:
    """Recursive descent over one text; a value is the list of members of a maximum."""

    def __init__(self, reader: Reader, tokens: list[str], text: str) -> None:
        self.reader, self.tokens, self.text, self.at, self.depth = reader, tokens, text, 0, 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        need(bool(token) and expected in ("", token), f"{self.text!r}: expected {expected or 'more'!r} at {token!r}")
        self.at += 1
        return token

    def sum(self) -> list[Poly]:
        self.depth += 1
        need(self.depth < 100, f"{self.text[:40]!r}: nested too deeply")
        out = self.product()
        while self.peek() in ("+", "-"):
            sign, other = (1 if self.take() == "+" else -1), self.product()
            need(sign > 0 or len(other) == 1, f"{self.text!r}: a Max cannot be subtracted")
            out = [add(a, scale(b, sign)) for a in out for b in other]
        self.depth -= 1
        return out

    def product(self) -> list[Poly]:
        if self.peek() == "-":
            self.take()
            value = self.product()
            need(len(value) == 1, f"{self.text!r}: a Max cannot be subtracted")
            return [scale(value[0], -1)]
        out = self.power()
        while self.peek() in ("*", "/"):
            divide, other = self.take() == "/", self.power()
            out = self.multiply(out, self.invert(other) if divide else other)
        return out

    def multiply(self, a: list[Poly], b: list[Poly]) -> list[Poly]:
        for x, y in ((a, b), (b, a)):
            need(len(x) == 1 or all(c > 0 for p in y for c in p.values()), f"{self.text!r}: a Max times a signed term")
        return [mul(x, y) for x in a for y in b]

    def invert(self, value: list[Poly]) -> list[Poly]:
        need(len(value) == 1 and len(value[0]) == 1, f"{self.text!r}: a divisor must be a single product")
        ((mono, c),) = value[0].items()
        need(not any(is_log(g) for g, _ in mono), f"{self.text!r}: division by a log")
        return [{times((), mono, -1): 1 / c}]

    def power(self) -> list[Poly]:
        value = self.atom()
        if self.peek() != "**":
            return value
        self.take()
        closing = self.peek() == "(" and self.take()
        sign = -1 if self.peek() == "-" and self.take() else 1
        exponent = self.take()
        small = exponent.isdecimal() and len(exponent) < 4 and (int(exponent) <= 40 or len(value[0]) == 1)
        need(small, f"{self.text!r}: {exponent!r} is not a small integer power")
        if closing:
            self.take(")")
        out: list[Poly] = [{(): Fraction(1)}]
        for _ in range(int(exponent)):
            out = self.multiply(out, value)
        return self.invert(out) if sign < 0 else out

    def atom(self) -> list[Poly]:
        token = self.take()
        if token == "(":
            value = self.sum()
            self.take(")")
            return value
        if token.isdecimal():
            return [{(): Fraction(int(token))} if int(token) else {}]
        need(re.fullmatch(r"[A-Za-z_]\w*", token) is not None, f"{self.text!r}: unexpected {token!r}")
        if self.peek() == "(":
            return self.call(token)
        return [self.reader.factors.get(token) or {((token, 1),): Fraction(1)}]

    def call(self, name: str) -> list[Poly]:
        if name in self.reader.transparent:
            return self.atom()
        if name not in FUNCTIONS:  # an opaque cost such as C_f_tok(pi): an atom
            start = self.at
            while (token := self.take()) != ")":
                need(re.fullmatch(r"[A-Za-z_]\w*|[(,]", token) is not None, f"{self.text!r}: unexpected {token!r}")
            atom = name + "".join(self.tokens[start : self.at])
            return [self.reader.factors.get(atom) or {((atom, 1),): Fraction(1)}]
        need(name in ("log", "ceil_log", "Max", "Sum"), f"{self.text!r}: {name} is not supported in a proof")
        self.take("(")
        if name == "Sum":
            return [self.over_index()]
        arguments = [self.sum()]
        while self.peek() == ",":
            self.take()
            arguments.append(self.sum())
        self.take(")")
        if name == "Max":
            return [poly for argument in arguments for poly in argument]
        need(len(arguments) == 1, f"{self.text!r}: {name} takes one argument")
        return [getattr(self.reader, name)(poly) for poly in arguments[0]]

    def over_index(self) -> Poly:
        """The rest of ``Sum(body, (index, low, high))``."""
        known = set(self.reader.logs)
        body = self.sum()
        own = set(self.reader.logs) - known
        self.take(",")
        self.take("(")
        index = self.take()
        need(re.fullmatch(r"[A-Za-z]\w*", index) is not None, f"{self.text!r}: {index!r} is not an index")
        self.take(",")
        low = self.sum()
        self.take(",")
        high = self.sum()
        self.take(")")
        self.take(")")
        need(len(body) == len(low) == len(high) == 1, f"{self.text!r}: a Max in a sum")
        out = self.reader.sum_of(body[0], index, low[0], high[0])
        for gen in own:  # logs of the index mean nothing outside
            if Reader.over(index, self.reader.logs[gen]):
                del self.reader.logs[gen]
        return out


def powers_of(poly: Poly, gen: str) -> dict[int, Poly]:
    """The coefficients of a polynomial in one generator."""
    out: dict[int, Poly] = {}
    for mono, c in poly.items():
        power = dict(mono).get(gen, 0)
        need(power >= 0, f"a negative power of {gen}")
        out.setdefault(power, {})[tuple(x for x in mono if x[0] != gen)] = c
    return out


def substitute(poly: Poly, gen: str, value: Poly) -> Poly:
    """A generator replaced by a polynomial."""
    out: Poly = {}
    for power, part in powers_of(poly, gen).items():
        out = add(out, reduce(mul, [value] * power, part))
    return out


def power_sum(k: int, index: str) -> Poly:
    """The sum of t**k for t = 0, ..., index - 1, from index**(k + 1) = sum of C(k + 1, j)*(sum of t**j) over j <= k."""
    need(k < 40, f"{index}**{k} summed")
    sums: list[Poly] = []
    for j in range(k + 1):
        rest = add(*(scale(s, -math.comb(j + 1, i)) for i, s in enumerate(sums)))
        sums.append(scale(add({((index, j + 1),): Fraction(1)}, rest), Fraction(1, j + 1)))
    return sums[k]


# -- part 2: what may be used ------------------------------------------------------------------------------------------


def split(poly: Poly) -> Lowered:
    """Group by the powers of sizes: affine forms in logs, and apart from them the terms with several log factors."""
    groups: dict[Mono, Affine] = {}
    products: dict[tuple[Mono, Mono], Fraction] = {}
    for mono, c in poly.items():
        sizes = tuple(x for x in mono if not is_log(x[0]))
        logs = tuple(x for x in mono if is_log(x[0]))
        if sum(p for _, p in logs) > 1:
            products[sizes, logs] = c
        else:
            groups.setdefault(sizes, {})[logs[0][0] if logs else ""] = c
    return groups, products


def affine(poly: Poly) -> Affine:
    groups, products = split(poly)
    need(set(groups) <= {()} and not products, f"{poly_text(poly)} is not affine in logs")
    return groups.get((), {})


def combine(*parts: tuple[Fraction | int, Affine]) -> Affine:
    out: Affine = {}
    for k, form in parts:
        for gen, c in form.items():
            out[gen] = out.get(gen, Fraction(0)) + k * c
    return out


def form_of(data: Mapping[str, str]) -> Affine:
    need(all(not gen or is_log(gen) for gen in data), "a form has a generator that is not a log")
    return {gen: number(c) for gen, c in data.items()}


class Facts:
    """Domain and hypotheses of one certificate.

    ``cons`` are affine forms in logs known to be >= 0 (or, when flagged, >= minus an unknown constant); every log
    generator is >= 0 as well.  ``powers`` are monomials in sizes known to be <= an unknown constant.
    """

    def __init__(self, data: Node, refute: bool = False) -> None:
        """Sums of logs are bounded so that f grows and g shrinks, or the other way round where f is to exceed g."""
        self.reader = Reader(data["factors"], least=data.get("least"))
        way = (-1 if refute else 1) if data["claim"] in ("order", "at_most") else 0
        self.f, self.g = (
            [self.reader.bounded(p, side) for p in self.reader.read(data[name])]
            for name, side in (("f", way), ("g", -way))
        )
        self.hyps = [(self.poly(h["left"]), self.poly(h["right"])) for h in data.get("hypotheses", ())]
        self.cons: dict[str, tuple[Affine, bool]] = {}
        self.powers: dict[str, Mono] = {}
        self.least = dict(data.get("least", {}))
        for name, value in self.least.items():
            need(isinstance(value, int) and value >= 1, f"least {name} = {value!r} is not a positive integer")
            log = affine(self.reader.log(self.poly(name)))
            self.cons[f"{name} >= {value}"] = combine((1, log), (-1, {"": log_bounds(value)[0]})), False
        for gen, arg in sorted(self.reader.logs.items()):
            self.bound_log(gen, arg)
        for i, hyp in enumerate(self.hyps):
            if self.is_power(hyp) and len(self.candidates(hyp)) == 1:
                self.assume(i, self.candidates(hyp)[0])

    def bound_log(self, gen: str, arg: Poly) -> None:
        one: Affine = {gen: Fraction(1)}
        if gen.startswith("ceil_log"):
            log = affine(self.reader.log(arg))
            self.cons[f"{gen} from below"] = combine((1, one), (-1, log)), False
            if any(c >= 1 and all(p > 0 for _, p in m) for m, c in arg.items()):
                self.cons[f"{gen} from above"] = combine((1, log), (-1, one), (1, {"": Fraction(1)})), False
            return
        low, high = log_bounds(int(sum(arg.values())))
        top = {g: max(dict(m).get(g, 0) for m in arg) for m in arg for g, _ in m}
        self.cons[f"{gen} from below"] = combine((1, one), (-1, {"": low})), False
        self.cons[f"{gen} from above"] = (
            {**{f"log({g})": Fraction(p) for g, p in top.items()}, "": high, gen: Fraction(-1)},
            False,
        )
        for mono in sorted(m for m in arg if m):
            bound = combine((1, one), (-1, affine(self.reader.log({mono: arg[mono]}))))
            self.cons[f"{gen} from {mono_text(mono)}"] = bound, False

    @staticmethod
    def is_power(hyp: tuple[Poly, Poly]) -> bool:
        """A hypothesis about sizes: no logs, positive terms on the left; negative ones on the right are dropped."""
        no_logs = not any(is_log(g) for side in hyp for m in side for g, _ in m)
        return no_logs and all(c > 0 for c in hyp[0].values())

    @staticmethod
    def candidates(hyp: tuple[Poly, Poly]) -> list[Mono]:
        """Monomials one of which, times a constant, is >= the left side at each point (from 1 + right)."""
        out = sorted(m for m, c in hyp[1].items() if c > 0)
        return out if any(all(p > 0 for _, p in m) for m in out) else [*out, ()]

    def assume(self, index: int, right: Mono) -> None:
        for mono in self.hyps[index][0]:
            ratio = times(mono, right, -1)
            name = f"hypothesis {index}: {mono_text(mono)}"
            self.powers[name] = ratio
            self.cons[name] = {f"log({g})": Fraction(-p) for g, p in ratio}, True

    def cases(self, on: str, g: list[Poly]) -> list[tuple[Any, list[Poly]]]:
        """Settings that together cover the domain, each with the right side to be used there."""
        if on.startswith("hypothesis "):
            return [(case, g) for case in self.hypothesis_cases(int(on.split()[1]))]
        if on.startswith("size "):
            return [(case, g) for case in self.size_cases(on)]
        return self.max_cases(g) if on == "max" else [(case, g) for case in self.sum_cases(on)]

    def hypothesis_cases(self, index: int) -> Iterator[Any]:
        """Which term of the right side is the largest."""
        need(self.is_power(self.hyps[index]), f"hypothesis {index} is not about sizes")
        for mono in self.candidates(self.hyps[index]):
            case = self.copy()
            case.assume(index, mono)
            yield case

    def size_cases(self, on: str) -> Iterator[Any]:
        """x <= 2 or x >= 2."""
        mono = self.mono(on.removeprefix("size "))
        log = affine(self.reader.log({mono: Fraction(1)}))
        for way in (-1, 1):
            case = self.copy()
            case.cons[on] = combine((way, log), (-way, {"": Fraction(1)})), False
            if way < 0:
                case.powers[on] = mono
            yield case

    def max_cases(self, g: list[Poly]) -> list[tuple[Any, list[Poly]]]:
        """Which member of the maximum is the largest; its margin is used where it is one size monomial times a form."""
        out = []
        for poly in g:
            case = self.copy()
            for i, other in enumerate(g):
                groups, products = split(add(poly, scale(other, -1)))
                if len(groups) == 1 and not products:
                    case.cons[f"member {i}"] = next(iter(groups.values())), False
            out.append((case, [poly]))
        return out

    def sum_cases(self, on: str) -> Iterator[Any]:
        """Which power product is the largest in a sum whose log occurs."""
        need(on in self.reader.logs and on.startswith("log("), f"no cases on {on}")
        arg = self.reader.logs[on]
        high = log_bounds(int(sum(arg.values())))[1]
        for mono in sorted(arg):
            case = self.copy()
            for term in arg:
                ratio = times(term, mono, -1)
                case.powers[f"{on}: {mono_text(term)}"] = ratio
                case.cons[f"{on}: {mono_text(term)}"] = {f"log({g})": Fraction(-p) for g, p in ratio}, False
            case.cons[on] = {**{f"log({g})": Fraction(p) for g, p in mono}, "": high, on: Fraction(-1)}, False
            yield case

    def bounded(self) -> set[str]:
        """Sizes that the hypotheses keep below a constant (``E_a = O(1)``, directly or in steps)."""
        out: set[str] = set()
        for _ in self.hyps:
            for left, right in self.hyps:
                if out.issuperset(s for m in right for g, _ in m for s in self.inside(g)):
                    out |= {s for m, c in left.items() if c > 0 for g, p in m if p > 0 for s in self.inside(g)}
        return out

    def inside(self, gen: str) -> set[str]:
        """The sizes in a generator."""
        if not is_log(gen):
            return {gen}
        return {s for m in self.reader.logs.get(gen) or [((gen[4:-1], 1),)] for s, _ in m}

    def poly(self, text: str) -> Poly:
        """A polynomial without sums of logs, which have bounds only."""
        return self.reader.bounded(self.reader.single(text), 0)

    def mono(self, text: str, of_logs: bool = False) -> Mono:
        """A monomial of sizes, or a product of logs."""
        poly = self.poly(text)
        need(len(poly) == 1 and set(poly.values()) == {Fraction(1)}, f"{text!r} is not a monomial")
        need(all(is_log(gen) == of_logs for gen, _ in next(iter(poly))), f"{text!r} mixes sizes and logs")
        return next(iter(poly))

    def copy(self) -> Any:
        other = object.__new__(type(self))
        other.__dict__ = {**self.__dict__, "cons": dict(self.cons), "powers": dict(self.powers)}
        return other


# -- part 3: the proof kernel ------------------------------------------------------------------------------------------


class Setting(Facts):
    """The rules of proof."""

    def nonneg(self, form: Affine, multipliers: Node, loose: bool = False) -> None:
        """``form >= 0``: what remains after subtracting multiples of constraints has no negative coefficient."""
        rest = dict(form)
        for name, text in multipliers.items():
            need(name in self.cons, f"no constraint {name!r}")
            con, unknown = self.cons[name]
            k = number(text)
            need(k >= 0, f"negative multiplier for {name}")
            need(loose or not unknown, f"{name} holds only up to a constant")
            rest = combine((1, rest), (-k, con))
        bad = sorted(gen for gen, c in rest.items() if c < 0)
        need(not bad, f"not shown nonnegative: coefficient of {bad[0] if bad else ''!r}")

    def lower(self, poly: Poly, spec: Node, exact: Iterable[str] = ()) -> Lowered:
        """A lower bound of ``poly`` all of whose groups are >= 0.

        A transport moves ``form >= 0`` from the groups X^b to X^c, where the weighted mean of the b is >= c (equal for
        the symbols in ``exact``, which may be below 1): ``form*X^c <= sum of w_b*form*X^b``.
        """
        groups, products = split(poly)
        for move in spec.get("transports", ()):
            form = form_of(move["form"])
            self.nonneg(form, move.get("nonneg", {}))
            target = self.mono(move["to"])
            weights = {self.mono(m): number(w) for m, w in move["from"].items()}
            need(all(w > 0 for w in weights.values()) and sum(weights.values()) == 1, "weights do not sum to 1")
            mean = weigh(weights.items())
            for sym in {*mean, *(s for s, _ in target)}:
                gap = mean.get(sym, 0) - dict(target).get(sym, 0)
                need(gap == 0 if sym in exact else gap >= 0, f"transport to {mono_text(target)}: exponent of {sym}")
            groups[target] = combine((1, groups.get(target, {})), (1, form))
            for mono, w in weights.items():
                groups[mono] = combine((1, groups.get(mono, {})), (-w, form))
        for mono, form in groups.items():
            self.nonneg(form, spec.get("nonneg", {}).get(mono_text(mono), {}))
        need(all(c > 0 for c in products.values()), "a negative product of logs")
        return groups, products

    @staticmethod
    def average(members: Sequence[Poly], weights: Sequence[str]) -> Poly:
        """A convex combination of the members: a lower bound of their maximum."""
        values = [number(w) for w in weights]
        need(len(values) == len(members) and min(values) >= 0 and sum(values) == 1, "not a convex combination")
        return add(*(scale(m, w) for m, w in zip(members, values, strict=True) if w))

    def positive(self, g: list[Poly], spec: Node) -> None:
        """``g >= 0`` on the domain, and with a floor ``g >= c > 0``."""
        groups, _ = self.lower(self.average(g, spec["combine"]), spec.get("lower", {}))
        floor = spec.get("floor")
        if floor is not None:
            mono = self.mono(floor["group"])
            need(all(p > 0 for _, p in mono) and number(floor["value"]) > 0, "the floor is not one")
            self.nonneg(
                combine((1, groups[mono]), (-number(floor["value"]), {"": Fraction(1)})), floor.get("nonneg", {})
            )

    def prove(self, node: Node, f: Poly, boost: Mapping[str, Fraction], g: list[Poly]) -> None:
        """``f * (product of symbol**power over boost) = O(g)``, where g >= 0 is known."""
        rule = node["rule"]
        if rule == "bound":
            self.bound(node, f, boost, g)
        elif rule == "chain":  # left = O(right), right = O(g), f = O(g + left)
            left, right = self.hyps[int(node["hypothesis"])]
            self.prove(node["right"], right, {}, g)
            self.prove(node["rest"], f, boost, [add(m, left) for m in g])
        else:
            need(rule == "cases", f"unknown rule {rule!r}")
            cases = self.cases(node["on"], g)
            need(len(cases) == len(node["branches"]), f"cases on {node['on']}: {len(cases)} branches are needed")
            for (case, members), branch in zip(cases, node["branches"], strict=True):
                case.prove(branch, f, boost, members)

    def bound(self, node: Node, f: Poly, boost: Mapping[str, Fraction], g: list[Poly]) -> None:
        """Each group X^a*form of f: ``form <= sum of k*u + multiples of constraints``, each ``X^a*u = O(1 + g)``."""
        atoms, products = self.lower(add({(): Fraction(1)}, self.average(g, node["combine"])), node.get("lower", {}))
        groups, logs = split(f)
        for mono, form in groups.items():
            self.group(mono, boost, form, node.get("groups", {}).get(mono_text(mono), {}), (atoms, products))
        for (mono, gens), c in logs.items():
            if c > 0:
                forms = {gen: {gen: Fraction(1)} for gen, _ in gens}
                spec = node["products"][f"{mono_text(mono)} {mono_text(gens)}"]
                self.mean(mono, boost, dict(gens), forms, spec, (atoms, products))

    def group(self, mono: Mono, boost: Mapping[str, Fraction], form: Affine, entry: Node, atoms: Lowered) -> None:
        """``X^a*form = O(1 + g)``: form is under a sum of usable forms u, less multiples of constraints.

        A form u is usable when ``X^a*u`` lies under a mean of atoms, or when it is the left side of a hypothesis in
        logs and ``X^a*(right side)`` and ``X^a`` are themselves O(1 + g).
        """
        total = combine((-1, form))
        loose = False  # is X^a itself O(1 + g)?
        for use in entry.get("uses", ()):
            k = number(use["times"])
            need(k >= 0, "negative multiple")
            if "hypothesis" in use:
                left, right = self.hyps[int(use["hypothesis"])]
                u = affine(left)
                self.group(mono, boost, affine(right), use["right"], atoms)
            else:
                u = form_of(use["form"])
                constant = not any(u[gen] for gen in u if gen)
                loose = loose or constant
                self.mean(mono, boost, {} if constant else {"u": 1}, {"u": u}, use, atoms)
            total = combine((1, total), (k, u))
        need(loose or not any("hypothesis" in use for use in entry.get("uses", ())), "a hypothesis needs X^a = O(g)")
        self.nonneg(total, entry.get("nonneg", {}), loose)

    def mean(self, mono: Mono, boost: Mapping[str, Fraction], target: Mapping[str, int], forms: Mapping[str, Affine],
             spec: Node, lowered: Lowered) -> None:  # fmt: skip
        """``X^a * product of forms**target`` lies under a weighted geometric mean of atoms of 1 + g.

        Hypotheses divide X^a by powers of monomials that are <= a constant.  Powers of a form that the atoms do not
        supply are absorbed: a log is below every positive power, so each of its symbols needs exponent to spare.
        """
        atoms, products = lowered
        weights: list[tuple[Mono, Fraction]] = []
        missing: dict[str, Fraction] = {label: Fraction(p) for label, p in target.items()}
        for part in spec["mean"]:
            weight = number(part.get("weight", "1"))
            need(weight > 0, "a weight is not positive")
            atom, logs, label = self.mono(part["atom"]), part.get("logs"), part.get("label")
            supplied: dict[str, int] = {}
            if logs is not None:
                gens = self.mono(logs, of_logs=True)
                need(products.get((atom, gens), Fraction(0)) > 0, f"no product {part['atom']} {logs}")
                supplied = dict(gens)
            elif atom or label or not part.get("one"):
                value, form = number(part.get("scale", "1")), forms[label] if label else {"": Fraction(1)}
                need(value > 0 and atom in atoms, f"no atom {part['atom']}")
                self.nonneg(combine((1, atoms[atom]), (-value, form)), part.get("nonneg", {}))
                supplied = {label: 1} if label else {}
            weights.append((atom, weight))
            for name, power in supplied.items():
                missing[name] = missing.get(name, Fraction(0)) - weight * power
        need(sum(w for _, w in weights) == 1, "weights do not sum to 1")
        need(all(p >= 0 for p in missing.values()), "the atoms have more logs than the term")
        strict = {sym for name, p in missing.items() if p > 0 for sym in self.symbols(forms[name])}
        want = weigh(
            [(mono, Fraction(1)), *((self.powers[n], -nonnegative(k)) for n, k in spec.get("powers", {}).items())]
        )
        have = weigh(weights)
        for sym in {*want, *have, *boost, *strict}:
            gap = have.get(sym, 0) - want.get(sym, 0) - boost.get(sym, 0)
            need(gap > 0 if sym in strict else gap >= 0, f"{mono_text(mono)}: exponent of {sym} is not covered")

    def symbols(self, form: Affine) -> set[str]:
        """The sizes that bound the form from above: those of the logs with positive coefficient."""
        return {sym for gen, c in form.items() if gen and c > 0 for sym in self.inside(gen)}


def weigh(weights: Iterable[tuple[Mono, Fraction]]) -> dict[str, Fraction]:
    """The weighted sum of exponent vectors."""
    out: dict[str, Fraction] = {}
    for mono, w in weights:
        for sym, p in mono:
            out[sym] = out.get(sym, Fraction(0)) + w * p
    return out


def nonnegative(text: object) -> Fraction:
    value = number(text)
    need(value >= 0, f"{text!r} is negative")
    return value


# -- part 4: claims and their certificates -----------------------------------------------------------------------------


def _order(cert: Node) -> None:
    setting = Setting(cert)
    setting.positive(setting.g, cert["positive"])
    need(len(cert["proofs"]) == len(setting.f), "one proof per member of f is needed")
    for poly, node in zip(setting.f, cert["proofs"], strict=True):
        setting.prove(node, poly, {}, setting.g)


def _leading(cert: Node) -> None:
    """f <= g + rest and g <= f + rest, each piece q of the rest with ``q * x**e = O(g)`` or ``q * log(x) = O(g)``."""
    setting = Setting(cert)
    need(cert["positive"].get("floor") is not None, "leading order needs g bounded below")
    setting.positive(setting.g, cert["positive"])
    bounded = setting.bounded()
    for side, (mine, others) in {"upper": (setting.f, setting.g), "lower": (setting.g, setting.f)}.items():
        need(len(cert[side]) == len(mine), f"{side}: one entry per member is needed")
        for poly, entry in zip(mine, cert[side], strict=True):
            pieces = [setting.poly(p["text"]) for p in entry["pieces"]]
            gap = add(*pieces, others[int(entry["against"])], scale(poly, -1))
            need(all(c >= 0 for c in gap.values()), f"{side}: the pieces do not cover the difference")
            for piece, data in zip(pieces, entry["pieces"], strict=True):
                need(bool(data["directions"]), f"{data['text']} fades in no direction")
                for way in data["directions"]:
                    symbol = setting.mono(way["symbol"])
                    need(all(p > 0 for _, p in symbol), f"{way['symbol']} is not a product of sizes")
                    need(not bounded.issuperset(s for s, _ in symbol), f"{way['symbol']} cannot grow")
                    if way.get("log"):
                        setting.prove(
                            way["proof"], mul(piece, setting.reader.log({symbol: Fraction(1)})), {}, setting.g
                        )
                        continue
                    power = number(way["power"])
                    need(power > 0, "a direction needs a positive power")
                    setting.prove(way["proof"], piece, {s: p * power for s, p in symbol}, setting.g)


def _equal(cert: Node) -> None:
    setting = Setting(cert)
    same = {frozenset(p.items()) for p in setting.f} == {frozenset(p.items()) for p in setting.g}
    need(same, "the two sides have different normal forms")


def _at_most(cert: Node) -> None:
    """f <= g: each member of f under a convex combination of g's, after shifting sizes by their lower bounds."""
    setting = Setting(cert)
    need(not setting.hyps and len(cert["proofs"]) == len(setting.f), "one proof per member of f, without hypotheses")
    for poly, node in zip(setting.f, cert["proofs"], strict=True):
        gap = add(setting.average(setting.g, node["combine"]), scale(poly, -1))
        shift = node.get("shift", {})
        for sym, value in shift.items():
            need(
                1 <= value <= setting.least.get(sym, 1) and sym not in setting.reader.factors,
                f"{sym} may be below {value}",
            )
        setting.lower(shifted(gap, shift), node.get("lower", {}), exact=shift)


def shifted(poly: Poly, shift: Mapping[str, int]) -> Poly:
    """The polynomial times a monomial that clears negative powers, with x replaced by x + shift for each shifted x."""
    lowest = {g: min(dict(m).get(g, 0) for m in poly) for m in poly for g, _ in m if not is_log(g)}
    clear = tuple(sorted((g, -p) for g, p in lowest.items() if p < 0))
    out: Poly = {}
    for mono, c in poly.items():
        term: Poly = {(): c}
        for gen, power in times(mono, clear):
            base: Poly = {((gen, 1),): Fraction(1)}
            if gen in shift:
                base[()] = Fraction(shift[gen])
            for _ in range(power):
                term = mul(term, base)
        out = add(out, term)
    return out


CLAIMS: dict[str, Callable[[Node], None]] = {"order": _order, "leading": _leading, "equal": _equal, "at_most": _at_most}


def check_certificate(cert: Node) -> None:
    """Raise `Rejected` unless the certificate proves its claim."""
    _guarded(lambda: CLAIMS[cert["claim"]](cert), "certificate")


def _guarded(check: Callable[[], None], what: str) -> None:
    """Malformed data is a rejection like any other."""
    try:
        check()
    except Rejected:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, ZeroDivisionError) as error:
        raise Rejected(f"malformed {what}: {type(error).__name__} {error}") from error


# -- part 5: witnesses -------------------------------------------------------------------------------------------------

Key = tuple[
    int, ...
]  # growth 2**(a*n**p + ... + b*n) * n**k * log(n)**j as (a, ..., b, k, j); n runs over powers of two
Growth = dict[Key, Fraction]


class Family:
    """Sizes along a family: each free factor is ``2**(c + e*n + ...) * n**k``; unlisted ones are 1.

    Sums are bounded from both sides by leading terms with exact coefficients, so comparisons hold for all large n.
    """

    def __init__(self, reader: Reader, free: Node) -> None:
        self.reader = reader
        self.powers = {sym: int(data.get("n", 0)) for sym, data in free.items()}
        self.logs = {sym: {int(p): int(e) for p, e in data.get("log", {}).items()} for sym, data in free.items()}
        for sym in free:
            need(sym not in reader.factors, f"{sym} is not a free factor")
            need(
                min([self.powers[sym], *self.logs[sym].values(), *self.logs[sym]], default=0) >= 0,
                f"{sym} may fall below 1",
            )
        self.top = max((p for log in self.logs.values() for p in log), default=0)
        self.zero: Key = (0,) * (self.top + 2)

    def exponent(self, mono: Mono) -> tuple[int, dict[int, int]]:
        """Power of n, and exponent of 2 as a polynomial in n, of a product of sizes."""
        log: dict[int, int] = {}
        for sym, q in mono:
            for p, e in self.logs.get(sym, {}).items():
                log[p] = log.get(p, 0) + e * q
        return sum(self.powers.get(sym, 0) * q for sym, q in mono), log

    def size(self, mono: Mono) -> Growth:
        power, log = self.exponent(mono)
        return {(*(log.get(p, 0) for p in range(self.top, 0, -1)), power, 0): Fraction(2) ** log.get(0, 0)}

    def log_of_key(self, key: Key) -> Growth:
        """log2 of a growth without log factors: a polynomial in n, plus k*log(n)."""
        out: Growth = {}
        for i, e in enumerate((*key[: self.top], key[-2])):
            log_of = [0] * len(self.zero)
            log_of[-2 if i < self.top else -1] = self.top - i if i < self.top else 1
            out = add_growth(out, {tuple(log_of): Fraction(e)})
        return out

    def gen(self, gen: str) -> tuple[Growth, Growth]:
        """Lower and upper bound of a log generator, nonnegative for large n."""
        arg = self.reader.logs.get(gen) or {((gen[4:-1], 1),): Fraction(1)}
        if gen.startswith("ceil_log"):
            low, high = self.bounds(self.reader.log(arg))
            high = add_growth(high, {self.zero: Fraction(1)})
        else:
            value = add_growth(*(scale(self.size(m), c) for m, c in arg.items()))
            key = max(value)
            low = add_growth(self.log_of_key(key), {self.zero: log_bounds(math.floor(value[key]))[0]})
            high = add_growth(self.log_of_key(key), {self.zero: log_bounds(math.ceil(sum(value.values())))[1]})
        return (low if sign(low) > 0 else {}), (high if sign(high) > 0 else {})

    def bounds(self, poly: Poly) -> tuple[Growth, Growth]:
        parts: tuple[list[Growth], list[Growth]] = ([], [])
        for mono, c in poly.items():
            for upper in (0, 1):
                term: Growth = scale(self.size(tuple(x for x in mono if not is_log(x[0]))), c)
                for gen, power in mono:
                    for _ in range(power if is_log(gen) else 0):
                        term = mul_growth(term, self.gen(gen)[upper if c > 0 else 1 - upper])
                parts[upper].append(term)
        return add_growth(*parts[0]), add_growth(*parts[1])

    def least(self, members: list[Poly]) -> tuple[Key, Fraction]:
        """A lower bound of the leading term of the maximum of the members."""
        return max(lead(self.bounds(poly)[0], self.zero) for poly in members)

    def most(self, members: list[Poly]) -> tuple[Key, Fraction]:
        """An upper bound of the leading term of the maximum of the members."""
        return max(lead(self.bounds(poly)[1], self.zero) for poly in members)

    def value(self, mono: Mono, n: int) -> int:
        power, log = self.exponent(mono)
        bits = sum(e * n**p for p, e in log.items())
        need(bits <= 100_000 and n.bit_length() * power <= 100_000, "a size is too large to write down")
        return int(2**bits * n**power)

    def text(self, mono: Mono) -> str:
        """``128*n**2*2**(3*n)``."""
        power, log = self.exponent(mono)
        pieces = [str(2 ** log[0])] if log.get(0) else []
        pieces += [] if not power else ["n" if power == 1 else f"n**{power}"]
        above = [
            f"{e}*n**{p}".removeprefix("1*").removesuffix("**1")
            for p, e in sorted(log.items(), reverse=True)
            if p and e
        ]
        pieces += [] if not above else [f"2**{above[0]}" if above == ["n"] else f"2**({' + '.join(above)})"]
        return "*".join(pieces) or "1"


def add_growth(*parts: Growth) -> Growth:
    out: Growth = {}
    for part in parts:
        for key, c in part.items():
            out[key] = out.get(key, Fraction(0)) + c
    return {k: c for k, c in out.items() if c}


def mul_growth(a: Growth, b: Growth) -> Growth:
    return add_growth(
        *({tuple(x + y for x, y in zip(k, q, strict=True)): c * e for q, e in b.items()} for k, c in a.items())
    )


def sign(growth: Growth) -> int:
    return 0 if not growth else 1 if growth[max(growth)] > 0 else -1


def lead(growth: Growth, zero: Key) -> tuple[Key, Fraction]:
    """The leading term, with (zero, 0) for anything that is not positive for large n."""
    return (max(growth), growth[max(growth)]) if sign(growth) > 0 else (tuple(-1 for _ in zero), Fraction(0))


def key_text(key: Key) -> str:
    """``2**(3*n**2 + n)*n**2*log(n)``, or ``1`` for anything bounded."""
    if key <= (0,) * len(key):
        return "1"
    top = len(key) - 2
    above = " + ".join(f"{e}*n**{top - i}".removeprefix("1*").removesuffix("**1") for i, e in enumerate(key[:top]) if e)
    powers = [name if p == 1 else f"{name}**{p}" for name, p in (("n", key[-2]), ("log(n)", key[-1])) if p]
    return "*".join(([f"2**({above})"] if above else []) + powers)


def value_at(poly: Poly, sizes: Mapping[str, int], logs: Mapping[str, Poly]) -> tuple[Fraction, Fraction]:
    """Lower and upper value at integer sizes; equal when every log is of a power of two."""
    out = [Fraction(0), Fraction(0)]
    for mono, c in poly.items():
        for upper in (0, 1):
            term = c
            for gen, power in mono:
                if not is_log(gen):
                    term *= Fraction(sizes.get(gen, 1)) ** power
                    continue
                arg = value_at(logs[gen], sizes, logs)[0] if gen in logs else Fraction(sizes.get(gen[4:-1], 1))
                if gen.startswith("ceil_log"):
                    term *= Fraction(max(0, (math.ceil(arg) - 1).bit_length())) ** power
                else:
                    need(arg.denominator == 1 and arg >= 1, f"{gen} at a size that is no integer")
                    term *= log_bounds(int(arg))[upper if c > 0 else 1 - upper] ** power
            out[upper] += term
    return out[0], out[1]


def maximum(members: list[Poly], sizes: Mapping[str, int], logs: Mapping[str, Poly]) -> tuple[Fraction, Fraction]:
    values = [value_at(poly, sizes, logs) for poly in members]
    return max(low for low, _ in values), max(high for _, high in values)


def _check_sizes(setting: Setting, witness: Node, free: Mapping[str, int]) -> None:
    """The named sizes and both values at the illustrating point are what the free factors give."""
    for name, text in witness["sizes"].items():
        value = value_at(setting.poly(name), free, {})[0]
        need(value == int(text), f"size {name} is {value}, not {text}")
    for name, members in ((witness["f_is"], setting.f), (witness["g_is"], setting.g)):
        value = maximum(members, free, setting.reader.logs)[0]
        need(value == number(witness[name]), f"{name} is {value} at these sizes, not {witness[name]}")


def _family_witness(witness: Node) -> None:
    setting = Setting(witness, refute=True)
    family = Family(setting.reader, witness["free"])
    for name, text in witness["family"].items():
        need(family.text(setting.mono(name)) == text, f"family: {name} is not {text}")
    n = int(witness["n"])
    need(n >= 2 and n & (n - 1) == 0, "n is a power of two")
    for name, value in setting.least.items():
        need(family.value(setting.mono(name), 2) >= value, f"{name} >= {value} fails")
    for left, right in setting.hyps:
        bound = max(family.zero, family.least([right])[0])
        need(family.most([left])[0] <= bound, f"the family breaks the hypothesis on {poly_text(left)}")
    low, high = family.least(setting.f), family.most(setting.g)
    need(witness["degrees"] == {"f": key_text(low[0]), "g": key_text(high[0])}, "degrees are not as written")
    if witness["claim"] == "order":
        need(low[0] > max(family.zero, high[0]), "f does not outgrow g")
    else:
        every = {s for poly in [*setting.f, *setting.g] for mono in poly for g, _ in mono for s in setting.inside(g)}
        for sym in sorted(every - setting.bounded()):
            need(max(family.size(((sym, 1),))) > family.zero, f"{sym} does not grow")
        need(max(low[0], high[0]) > family.zero, "neither side grows")
        need(low > high or family.most(setting.f) < family.least(setting.g), "the ratio may tend to 1")
    _check_sizes(setting, witness, {s: family.value(((s, 1),), n) for s in witness["free"]})


def _point_witness(witness: Node) -> None:
    setting = Setting(witness, refute=True)
    need(not setting.hyps, "a point refutes no claim under hypotheses")
    free = {sym: int(text) for sym, text in witness["free"].items()}
    need(all(v >= 1 and sym not in setting.reader.factors for sym, v in free.items()), "a free factor is below 1")
    for name, value in setting.least.items():
        need(value_at(setting.poly(name), free, {})[0] >= value, f"{name} >= {value} fails")
    f, g = (maximum(side, free, setting.reader.logs) for side in (setting.f, setting.g))
    need(f[0] > g[1] or (witness["claim"] == "equal" and f[1] < g[0]), "the claim holds at this point")
    _check_sizes(setting, witness, free)


def check_witness(witness: Node) -> None:
    """Raise `Rejected` unless the witness refutes its claim."""
    kinds = {"order": _family_witness, "leading": _family_witness, "equal": _point_witness, "at_most": _point_witness}
    _guarded(lambda: kinds[witness["claim"]](witness), "witness")


# -- part 6: verdict files ---------------------------------------------------------------------------------------------


def proofs_of(data: object) -> list[Node]:
    """All certificates in a cell's ``certificate``, however they are nested: the objects that state a claim."""
    if isinstance(data, dict):
        return [data] if "claim" in data else [p for value in data.values() for p in proofs_of(value)]
    return [p for value in data for p in proofs_of(value)] if isinstance(data, list) else []


def same_text(a: str, b: str, reads: Mapping[str, str]) -> bool:
    """Equal normal forms, with S + T read as m, ``O(x)`` as x and what ``reads`` spells out (named costs, say)."""

    def normal(text: str, factors: Mapping[str, Poly]) -> set[frozenset[tuple[Mono, Fraction]]]:
        reader = Reader({}, transparent=("O",))
        reader.factors = dict(factors)
        reader.factors |= {name: reader.single(value) for name, value in reads.items()}
        return {frozenset(poly.items()) for poly in reader.read(text)}

    sequence: Poly = {(("m", 1),): Fraction(1), (("S", 1),): Fraction(-1)}
    for factors in ({}, {"T": sequence}):
        try:
            if normal(a, factors) == normal(b, factors):
                return True
        except Rejected:  # a quotient by S + T in the first reading, a log of T alone in the second
            continue
    return False


def _tie(cell: Node, data: Node, *derived: str) -> set[str]:
    """Which side f is: a claim must be about this cell's two expressions, in its domain, under its hypotheses.

    Where the two are the same expression f is either.
    """
    printed, reads = cell["printed_expr"], cell.get("reads") or {}
    need(all("(" in name for name in reads), "only named costs can be spelled out")
    in_force = [*cell["hypotheses"], *(cell.get("regime_bounds") or ())]
    for hyp in data.get("hypotheses", ()):
        need(hyp in in_force, f"the hypothesis {hyp} is not in force")
    need(all(data[key] == cell["domain"][key] for key in ("factors", "least")), "another domain")
    ways = [way for d in derived for way in (("derived", d, printed), ("printed", printed, d))]
    sides = {name for name, f, g in ways if same_text(data["f"], f, reads) and same_text(data["g"], g, reads)}
    need(bool(sides), "the claim does not relate the cell's derived and printed expressions")
    return sides


def check_cell(cell: Node) -> None:
    """Everything the cell carries checks, and it carries what its verdict needs.

    ``rescued`` is the derived expression under a further assumption that rescues the claim; proofs may be about it.
    ``readings`` are the same claim for other models.
    """
    for reading in cell.get("readings") or ():
        check_cell(reading)
    proofs, witness, verdict = proofs_of(cell.get("certificate")), cell.get("witness"), cell["verdict"]
    claims: set[tuple[str, str]] = set()
    for proof in proofs:
        rescued = [cell["rescued"]] if cell.get("rescued") and cell["verdict"] == "CONDITIONAL" else []
        claims |= {(proof["claim"], side) for side in _tie(cell, proof, cell["derived"], *rescued)}
        check_certificate(proof)
    if witness:
        need(witness["f_is"] in _tie(cell, witness, cell["derived"]), "the witness takes one side for the other")
        check_witness(witness)
    conditions = any(p.get("hypotheses") for p in proofs) or bool((cell.get("certificate") or {}).get("assuming"))
    upper = {("order", "derived"), ("at_most", "derived"), ("equal", "derived"), ("equal", "printed")}
    enough = {
        "EQUAL": any(c == "equal" for c, _ in claims),
        "LEADING": any(c == "leading" for c, _ in claims),
        "TIGHT": {("order", "derived"), ("order", "printed")} <= claims,
        "UPPER": bool(claims & upper),
        "CONDITIONAL": bool(proofs) and conditions and bool(witness),
        "REFUTED": bool(witness) or cell.get("printed_expr") is None,
        "NOT_PRINTED": cell.get("printed") is None,
        "UNDECIDED": True,
    }
    need(verdict in enough, f"unknown verdict {verdict!r}")
    need(enough[verdict], f"the verdict {verdict} is not supported by what the cell carries")


def _named(cell: object) -> None:
    name = cell.get("id", "?") if isinstance(cell, dict) else "?"
    try:
        _guarded(lambda: check_cell(cell if isinstance(cell, dict) else {}), "cell")
    except Rejected as error:
        raise Rejected(f"{name}: {error}") from error


def check_file(path: str | Path) -> int:
    """Check every cell of a verdict file and return their number; `Rejected` names the first that fails."""
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    need(isinstance(data, dict) and isinstance(data.get("cells"), list), f"{path} has no list of cells")
    for cell in data["cells"]:
        _named(cell)
    return len(data["cells"])


def main(arguments: Sequence[str]) -> NoReturn:
    if len(arguments) != 1:
        sys.exit("usage: python checker.py verdicts.json")
    try:
        count = check_file(arguments[0])
    except (Rejected, OSError, ValueError, RecursionError) as error:
        sys.stderr.write(f"rejected: {error}\n")
        sys.exit(1)
    sys.stdout.write(f"{count} cells checked\n")
    sys.exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
