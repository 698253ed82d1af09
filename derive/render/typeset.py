"""Normal form -> expression arranged as the paper writes it: ``6BmL(4d^2 + 2dd_ff + md)``, one log per coefficient.

The arrangement never changes the value: `to_form(display(form)) == form`, which a property test checks.  Sizes are
either *outer* (tokens, layers, degrees: they multiply whole brackets) or *inner* (widths, vocabulary, experts).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from derive import expr as ex
from derive import forms
from derive.expr import Add, Expr, Sym
from derive.forms import Form
from derive.render.logs import log_terms
from derive.render.terms import OUTER, TOKENS, WIDTHS, Term, gcd, is_cost, is_degree, product, rank, stem

SEQUENCE = Add((Sym("S"), Sym("T")))
#: tables that write the context length as S + T
SEQUENCE_TABLES = ("III", "IV", "IX")
#: tables whose column is an O-argument
ORDER_TABLES = ("IV", "V", "VI")


# -- whole forms ------------------------------------------------------------------------------------------------------
def display(form: Form | forms.Max, order: bool = False) -> Expr:
    """The form arranged for printing; `order` arranges logs as inside ``O(...)``."""
    if isinstance(form, forms.Max):
        return _maximum(form, order)
    plain = [(m, c) for m, c in form.ordered if not any(isinstance(x, forms.Log) for x, _ in m)]
    logged = [(m, c) for m, c in form.ordered if any(isinstance(x, forms.Log) for x, _ in m)]
    polynomial = [Term.of(c, {str(x): p for x, p in m}) for m, c in plain]
    return ex.add(*log_terms(logged, order, display), *arrange(polynomial))


def _maximum(maximum: forms.Max, order: bool) -> Expr:
    """What all members share, as a summand or a factor, is taken out of the braces where that is shorter."""
    members = sorted(maximum.members, key=lambda f: sorted(rank(s) for s in f.symbols if is_cost(s)))
    if len(members) == 1:
        return display(members[0], order)
    whole = ex.Max(tuple(display(f, order) for f in members))
    shared = Form({m: c for m, c in members[0].terms.items() if all(f.terms.get(m) == c for f in members)})
    rests = [f - shared for f in members]
    split = _factored(rests, order)
    if shared:
        split = ex.add(display(shared, order), split)
    return min(whole, split, key=lambda e: len(ex.text(e)))


def _factored(members: Sequence[Form], order: bool) -> Expr:
    """The maximum with the sizes that multiply every term of every member in front."""
    terms = [dict(m) for f in members for m in f.terms]
    if not all(members):
        return ex.Max(tuple(display(f, order) for f in members))
    names = {x for x in terms[0] if isinstance(x, str) and all(t.get(x, 0) > 0 for t in terms)}
    common = Term.of(1, {x: min(t[x] for t in terms) for x in sorted(names)})
    if not common.powers:
        return ex.Max(tuple(display(f, order) for f in members))
    below = Form({tuple((x, -p) for x, p in sorted(common.powers.items())): 1})
    return ex.mul(product(common), ex.Max(tuple(display(f * below, order) for f in members)))


def with_sequence(expr: Expr) -> Expr:
    """``m`` written as ``S+T``, the way Tables III, IV and IX do."""
    return ex.replace(expr, Sym("m"), SEQUENCE)


def with_m(expr: Expr) -> Expr:
    """``S+T`` read as ``m``."""
    return ex.replace(expr, SEQUENCE, Sym("m"))


def with_updates(expr: Expr) -> Expr:
    """Forward and backward pass of one model in one sum written as one update: ``C_tr``, ``D_tr``."""
    expr = ex.rebuild(expr, with_updates)
    if not isinstance(expr, Add):
        return expr
    terms = list(expr.terms)
    for forward in [t for t in terms if isinstance(t, ex.Call) and t.name in UPDATES]:
        assert isinstance(forward, ex.Call)
        backward = ex.Call(UPDATES[forward.name][0], forward.args)
        if backward in terms:
            terms.remove(backward)
            terms[terms.index(forward)] = ex.Call(UPDATES[forward.name][1], forward.args)
    return ex.add(*terms)


#: forward cost -> that of the backward pass, and the name of both together
UPDATES = {"C_f_tok": ("C_b_tok", "C_tr_tok"), "D_f": ("D_b", "D_tr")}


# -- polynomials ------------------------------------------------------------------------------------------------------
def arrange(terms: Sequence[Term]) -> list[Expr]:
    """The summands of a polynomial: common outer factors in front, terms grouped by what multiplies them."""
    if len(terms) < 2:
        return [product(t) for t in terms]
    common = _common(terms)
    if common.powers:
        return [_times(common, _groups([t.over(common) for t in terms]))]
    return _groups(terms)


def _groups(terms: Sequence[Term]) -> list[Expr]:
    """Replicas first: a degree over several kinds of terms gets a bracket; the rest is grouped by tokens and layers."""
    kinds: dict[tuple[tuple[str, int], ...], set[frozenset[str]]] = {}
    for term in terms:
        kinds.setdefault(term.degrees, set()).add(term.outer)
    spread = {degrees for degrees, outers in kinds.items() if degrees and len(outers) > 1}
    parts = [(d, [t for t in terms if t.degrees == d]) for d in sorted(spread)]
    keyed = sorted((t for t in terms if t.degrees not in spread), key=lambda t: sorted(t.outer))
    parts += [((), list(group)) for _, group in groupby(keyed, key=lambda t: t.outer)]
    parts.sort(key=lambda part: min(map(_place, part[1])))
    out: list[Expr] = []
    for degrees, members in parts:
        factor = Term.of(1, dict(degrees)) if degrees else _group_factor(members, terms)
        rest = [t.over(factor) for t in members]
        out += [_times(factor, _groups(rest))] if factor.powers else _by_degree(rest)
    return out


def _group_factor(members: Sequence[Term], terms: Sequence[Term]) -> Term:
    """What stands before a group's bracket; its number only where that divides every coefficient of the whole."""
    if len(members) == 1:
        return Term.of(1, {})
    common = _common(members)
    if not common.powers:
        return Term.of(1, {})
    divides = all((t.coefficient / common.coefficient).denominator == 1 for t in terms)
    return common if divides else Term.of(1, common.powers)


def _by_degree(terms: Sequence[Term]) -> list[Expr]:
    """Terms of one kind: those with the same degrees share a bracket."""
    keyed = sorted(terms, key=lambda t: t.degrees)
    groups = [(degrees, sorted(group, key=_place)) for degrees, group in groupby(keyed, key=lambda t: t.degrees)]
    groups.sort(key=lambda item: _place(item[1][0]))
    out: list[Expr] = []
    for degrees, members in groups:
        factor = Term.of(1, dict(degrees))
        if degrees and len(members) > 1:
            out.append(_times(factor, [product(t.over(factor)) for t in members]))
        else:
            out += [product(t) for t in members]
    return out


def _common(terms: Sequence[Term]) -> Term:
    """The greatest common factor of the coefficients, and of the degrees, tokens and layers."""
    names = sorted({s for t in terms for s in t.powers if stem(s) in OUTER or is_degree(s)}, key=rank)
    powers = {}
    for name in names:
        present = [t.powers.get(name, 0) for t in terms]
        powers[name] = min(present) if min(present) > 0 else min(0, max(present))
    return Term.of(gcd(t.coefficient for t in terms), {s: p for s, p in powers.items() if p})


def _place(term: Term) -> tuple[object, ...]:
    """Order of terms: parameters before activations, layers before the rest, the highest power of widths first."""
    tokens = any(stem(s) in TOKENS and p > 0 for s, p in term.powers.items())
    layers = any(stem(s) == "L" for s in term.powers)
    widths = sum(p for s, p in term.powers.items() if stem(s) in WIDTHS)
    model = sum(p for s, p in term.powers.items() if stem(s) == "d")
    names = sorted((rank(s), -p) for s, p in term.powers.items())
    return (tokens, not layers, -widths, -model, -sum(term.powers.values()), names)


def _times(factor: Term, summands: list[Expr]) -> Expr:
    if factor.powers or factor.coefficient != 1:
        return ex.mul(product(factor), ex.add(*summands))
    return ex.add(*summands)
