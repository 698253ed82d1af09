"""Forms from and to sympy: extents of axes come in as sympy expressions, and users may go on in sympy."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

from derive.forms import Atom, Form, Log, Max, total


def from_sympy(expr: Any) -> Form:
    """A sympy expression of sums, products, integer powers of symbols and rationals as a form (extents of axes)."""
    return _from_sympy(expr)


@lru_cache(maxsize=4096)
def _from_sympy(expr: Any) -> Form:
    if expr.is_Rational:
        return Form.constant(Fraction(int(expr.p), int(expr.q)))
    if expr.is_Symbol:
        return Form.atom(expr.name)
    if expr.is_Add:
        return total(_from_sympy(a) for a in expr.args)
    if expr.is_Mul:
        out = Form.constant(1)
        for arg in expr.args:
            out = out * _from_sympy(arg)
        return out
    if expr.is_Pow and expr.exp.is_Integer:
        return _from_sympy(expr.base) ** int(expr.exp)
    raise ValueError(f"extent {expr}: only sums, products and integer powers of sizes are supported")


def to_sympy(form: Form | Max) -> Any:
    """The form as a sympy expression (logs as ``log(x, 2)``) for users who go on in sympy."""
    import sympy

    if isinstance(form, Max):
        return sympy.Max(*(to_sympy(f) for f in form.members))
    parts = []
    for monomial, c in form.terms.items():
        factors = [_atom_to_sympy(x) ** p for x, p in monomial]
        parts.append(sympy.Mul(sympy.Rational(c.numerator, c.denominator), *factors))
    return sympy.Add(*parts)


def _atom_to_sympy(atom: Atom) -> Any:
    import sympy

    from graphs.symbols import size

    if isinstance(atom, Log):
        inner = sympy.log(to_sympy(atom.arg), 2)
        return sympy.ceiling(inner) if atom.ceil else inner
    return size(atom)
