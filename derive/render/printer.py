r"""Expression -> LaTeX, so that `derive.latex.parse` reads the same expression back.

Needs amsmath only.  Brackets around fractions are ``\bigl( \bigr)`` and not ``\left( \right)``, so that a long formula
can still break at its top-level plus signs.
"""

from __future__ import annotations

from fractions import Fraction

from derive import expr as ex
from derive.expr import Add, Call, Div, Expr, Log, Max, Min, Mul, Num, Order, Pow, Sum, Sym
from graphs.symbols import MODELS

MODEL_LATEX = {
    "pi": r"\pi_{\theta}", "ref": r"\pi_{\text{ref}}", "SH": r"\pi_{\text{SH}}",
    "R": r"R_{\varphi}", "V": r"V_{\psi}", "M": "M",
}  # fmt: skip
GREEK = ("alpha", "beta")
SHORT = 5
COMMA = r",\allowbreak\ "


def latex(expr: Expr) -> str:
    """LaTeX of the expression, without dollar signs."""
    match expr:
        case Num(value):
            return _number(value)
        case Sym(name):
            return symbol(name)
        case Add(terms):
            return _sum(terms)
        case _ if ex.is_negative(expr):
            return "-" + _term(ex.without_sign(expr))
        case Mul(factors):
            return _product(factors)
        case Div(top, bottom):
            return rf"\tfrac{{{latex(top)}}}{{{latex(bottom)}}}"
        case Pow(base, exponent):
            return _power(base, exponent)
    return _applied(expr)


def _applied(expr: Expr) -> str:
    match expr:
        case Log(arg, ceil):
            return rf"\lceil{_log(arg, bare=True)}\rceil" if ceil else _log(arg, bare=True)
        case Order(arg):
            return "O" + bracketed(latex(arg), always_round=True)
        case Max(args) | Min(args):
            body = COMMA.join(map(latex, args))
            left, right = (r"\bigl\{", r"\bigr\}") if _tall(body) else (r"\{", r"\}")
            return rf"\{type(expr).__name__.lower()}{left}{body}{right}"
        case Sum(body, index, lower, upper):
            return rf"\sum_{{{index}={latex(lower)}}}^{{{latex(upper)}}}{_term(body)}"
        case Call(name, args):
            return _call(name, args)
    raise TypeError(f"no LaTeX for {type(expr).__name__}")


# -- sums, products, powers -------------------------------------------------------------------------------------------
def _sum(terms: tuple[Expr, ...]) -> str:
    out = latex(terms[0]) if not isinstance(terms[0], Add) else bracketed(latex(terms[0]))
    for term in terms[1:]:
        out += "-" + _term(ex.without_sign(term)) if ex.is_negative(term) else "+" + _term(term)
    return out


def _term(expr: Expr) -> str:
    """The expression as an operand of a sum: brackets around a sum or a signed one."""
    body = latex(expr)
    return bracketed(body) if isinstance(expr, Add) or ex.is_negative(expr) else body


def _product(factors: tuple[Expr, ...]) -> str:
    out = ""
    for i, factor in enumerate(factors):
        last = i == len(factors) - 1
        piece = _factor(factor, last)
        before = factors[i - 1] if i else None
        out += (r"\cdot " if before is not None and _needs_dot(before, factor) else "") + piece
    return out


def _factor(expr: Expr, last: bool) -> str:
    match expr:
        case Log(arg, False):
            return _log(arg, bare=last)
        case Sum() if not last:
            return bracketed(latex(expr))
    return _term(expr)


def _needs_dot(before: Expr, factor: Expr) -> bool:
    """A number after another factor, or beside a fraction of numbers, is not read as a product by itself."""
    if isinstance(factor, Num) and factor.value >= 0:
        return True
    numeric = isinstance(factor, Div) and not ex.free_symbols(factor) | ex.calls(factor)
    return isinstance(before, Num) and (numeric or isinstance(factor, Num))


def _power(base: Expr, exponent: int) -> str:
    if exponent < 0:
        return rf"\tfrac{{1}}{{{latex(base) if exponent == -1 else _power(base, -exponent)}}}"
    simple = isinstance(base, Sym) or (isinstance(base, Num) and base.value >= 0 and base.value.denominator == 1)
    return f"{latex(base) if simple else bracketed(latex(base))}^{{{exponent}}}"


def _number(value: Fraction) -> str:
    sign, size = ("-" if value < 0 else ""), abs(value)
    if size.denominator == 1:
        return f"{sign}{size.numerator}"
    return rf"{sign}\tfrac{{{size.numerator}}}{{{size.denominator}}}"


def _log(arg: Expr, bare: bool) -> str:
    """Brackets are left out around one symbol, or one over another, at the end of a product, as the paper does."""
    body = latex(arg)
    if bare and isinstance(arg, Sym):
        return rf"\log {body}"
    small = isinstance(arg, Div) and isinstance(arg.top, Sym) and isinstance(arg.bottom, Sym)
    return rf"\log{body}" if bare and small else r"\log" + bracketed(body)


# -- brackets ---------------------------------------------------------------------------------------------------------
def bracketed(body: str, *, always_round: bool = False) -> str:
    """Round, and square around round ones unless told otherwise; larger around fractions.

    A sum of few letters, such as (S+T), is kept in one line.
    """
    left, right = ("(", ")") if always_round or _nesting(body) % 2 == 0 else ("[", "]")
    if len(body) <= SHORT:
        body = body.replace("+", r"+\nobreak ")
    return rf"\bigl{left}{body}\bigr{right}" if _tall(body) else f"{left}{body}{right}"


def _tall(body: str) -> bool:
    return "frac" in body or r"\sum" in body


def _nesting(body: str) -> int:
    depth = deepest = 0
    for character in body:
        depth += (character in "([") - (character in ")]")
        deepest = max(deepest, depth)
    return deepest


# -- names ------------------------------------------------------------------------------------------------------------
def symbol(name: str) -> str:
    """``d_ff_pi`` as the paper prints it; words in a subscript are upright."""
    head, *parts = name.split("_")
    if not parts:
        return rf"\{head}" if name in GREEK else head
    if len(parts) == 2 and parts[1] in MODELS:
        model = r"\pi" if parts[1] == "pi" else parts[1] if len(parts[1]) == 1 else rf"\text{{{parts[1]}}}"
        return rf"{head}_{{{model}\mathrm{{{parts[0]}}}}}"
    return f"{head}_{{{_subscript(parts[0])}}}"


def _subscript(part: str) -> str:
    return r"\pi" if part == "pi" else part if len(part) == 1 else rf"\text{{{part}}}"


def _call(name: str, models: tuple[str, ...]) -> str:
    if name == ex.PARAMETER_COUNT:
        return rf"|{MODEL_LATEX[models[0]]}|"
    head, below, *above = name.split("_")
    cost = f"{head}_{{{_subscript(below)}}}" + "".join(rf"^{{\text{{{a}}}}}" for a in above)
    return cost + (f"({', '.join(MODEL_LATEX[m] for m in models)})" if models else "")
