"""The normal form of every measure: sums of monomials in sizes and in logs of sizes.

A `Form` is a Laurent polynomial with exact rational coefficients whose generators are size symbols (``"d"``) and
logarithms to base 2 (`Log`).  The log of a monomial is expanded, so ``log(d**4*m/h)`` is ``4 log d + log m - log h``
and equality of forms is equality of functions on the sizes.  A `Max` is a finite set of forms read as their maximum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

Scalar = int | Fraction


@dataclass(frozen=True)
class Log:
    """``log2(arg)`` or its ceiling as a generator; ``arg`` is a symbol, an odd prime, or a sum that does not factor."""

    arg: Form
    ceil: bool = False

    @cached_property
    def text(self) -> str:
        return f"{'ceil_log' if self.ceil else 'log'}({self.arg.text})"

    def __str__(self) -> str:
        return self.text


Atom = str | Log
Monomial = tuple[tuple[Atom, int], ...]


def _multiply(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(((x, p) for x, p in powers.items() if p), key=_atom_key))


def _atom_key(item: tuple[Atom, int]) -> tuple[bool, str]:
    return isinstance(item[0], Log), str(item[0])


def _monomial_key(monomial: Monomial) -> tuple[int, list[tuple[bool, str, int]]]:
    """Highest degree in the sizes first, then by name: the order in which terms are printed."""
    degree = sum(power for atom, power in monomial if not isinstance(atom, Log))
    return -degree, [(isinstance(x, Log), str(x), -p) for x, p in monomial]


class Form:
    """An immutable sum of coefficient x monomial; build it from `constant`, `symbol` and arithmetic."""

    __slots__ = ("__dict__", "_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, Scalar]) -> None:
        self.terms: dict[Monomial, Fraction] = {m: Fraction(c) for m, c in terms.items() if c}
        self._hash: int | None = None

    # -- construction ---------------------------------------------------------------------------------------------
    @staticmethod
    def constant(value: Scalar) -> Form:
        return Form({(): value})

    @staticmethod
    def atom(atom: Atom, power: int = 1) -> Form:
        return Form({((atom, power),) if power else (): 1})

    @staticmethod
    def of(value: Form | Scalar) -> Form:
        return value if isinstance(value, Form) else Form.constant(value)

    # -- algebra --------------------------------------------------------------------------------------------------
    def __add__(self, other: Form | Scalar) -> Form:
        return total((self, Form.of(other)))

    __radd__ = __add__

    def __neg__(self) -> Form:
        return Form({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Form | Scalar) -> Form:
        return self + (-Form.of(other))

    def __rsub__(self, other: Form | Scalar) -> Form:
        return Form.of(other) - self

    def __mul__(self, other: Form | Scalar) -> Form:
        if not isinstance(other, Form):
            return Form({m: c * other for m, c in self.terms.items()})
        out: dict[Monomial, Fraction] = {}
        for m, c in self.terms.items():
            for n, k in other.terms.items():
                product = _multiply(m, n)
                out[product] = out.get(product, Fraction(0)) + c * k
        return Form(out)

    __rmul__ = __mul__

    def __truediv__(self, other: Form | Scalar) -> Form:
        if not isinstance(other, Form):
            return self * (Fraction(1) / Fraction(other))
        return self * other.inverse()

    def __pow__(self, power: int) -> Form:
        if power < 0:
            return self.inverse() ** -power
        out = Form.constant(1)
        for _ in range(power):
            out = out * self
        return out

    def inverse(self) -> Form:
        """1/self for a single monomial; a sum has no inverse in this class (ValueError)."""
        if len(self.terms) != 1:
            raise ValueError(f"cannot divide by {self.text}: a divisor must be a single product")
        ((monomial, c),) = self.terms.items()
        return Form({tuple((x, -p) for x, p in monomial): 1 / c})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Form) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __bool__(self) -> bool:
        return bool(self.terms)

    # -- reading --------------------------------------------------------------------------------------------------
    @property
    def ordered(self) -> list[tuple[Monomial, Fraction]]:
        return sorted(self.terms.items(), key=lambda item: _monomial_key(item[0]))

    @cached_property
    def text(self) -> str:
        """Expanded text form, ``24*B*L*d**2*m + ...``; deterministic."""
        pieces = []
        for monomial, c in self.ordered:
            factors = [f"{x}**{p}" if p > 1 else str(x) for x, p in monomial if p > 0]
            below = [f"{x}**{-p}" if p < -1 else str(x) for x, p in monomial if p < 0]
            head = abs(c.numerator)
            body = "*".join(([str(head)] if head != 1 or not factors else []) + factors)
            below = ([str(c.denominator)] if c.denominator != 1 else []) + below
            body += f"/({'*'.join(below)})" if len(below) > 1 else "".join(f"/{b}" for b in below)
            pieces.append((c < 0, body))
        if not pieces:
            return "0"
        first = ("-" if pieces[0][0] else "") + pieces[0][1]
        return first + "".join((" - " if negative else " + ") + body for negative, body in pieces[1:])

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of all sizes, inside logs too."""
        out: set[str] = set()
        for monomial in self.terms:
            for atom, _ in monomial:
                out |= atom.arg.symbols if isinstance(atom, Log) else {atom}
        return frozenset(out)

    @property
    def has_logs(self) -> bool:
        return any(isinstance(x, Log) for m in self.terms for x, _ in m)

    # -- substitution and value -----------------------------------------------------------------------------------
    def substitute(self, values: Mapping[str, Form]) -> Form:
        """Replace sizes by forms, in logs too; a size with negative power needs a single product as its value."""
        if not values or not (self.symbols & values.keys()):
            return self
        parts = []
        for monomial, c in self.terms.items():
            part = Form.constant(c)
            for atom, power in monomial:
                if isinstance(atom, Log):
                    arg = atom.arg.substitute(values)
                    base = ceil_log2(arg) if atom.ceil else log2(arg)
                else:
                    base = values.get(atom, Form.atom(atom))
                part = part * base**power
            parts.append(part)
        return total(parts)

    def evaluate(self, sizes: Mapping[str, Scalar]) -> Fraction:
        """Value at given sizes: exact when every log is of a power of two, else correct to about 2**-50 per log."""
        out = Fraction(0)
        for monomial, c in self.terms.items():
            value = c
            for atom, power in monomial:
                value *= _atom_value(atom, sizes) ** power
            out += value
        return out


def _atom_value(atom: Atom, sizes: Mapping[str, Scalar]) -> Fraction:
    if isinstance(atom, Log):
        value = atom.arg.evaluate(sizes)
        return Fraction(ceil_log2_of(value)) if atom.ceil else log2_of(value)
    if atom not in sizes:
        raise KeyError(f"no value for the symbol {atom!r}")
    return Fraction(sizes[atom])


def log2_of(value: Fraction) -> Fraction:
    """log2 of a positive rational: exact for powers of two, of any magnitude."""
    if value <= 0:
        raise ValueError(f"log of {value}: the argument must be positive")
    top, bottom = value.numerator, value.denominator
    if top & (top - 1) == 0 and bottom & (bottom - 1) == 0:
        return Fraction(top.bit_length() - bottom.bit_length())
    return Fraction(math.log2(top) - math.log2(bottom))


def ceil_log2_of(value: Fraction) -> int:
    """The least n >= 0 with 2**n >= value."""
    return max(0, (math.ceil(value) - 1).bit_length())


def total(forms: Iterable[Form]) -> Form:
    """Sum of many forms in one pass."""
    out: dict[Monomial, Fraction] = {}
    for form in forms:
        for monomial, c in form.terms.items():
            out[monomial] = out.get(monomial, Fraction(0)) + c
    return Form(out)


def symbol(name: str) -> Form:
    return Form.atom(name)


@lru_cache(maxsize=4096)
def is_sum(name: str) -> bool:
    """True for the symbol of a sum of logs (derive/sums.py); other names with brackets are opaque costs."""
    return name.startswith("Sum(")


def log2(form: Form) -> Form:
    """log to base 2 of a form: expanded over products, a generator of its own for a sum (content taken out)."""
    if len(form.terms) == 1:
        ((monomial, c),) = form.terms.items()
        if c < 0 or any(isinstance(x, Log) for x, _ in monomial):
            raise ValueError(f"log of {form.text}: the argument must be a positive product or sum of sizes")
        logs = [Form.atom(Log(Form.atom(x))) * p for x, p in monomial]
        return total([*logs, _log_of_integer(c.numerator), -_log_of_integer(c.denominator)])
    if not form.terms:
        raise ValueError("log of 0")
    content, rest = split_content(form)
    return log2(content) + Form.atom(Log(rest))


def _log_of_integer(n: int) -> Form:
    """By prime factors, so that log 9 is 2 log 3; a cofactor without small ones stays whole (it may be huge)."""
    twos = (n & -n).bit_length() - 1
    n, out = n >> twos, Form.constant(twos)
    for p in range(3, 1000, 2):
        while n % p == 0:
            n, out = n // p, out + Form.atom(Log(Form.constant(p)))
    return out + Form.atom(Log(Form.constant(n))) if n > 1 else out


def ceil_log2(form: Form) -> Form:
    """``ceil(log2(form))``, the depth of a balanced tree of so many leaves; a generator unless the form is a number."""
    if set(form.terms) <= {()}:
        return Form.constant(ceil_log2_of(form.terms.get((), Fraction(0))))
    return Form.atom(Log(form, ceil=True))


def split_content(form: Form) -> tuple[Form, Form]:
    """(common factor, rest): the gcd of the coefficients times the greatest common monomial."""
    coefficients = list(form.terms.values())
    numerator = math.gcd(*(c.numerator for c in coefficients))
    denominator = math.lcm(*(c.denominator for c in coefficients))
    atoms = {x for m in form.terms for x, _ in m}
    powers = {x: min(dict(m).get(x, 0) for m in form.terms) for x in atoms}
    common = tuple(sorted(((x, p) for x, p in powers.items() if p), key=_atom_key))
    content = Form({common: Fraction(numerator, denominator)})
    return content, form * content.inverse()


@dataclass(frozen=True)
class Max:
    """The maximum of finitely many forms, kept as a sorted tuple without repeats; never empty."""

    members: tuple[Form, ...]

    @staticmethod
    def of(*forms: Form | Max) -> Max:
        flat = {f for x in forms for f in (x.members if isinstance(x, Max) else (x,))}
        return Max(tuple(sorted(flat, key=lambda f: f.text)))

    @property
    def text(self) -> str:
        if len(self.members) == 1:
            return self.members[0].text
        return f"Max({', '.join(f.text for f in self.members)})"

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset().union(*(f.symbols for f in self.members))

    def __add__(self, other: Form | Max) -> Max:
        others = other.members if isinstance(other, Max) else (other,)
        return Max.of(*(a + b for a in self.members for b in others))

    def scale(self, factor: Form) -> Max:
        """Product with a form that is nonnegative on the domain."""
        return Max.of(*(factor * f for f in self.members))

    def substitute(self, values: Mapping[str, Form]) -> Max:
        return Max.of(*(f.substitute(values) for f in self.members))

    def evaluate(self, sizes: Mapping[str, Scalar]) -> Fraction:
        return max(f.evaluate(sizes) for f in self.members)

    def __str__(self) -> str:
        return self.text
