"""The contract's text form (``2*L*log(d**4*m/h)``, Python-style infix) -> expression; the inverse of `expr.text`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from lark import Lark, Token, Transformer, v_args

from derive import expr as ex
from derive.expr import WITHOUT_MODEL, Call, Div, Expr, Log, Max, Min, Num, Order, Pow, Sum, Sym
from derive.parsing import ParseError, check_exponent, check_limits, check_name, rational, run, shown

GRAMMAR = r"""
?sum_: (term | negated) (_PLUS term | negated)*            -> addition
negated: _MINUS term
?term: power ((TIMES | OVER) power)*                       -> product
?power: atom
    | atom _POWER exponent                                 -> raised
exponent: DIGITS | _LPAR SIGN? DIGITS _RPAR
?atom: DIGITS                                              -> number
    | DECIMAL                                              -> number
    | NAME                                                 -> symbol
    | call | applied
    | _LPAR sum_ _RPAR
call: COST _LPAR NAME _RPAR
applied: NAME _LPAR arguments _RPAR
arguments: argument (_COMMA argument)*
?argument: sum_ | range
range: _LPAR NAME _COMMA sum_ _COMMA sum_ _RPAR

COST.2: /([CDM]_[A-Za-z]+(_[A-Za-z]+)?|params)(?=\s*\()/
NAME: /[A-Za-z][A-Za-z0-9_]*/
DIGITS: /\d+/
DECIMAL: /\d+\.\d+/
_LPAR: "("
_RPAR: ")"
_COMMA: ","
_PLUS: "+"
_MINUS: "-"
SIGN: "-"
_POWER: "**"
TIMES: "*"
OVER: "/"
%ignore /\s+/
"""

WORDS = {
    "_RPAR": "`)`", "_LPAR": "`(`", "_COMMA": "`,`", "_PLUS": "`+`", "_MINUS": "`-`", "_POWER": "`**`", "TIMES": "`*`",
    "OVER": "`/`", "$END": "the end", "DIGITS": "a number", "DECIMAL": "a number", "SIGN": "a number", "NAME": "a name",
    "COST": "a name",
}  # fmt: skip
BRACKETS = re.compile(r"(?P<open>\()|(?P<close>\))")
MAX_LENGTH = 200_000
MODELS = frozenset({"pi", "ref", "R", "V", "SH", "M"})


@lru_cache(maxsize=1)
def _parser() -> Lark:
    return Lark(GRAMMAR, start=["sum_"], parser="lalr", propagate_positions=True, maybe_placeholders=False)


def parse_text(text: str, letters: Mapping[str, str] | None = None) -> Expr:
    """The expression that the text form says; `ParseError` says in one sentence what is wrong and where.

    ``letters`` are the sizes that a source's own names stand for, such as ``d`` for ``hidden_dim``.
    """
    check_limits(text, BRACKETS, MAX_LENGTH)
    result: Expr = run(_parser(), text, "sum_", _Build(text, letters), WORDS)
    return result


class _Range(tuple[str, Expr, Expr]):
    """The second argument of a ``Sum``."""

    __slots__ = ()


@v_args(inline=True)
class _Build(Transformer[Token, Expr]):
    def __init__(self, text: str, letters: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.text, self.letters = text, letters or {}

    def addition(self, *terms: Expr) -> Expr:
        return ex.add(*terms)

    def negated(self, term: Expr) -> Expr:
        return ex.negate(term)

    def product(self, first: Expr, *rest: Expr | Token) -> Expr:
        """Left to right, as Python does."""
        out = first
        for operator, factor in zip(rest[::2], rest[1::2], strict=True):
            assert not isinstance(factor, Token)
            out = _over(out, factor) if operator == "/" else ex.mul(out, factor)
        return out

    def raised(self, base: Expr, exponent: int) -> Expr:
        return Pow(base, exponent)

    def exponent(self, *tokens: Token) -> int:
        if len(tokens[-1]) > 9:
            raise ParseError(f"the power {shown(self.text, tokens[-1].start_pos or 0)} must be a small integer")
        return check_exponent(int("".join(tokens)), self.text, tokens[0].start_pos or 0)

    def number(self, token: Token) -> Expr:
        return Num(rational(token, self.text))

    def symbol(self, token: Token) -> Expr:
        if token in WITHOUT_MODEL:
            return Call(str(token), ())
        return Sym(check_name(self.letters.get(str(token), str(token)), self.text, token.start_pos or 0))

    def call(self, name: Token, model: Token) -> Expr:
        if model not in MODELS:
            place = shown(self.text, model.start_pos or 0)
            raise ParseError(f"{model} {place} is not a model: expected one of {', '.join(sorted(MODELS))}")
        return Call(str(name), (str(model),))

    def arguments(self, *items: Expr | _Range) -> tuple[Expr | _Range, ...]:
        return items

    def range(self, index: Token, lower: Expr, upper: Expr) -> _Range:
        return _Range((str(index), lower, upper))

    def applied(self, name: Token, items: tuple[Expr | _Range, ...]) -> Expr:
        plain = tuple(x for x in items if not isinstance(x, _Range))
        if name == "Sum" and len(items) == 2 and len(plain) == 1 and isinstance(items[1], _Range):
            return Sum(plain[0], *items[1])
        if len(plain) == len(items):
            if name == "Max":
                return Max(plain)
            if name == "Min":
                return Min(plain)
            if name in ("log", "ceil_log", "O") and len(plain) == 1:
                return Order(plain[0]) if name == "O" else Log(plain[0], ceil=name == "ceil_log")
        raise ParseError(f"{name}(...) {shown(self.text, name.start_pos or 0)} is not a function of such arguments")


def _over(top: Expr, bottom: Expr) -> Expr:
    if isinstance(top, Num) and isinstance(bottom, Num) and bottom.value:
        return Num(top.value / bottom.value)
    return Div(top, bottom)
