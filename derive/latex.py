r"""LaTeX as printed in the paper's tables -> expression.

Juxtaposition is a product, ``K(S+T)`` included; only ``\log``, ``\max``, ``\min``, ``\sum``, ``O`` and the opaque costs
(``C_{f}^{\text{tok}}(\pi_{\theta})``) are applied to what follows.  Readings that a reader could take in two ways
(``\log d m``, ``a/bc``, ``d^23``, ``2\tfrac{1}{2}``) are refused instead of guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

from lark import Lark, Token, Transformer, v_args
from lark.tree import Meta

from derive import expr as ex
from derive.expr import WITHOUT_MODEL, Call, Div, Expr, Log, Max, Min, Num, Order, Pow, Sum, Sym
from derive.parsing import ParseError, check_exponent, check_limits, check_name, rational, run, shown

GRAMMAR = r"""
definition: (name | call) ":=" sum_
?sum_: (_PLUS? term | negated) (_PLUS term | negated)*     -> addition
negated: MINUS term                                        -> negation
?term: _factors                                            -> product
_factors: chunk (_DOT chunk)* (_DOT? summation)? | summation
?chunk: _juxt (SLASH factor)?                              -> ratio
_juxt: factor+
?factor: base ("^" power)?                                 -> raised
    | log | ceiling
?base: NUMBER                                              -> number
    | name                                                 -> symbol
    | fraction | group | call | extremum | order | count
fraction: _FRAC "{" sum_ "}" "{" sum_ "}"
group: LPAR sum_ RPAR | LBRACK sum_ RBRACK | LBRACE sum_ RBRACE
ceiling: _LCEIL log _RCEIL
log: _LOG ("_" base_two)? log_argument
base_two: NUMBER | "{" NUMBER "}"
?log_argument: name ("^" power)?                           -> bare_power
    | NUMBER                                               -> bare_number
    | fraction                                             -> bare
    | group                                                -> grouped
power: NUMBER                                              -> power
    | "{" SIGN? NUMBER "}"                                 -> braced_power
    | "{" MINUS NUMBER "}"                                 -> braced_power
order: _ORDER (LPAR sum_ RPAR | LBRACK sum_ RBRACK)
extremum: EXTREMUM (LCURLY arguments RCURLY | LPAR arguments RPAR)
arguments: sum_ ("," sum_)*
summation: _SUM "_" "{" LETTER "=" sum_ "}" "^" limit term
?limit: "{" sum_ "}" | NUMBER -> number | name -> symbol
call: COST subscript ("^" superscript)? (LPAR model RPAR)?
superscript: "{" TEXT "}" | TEXT
count: BAR model BAR
model: (LETTER | GREEK | COST) subscript?
name: (LETTER | GREEK) subscript?
subscript: "_" _part | "_" "{" (_part | ",")+ "}"
_part: LETTER | GREEK | TEXT

LPAR: /(\\(left|[bB]igg?l?)\s*)?\(/
RPAR: /(\\(right|[bB]igg?r?)\s*)?\)/
LBRACK: /(\\(left|[bB]igg?l?)\s*)?\[/
RBRACK: /(\\(right|[bB]igg?r?)\s*)?\]/
LCURLY: /(\\(left|[bB]igg?l?)\s*)?\\\{/
RCURLY: /(\\(right|[bB]igg?r?)\s*)?\\\}/
LBRACE: "{"
RBRACE: "}"
BAR: /\\(left|right)?\||\||\\[lr]vert(?![A-Za-z])/
_FRAC: /\\[td]?frac(?![A-Za-z])/
_LOG: /\\log(?![A-Za-z])/
_LCEIL: /\\lceil(?![A-Za-z])/
_RCEIL: /\\rceil(?![A-Za-z])/
_SUM: /\\sum(?![A-Za-z])/
_ORDER: /O|\\mathcal\{O\}/
EXTREMUM: /\\(max|min)(?![A-Za-z])/
COST.2: /[CDM](?=\s*_)/
GREEK: /\\(pi|theta|varphi|phi|psi|Psi|alpha|beta)(?![A-Za-z])/
TEXT: /\\(text|textrm|mathrm|mathit|operatorname)\s*\{\s*[A-Za-z]+\s*\}/
LETTER: /[A-NP-Za-z]/
NUMBER: /\d+(\.\d+)?/
_DOT: /\\cdot(?![A-Za-z])|\\times(?![A-Za-z])|\*/
_PLUS: "+"
MINUS: "-"
SIGN: "+"
SLASH: "/"
SPACE: /\s+|\\[!,;:> ]|~|\\(quad|qquad|limits|allowbreak|nobreak)(?![A-Za-z])|&/
%ignore SPACE
"""

WORDS = {
    "RPAR": "`)`", "RBRACK": "`]`", "RBRACE": "`}`", "RCURLY": "`\\}`", "LBRACE": "`{`", "LPAR": "`(`", "LBRACK": "`[`",
    "LCURLY": "`\\{`", "_PLUS": "`+`", "MINUS": "`-`", "CIRCUMFLEX": "`^`", "__ANON_0": "`:=`", "SLASH": "`/`",
    "COMMA": "`,`", "UNDERSCORE": "`_`", "EQUAL": "`=`", "BAR": "`|`", "_DOT": "`\\cdot`", "_RCEIL": "`\\rceil`",
    "$END": "the end",
    "SIGN": "a number",
}  # fmt: skip
BRACKETS = re.compile(r"(?P<open>\\?\{|\(|\[)|(?P<close>\\?\}|\)|\])")
MAX_LENGTH = 20_000
MAX_SUMS = 20
MODEL_TOKENS = {"\\pi": "pi", "\\psi": "V", "\\varphi": "R", "\\phi": "R"}
MODELS = {
    "\\pi": "pi", "\\pi_theta": "pi", "\\pi_ref": "ref", "\\pi_SH": "SH", "R": "R", "R_varphi": "R", "R_phi": "R",
    "V": "V", "V_psi": "V", "M": "M",
}  # fmt: skip
PER_MODEL = frozenset({"pi", "R", "V", "SH", "M"})


@lru_cache(maxsize=1)
def _parser() -> Lark:
    starts = ["sum_", "definition"]
    return Lark(GRAMMAR, start=starts, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def parse(latex: str, letters: Mapping[str, str] | None = None) -> Expr:
    """The expression that the LaTeX prints; `ParseError` says in one sentence what is wrong and where.

    ``letters`` are the sizes that a source's own names stand for, such as ``d`` for ``d_model``.
    """
    check_limits(latex, BRACKETS, MAX_LENGTH)
    if latex.count("\\sum") > MAX_SUMS:
        raise ParseError(f"the expression has more than {MAX_SUMS} sums")
    result: Expr = run(_parser(), latex, "sum_", _Build(latex, letters), WORDS)
    return result


def parse_definition(latex: str) -> tuple[str | Call, Expr]:
    """``m:=S+T`` as (name, expression); a cost may be defined too, for any model M."""
    check_limits(latex, BRACKETS, MAX_LENGTH)
    name, value = run(_parser(), latex, "definition", _Build(latex), WORDS)
    return name, value


class _Bare(Log):
    """A log whose argument has no brackets: what may follow it in a product is restricted."""


@v_args(inline=True)
class _Build(Transformer[Token, Expr]):
    def __init__(self, text: str, letters: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.text, self.letters = text, letters or {}

    def _refuse(self, message: str, where: Token | Meta) -> ParseError:
        return ParseError(message.format(shown(self.text, where.start_pos or 0)))

    # -- sums and products ---------------------------------------------------------------------------------------------
    def definition(self, name: str | Call, value: Expr) -> tuple[str | Call, Expr]:
        return name, value

    def addition(self, *terms: Expr) -> Expr:
        return ex.add(*terms)

    def negation(self, _: Token, term: Expr) -> Expr:
        return ex.negate(term)

    @v_args(inline=False, meta=True)
    def product(self, meta: Meta, factors: list[Expr]) -> Expr:
        self._refuse_after_bare_log(factors, meta)
        return ex.mul(*map(_plain, factors))

    @v_args(inline=False, meta=True)
    def ratio(self, meta: Meta, items: list[Expr | Token]) -> Expr:
        """Factors side by side, then at most one divisor after a slash."""
        factors = [x for x in items if not isinstance(x, Token)]
        self._refuse_after_bare_log(factors, meta)
        divided = len(factors) < len(items)
        top = factors[:-1] if divided else factors
        self._refuse_loose_numbers(top, meta)
        if not divided:
            return ex.mul(*top)
        if isinstance(top[-1], _Bare):
            raise self._unclear_log(top[-1], meta)
        return Div(ex.mul(*map(_plain, top)), _plain(factors[-1]))

    def _refuse_loose_numbers(self, factors: list[Expr], meta: Meta) -> None:
        for left, right in pairwise(factors):
            if isinstance(right, Num) and right.value >= 0:
                raise self._refuse("a number follows a factor in the product {}: write \\cdot between them", meta)
            if isinstance(left, Num) and isinstance(right, Div) and not ex.free_symbols(right) | ex.calls(right):
                raise self._refuse("a number before a numeric fraction {} may mean a sum or a product", meta)

    def _refuse_after_bare_log(self, factors: list[Expr], meta: Meta) -> None:
        flat = [x for f in factors for x in (f.factors if isinstance(f, ex.Mul) else (f,))]
        for left, right in pairwise(flat):
            if isinstance(left, _Bare) and not isinstance(right, Log):
                raise self._unclear_log(left, meta)

    def _unclear_log(self, log: Expr, meta: Meta) -> ParseError:
        follows = f"what follows `{ex.text(_plain(log))}` {{}} may or may not belong to the log"
        return self._refuse(f"{follows}: put brackets around the argument", meta)

    def summation(self, index: Token, lower: Expr, upper: Expr, body: Expr) -> Expr:
        return Sum(body, str(index), lower, upper)

    # -- factors -------------------------------------------------------------------------------------------------------
    def raised(self, base: Expr, power: int | None = None) -> Expr:
        return base if power is None else Pow(base, power)

    def power(self, token: Token) -> int:
        if len(token) > 1:
            raise self._refuse("the power {} has several digits: put it in braces", token)
        return int(token)

    def braced_power(self, *tokens: Token) -> int:
        if "." in tokens[-1] or len(tokens[-1]) > 9:
            raise self._refuse("the power {} must be a small integer", tokens[-1])
        return check_exponent(int("".join(tokens)), self.text, tokens[0].start_pos or 0)

    def number(self, token: Token) -> Expr:
        return Num(rational(token, self.text))

    def symbol(self, name: str) -> Expr:
        return Sym(name)

    def fraction(self, top: Expr, bottom: Expr) -> Expr:
        return Div(_plain(top), _plain(bottom))

    def group(self, left: Token, body: Expr, right: Token) -> Expr:
        self._check_pair(left, right)
        return _plain(body)

    def _check_pair(self, left: Token, right: Token) -> None:
        if left.startswith("\\left") != right.startswith("\\right"):
            raise self._refuse("`\\left` and `\\right` do not belong to the same pair of brackets {}", left)

    def log(self, *parts: Expr) -> Expr:
        return parts[-1]

    def ceiling(self, log: Log) -> Expr:
        return Log(log.arg, ceil=True)

    def base_two(self, token: Token) -> None:
        if token != "2":
            raise self._refuse("logs are to base 2, not to the base {}", token)

    def bare_power(self, name: str, power: int | None = None) -> Expr:
        return _Bare(Sym(name) if power is None else Pow(Sym(name), power))

    def bare_number(self, token: Token) -> Expr:
        return _Bare(self.number(token))

    def bare(self, arg: Expr) -> Expr:
        return _Bare(arg)

    def grouped(self, arg: Expr) -> Expr:
        return Log(arg)

    def order(self, left: Token, arg: Expr, right: Token) -> Expr:
        return Order(self.group(left, arg, right))

    def arguments(self, *items: Expr) -> tuple[Expr, ...]:
        return tuple(map(_plain, items))

    def extremum(self, kind: Token, left: Token, args: tuple[Expr, ...], right: Token) -> Expr:
        self._check_pair(left, right)
        return Max(args) if kind == "\\max" else Min(args)

    # -- names ---------------------------------------------------------------------------------------------------------
    def subscript(self, *tokens: Token) -> tuple[str, ...]:
        """Parts of a subscript: letters that stand together are one part, words and Greek letters each their own."""
        parts: list[str] = []
        joined = False
        for token in tokens:
            letter = token.type == "LETTER"
            if letter and joined:
                parts[-1] += str(token)
            else:
                parts.append(_word(token) if token.type == "TEXT" else str(token))
            joined = letter
        return tuple(parts)

    def name(self, head: Token, subscript: tuple[str, ...] = ()) -> str:
        parts = [MODEL_TOKENS.get(p, p.lstrip("\\")) for p in subscript]
        parts.sort(key=lambda p: p in PER_MODEL)
        name = "_".join([head.lstrip("\\"), *parts])
        return check_name(self.letters.get(name, name), self.text, head.start_pos or 0)

    def model(self, head: Token, subscript: tuple[str, ...] = ()) -> str:
        key = "_".join([str(head), *(p.lstrip("\\") for p in subscript)])
        if key not in MODELS:
            raise self._refuse(f"`{key}` {{}} is not a model: expected one of {', '.join(sorted(MODELS))}", head)
        return MODELS[key]

    def superscript(self, token: Token) -> str:
        return _word(token)

    def call(self, head: Token, subscript: tuple[str, ...], *rest: str | Token) -> Expr:
        sup = tuple(x for x in rest[:1] if not isinstance(x, Token))
        name = "_".join([str(head), *subscript, *sup])
        models = [x for x in rest[len(sup) :] if not isinstance(x, Token)]
        if bool(models) == (name in WITHOUT_MODEL):
            wanted = "stands by itself" if models else "needs a model in brackets"
            raise self._refuse(f"the cost {name} {{}} {wanted}", head)
        return Call(name, tuple(models))

    def count(self, left: Token, model: str, right: Token) -> Expr:
        return Call(ex.PARAMETER_COUNT, (model,))


def _word(token: Token) -> str:
    return token[token.index("{") + 1 : -1].strip()


def _plain(expr: Expr) -> Expr:
    """The bare logs of a finished product as ordinary ones."""
    if isinstance(expr, _Bare):
        return Log(expr.arg, expr.ceil)
    if isinstance(expr, ex.Mul):
        return ex.mul(*map(_plain, expr.factors)) if any(isinstance(f, _Bare) for f in expr.factors) else expr
    return expr
