"""Expressions as they are written: a small frozen tree that keeps brackets, logs, sums and opaque costs in place.

`Form` (derive/forms.py) is what an expression *is*; the tree here is how it is *written*.  The two parsers
(`latex`, `textform`) produce it, the renderer prints it, and `derive.normal` takes it to the normal form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

OPAQUE_HEADS = ("C", "D", "M")
PARAMETER_COUNT = "params"


@dataclass(frozen=True)
class Num:
    """A rational constant."""

    value: Fraction


@dataclass(frozen=True)
class Sym:
    """A size from graphs/symbols.py, or the index bound by a `Sum`."""

    name: str


@dataclass(frozen=True)
class Add:
    """A sum of two or more terms."""

    terms: tuple[Expr, ...]


@dataclass(frozen=True)
class Mul:
    """A product of two or more factors, side by side."""

    factors: tuple[Expr, ...]


@dataclass(frozen=True)
class Div:
    """A fraction."""

    top: Expr
    bottom: Expr


@dataclass(frozen=True)
class Pow:
    """An integer power."""

    base: Expr
    exponent: int


@dataclass(frozen=True)
class Log:
    """Logarithm to base 2, or its ceiling."""

    arg: Expr
    ceil: bool = False


@dataclass(frozen=True)
class Max:
    """The largest of its arguments."""

    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Min:
    """The smallest of its arguments."""

    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Sum:
    """``body`` added up for ``index`` from ``lower`` to ``upper``, both included."""

    body: Expr
    index: str
    lower: Expr
    upper: Expr


#: costs that the paper names without a model
WITHOUT_MODEL = frozenset({"M_KV"})


@dataclass(frozen=True)
class Call:
    """An opaque cost, ``C_f_tok(pi)``; the arguments are names of models, and ``M_KV`` has none."""

    name: str
    args: tuple[str, ...]


@dataclass(frozen=True)
class Order:
    """``O(arg)``."""

    arg: Expr


Expr: TypeAlias = Num | Sym | Add | Mul | Div | Pow | Log | Max | Min | Sum | Call | Order


# -- construction -----------------------------------------------------------------------------------------------------
def num(value: int | Fraction) -> Num:
    return Num(Fraction(value))


def add(*terms: Expr) -> Expr:
    """Sum with nested sums flattened; a single term stays itself."""
    flat = tuple(x for t in terms for x in (t.terms if isinstance(t, Add) else (t,)))
    return flat[0] if len(flat) == 1 else Add(flat) if flat else num(0)


def mul(*factors: Expr) -> Expr:
    """Product with nested products flattened; a single factor stays itself."""
    flat = tuple(x for f in factors for x in (f.factors if isinstance(f, Mul) else (f,)))
    return flat[0] if len(flat) == 1 else Mul(flat) if flat else num(1)


def negate(expr: Expr) -> Expr:
    if isinstance(expr, Num):
        return Num(-expr.value)
    if isinstance(expr, Mul) and isinstance(expr.factors[0], Num):
        head = -expr.factors[0].value
        return mul(*(() if head == 1 else (Num(head),)), *expr.factors[1:])
    return mul(num(-1), expr)


def is_negative(expr: Expr) -> bool:
    """True where the expression is written with a minus sign in front."""
    if isinstance(expr, Div):
        return is_negative(expr.top)
    head = expr.factors[0] if isinstance(expr, Mul) else expr
    return isinstance(head, Num) and head.value < 0


def without_sign(expr: Expr) -> Expr:
    """The expression whose negation `expr` is, given `is_negative(expr)`."""
    return Div(without_sign(expr.top), expr.bottom) if isinstance(expr, Div) else negate(expr)


# -- traversal --------------------------------------------------------------------------------------------------------
def children(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Add(items) | Mul(items) | Max(items) | Min(items):
            return items
        case Div(top, bottom):
            return (top, bottom)
        case Sum(body, _, lower, upper):
            return (body, lower, upper)
        case Pow(inner, _) | Log(inner, _) | Order(inner):
            return (inner,)
    return ()


def rebuild(expr: Expr, visit: Callable[[Expr], Expr]) -> Expr:
    """The same node over `visit` of its children."""
    match expr:
        case Add(items):
            return add(*map(visit, items))
        case Mul(items):
            return mul(*map(visit, items))
        case Max(items):
            return Max(tuple(map(visit, items)))
        case Min(items):
            return Min(tuple(map(visit, items)))
        case Div(top, bottom):
            return Div(visit(top), visit(bottom))
        case Pow(base, exponent):
            return Pow(visit(base), exponent)
        case Log(arg, ceil):
            return Log(visit(arg), ceil)
        case Sum(body, index, lower, upper):
            return Sum(visit(body), index, visit(lower), visit(upper))
        case Order(arg):
            return Order(visit(arg))
    return expr


def walk(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in children(expr):
        yield from walk(child)


def free_symbols(expr: Expr) -> frozenset[str]:
    """Names of the sizes that occur, without indices bound by a sum around them."""
    if isinstance(expr, Sym):
        return frozenset({expr.name})
    if isinstance(expr, Sum):
        bounds = free_symbols(expr.lower) | free_symbols(expr.upper)
        return bounds | (free_symbols(expr.body) - {expr.index})
    return frozenset().union(*(free_symbols(c) for c in children(expr)))


def calls(expr: Expr) -> frozenset[Call]:
    return frozenset(x for x in walk(expr) if isinstance(x, Call))


def replace(expr: Expr, old: Expr, new: Expr) -> Expr:
    """Every subtree equal to `old` becomes `new`; a sum equals another whatever the order of its terms."""
    same = expr == old or (isinstance(expr, Add) and isinstance(old, Add) and Counter(expr.terms) == Counter(old.terms))
    return new if same else rebuild(expr, lambda child: replace(child, old, new))


# -- text form --------------------------------------------------------------------------------------------------------
SUM_LEVEL, PRODUCT_LEVEL, POWER_LEVEL, ATOM_LEVEL = 1, 2, 3, 4


def text(expr: Expr) -> str:
    """Python-style infix as in the contract, brackets kept where they are."""
    return _text(expr, SUM_LEVEL)


def _text(expr: Expr, level: int) -> str:
    body, own = _text_and_level(expr)
    return body if own >= level else f"({body})"


def _text_and_level(expr: Expr) -> tuple[str, int]:
    match expr:
        case Num(value):
            return str(value), SUM_LEVEL if value < 0 else PRODUCT_LEVEL if value.denominator > 1 else ATOM_LEVEL
        case Sym(name):
            return name, ATOM_LEVEL
        case Add(terms):
            return _sum_text(terms), SUM_LEVEL
        case _ if is_negative(expr):
            return "-" + _text(without_sign(expr), PRODUCT_LEVEL), SUM_LEVEL
        case Mul(factors):
            rest = [_text(f, POWER_LEVEL) for f in factors[1:]]
            return "*".join([_text(factors[0], PRODUCT_LEVEL), *rest]), PRODUCT_LEVEL
        case Div(top, bottom):
            return f"{_text(top, PRODUCT_LEVEL)}/{_text(bottom, POWER_LEVEL)}", PRODUCT_LEVEL
        case Pow(base, exponent):
            power = str(exponent) if exponent >= 0 else f"({exponent})"
            return f"{_text(base, ATOM_LEVEL)}**{power}", POWER_LEVEL
    return _applied_text(expr), ATOM_LEVEL


def _applied_text(expr: Expr) -> str:
    match expr:
        case Log(arg, ceil):
            return f"{'ceil_log' if ceil else 'log'}({text(arg)})"
        case Order(arg):
            return f"O({text(arg)})"
        case Max(args):
            return f"Max({', '.join(map(text, args))})"
        case Min(args):
            return f"Min({', '.join(map(text, args))})"
        case Sum(body, index, lower, upper):
            return f"Sum({text(body)}, ({index}, {text(lower)}, {text(upper)}))"
        case Call(name, args):
            return f"{name}({', '.join(args)})" if args else name
    raise TypeError(f"no text form for {type(expr).__name__}")


def _sum_text(terms: tuple[Expr, ...]) -> str:
    out = _text(terms[0], SUM_LEVEL)
    for term in terms[1:]:
        sign, body = (" - ", without_sign(term)) if is_negative(term) else (" + ", term)
        out += sign + _text(body, PRODUCT_LEVEL)
    return out
