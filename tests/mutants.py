"""Perturbations of printed formulas."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from derive import expr as ex
from derive.cells import instances
from derive.claims import Book, Claim
from derive.expr import Expr
from derive.readings import printed_value
from derive.textform import parse_text
from graphs.symbols import MODELS, PER_MODEL

KINDS = ("coefficient", "exponent", "symbol", "dropped term", "added term", "log argument", "degree")


# -- perturbations ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Mutant:
    """One perturbation: of which kind, what was done, and the result."""

    kind: str
    what: str
    expr: Expr


@dataclass(frozen=True)
class _Pool:
    """What may stand in place of a symbol, be added to a sum, or divide a term."""

    symbols: tuple[str, ...]
    terms: tuple[Expr, ...]
    degrees: tuple[str, ...]


TERMS = ("1", "L*d", "V*d", "B*m*L*d", "B*L*m**2*h", "L*d_ff**2")
LOG_TERMS = ("1", "log(d)", "log(V)", "L", "L*log(h)", "L*log(m)*log(d)")
INNER = ("m", "d", "h*d_ff", "d**3")


def perturbations(claim: Claim) -> Iterator[Mutant]:
    """Every single-place perturbation of what a claim prints, those of no effect too."""
    return _mutants(claim.expr, _pool(claim), in_log=False)


def mutants_of(claim: Claim, book: Book, per_kind: int = 1_000) -> list[Mutant]:
    """Distinct perturbations of a cell, at most so many of each kind: none has the value of the cell or of another."""
    known = {_key(claim, book)}
    found: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    every = list(perturbations(claim))
    random.Random(claim.id).shuffle(every)
    for mutant in every:
        if len(found[mutant.kind]) == per_kind:
            continue
        changed, replaced = reprinted(claim, mutant, book)
        try:
            key = _key(changed, replaced)
        except ValueError:  # outside the class of claims: dividing by a sum, the log of nothing
            continue
        if key not in known:
            known.add(key)
            found[mutant.kind].append(mutant)
    return [m for kind in KINDS for m in found[kind]]


def reprinted(claim: Claim, mutant: Mutant, book: Book) -> tuple[Claim, Book]:
    """The claim and the book with the perturbation printed instead."""
    corrected = replace(claim.corrected, body=mutant.expr) if claim.corrected else None
    changed = replace(claim, expr=mutant.expr, corrected=corrected)
    return changed, Book({**book.claims, claim.id: changed}, book.assumptions)


def _key(claim: Claim, book: Book) -> tuple[str, ...]:
    return tuple(printed_value(claim, book, i.model).text for i in instances(claim.id))


def _pool(claim: Claim) -> _Pool:
    suffix = next((f"_{m}" for m in MODELS if f"_{m}" in "".join(s[s.rfind("_") :] for s in claim.symbols)), "")

    def own(name: str) -> str:
        return f"{name}{suffix}" if name in PER_MODEL else name

    def term(text: str) -> Expr:
        e = parse_text(text)
        for name in sorted(ex.free_symbols(e)):
            e = ex.replace(e, ex.Sym(name), ex.Sym(own(name)))
        return e

    logs = any(isinstance(x, ex.Log) for x in ex.walk(claim.expr)) or claim.id.startswith(("III/D", "III/D_f"))
    degrees = tuple(sorted(s for s in claim.symbols if s.startswith("P_"))) or ("P_d",)
    symbols = tuple(own(s) for s in ("m", "d", "L", "B", "h", "V", "d_ff"))
    return _Pool(symbols, tuple(map(term, LOG_TERMS if logs else TERMS)), degrees)


def _mutants(e: Expr, pool: _Pool, in_log: bool) -> Iterator[Mutant]:
    """Every single-place perturbation."""
    for mutant in _here(e, pool):
        yield replace(mutant, kind="log argument") if in_log and mutant.kind != "degree" else mutant
    for i, child in enumerate(ex.children(e)):
        for inner in _mutants(child, pool, in_log or isinstance(e, ex.Log)):
            yield replace(inner, expr=_with_child(e, i, inner.expr))


def _with_child(e: Expr, index: int, new: Expr) -> Expr:
    seen = iter(range(len(ex.children(e))))
    return ex.rebuild(e, lambda child: new if next(seen) == index else child)


def _here(e: Expr, pool: _Pool) -> Iterator[Mutant]:
    match e:
        case ex.Sym(name):
            yield from _at_symbol(name, pool)
        case ex.Add(terms):
            yield from _at_sum(e, terms, pool)
        case ex.Mul(factors):
            yield from _at_product(factors)
        case ex.Log(arg, _):
            yield from _at_log(e, arg, pool)
        case _:
            yield from _elsewhere(e, pool)


def _elsewhere(e: Expr, pool: _Pool) -> Iterator[Mutant]:
    match e:
        case ex.Num(value) if value > 0:
            yield Mutant("coefficient", f"{value} becomes {value + 1}", ex.num(value + 1))
            yield Mutant("coefficient", f"{value} becomes {2 * value}", ex.num(2 * value))
        case ex.Pow(base, exponent):
            for power in (exponent - 1, exponent + 1):
                new = ex.Pow(base, power) if power else ex.num(1)
                yield Mutant("exponent", f"{ex.text(e)} to the power {power}", new)
        case ex.Div(top, bottom):
            yield Mutant(_kind_of(bottom, "dropped term"), f"without the divisor {ex.text(bottom)}", top)
        case ex.Order(arg) if not isinstance(arg, ex.Add):
            for term in pool.terms:
                yield Mutant("added term", f"plus {ex.text(term)}", ex.Order(ex.add(arg, term)))
        case ex.Call():
            yield Mutant("coefficient", f"{ex.text(e)} thrice", ex.mul(ex.num(3), e))
            for term in pool.terms:
                yield Mutant("added term", f"plus {ex.text(term)}", ex.add(e, term))


def _kind_of(part: Expr, otherwise: str) -> str:
    """Whatever touches a degree of parallelism and nothing else is a perturbation of a degree."""
    symbols = ex.free_symbols(part)
    return "degree" if symbols and all(s.startswith("P_") for s in symbols) else otherwise


def _at_symbol(name: str, pool: _Pool) -> Iterator[Mutant]:
    e = ex.Sym(name)
    yield Mutant(_kind_of(e, "exponent"), f"{name} squared", ex.Pow(e, 2))
    others = ("P_d", "P_t", "P_e") if name.startswith("P_") else pool.symbols
    for other in others:
        if other != name:
            yield Mutant(_kind_of(e, "symbol"), f"{name} becomes {other}", ex.Sym(other))


def _at_sum(e: Expr, terms: Sequence[Expr], pool: _Pool) -> Iterator[Mutant]:
    for i, term in enumerate(terms):
        before, after = terms[:i], terms[i + 1 :]
        yield Mutant("dropped term", f"without {ex.text(term)}", ex.add(*before, *after))
        yield Mutant("coefficient", f"{ex.text(term)} thrice", ex.add(*before, ex.mul(ex.num(3), term), *after))
        for degree in pool.degrees:
            over, times = ex.Div(term, ex.Sym(degree)), ex.mul(ex.Sym(degree), term)
            yield Mutant("degree", f"{ex.text(term)} over {degree}", ex.add(*before, over, *after))
            yield Mutant("degree", f"{ex.text(term)} times {degree}", ex.add(*before, times, *after))
    for term in (*pool.terms, *map(parse_text, INNER)):
        if ex.free_symbols(term) <= {*pool.symbols, "m"}:
            yield Mutant("added term", f"plus {ex.text(term)}", ex.add(e, term))


def _at_product(factors: Sequence[Expr]) -> Iterator[Mutant]:
    for i, factor in enumerate(factors):
        rest = ex.mul(*factors[:i], *factors[i + 1 :])
        if not isinstance(factor, ex.Num):
            yield Mutant(_kind_of(factor, "dropped term"), f"without the factor {ex.text(factor)}", rest)


def _at_log(e: Expr, arg: Expr, pool: _Pool) -> Iterator[Mutant]:
    yield Mutant("log argument", f"{ex.text(e)} without its log", arg)
    yield Mutant("log argument", f"{ex.text(e)} squared", ex.Pow(e, 2))
    yield Mutant("log argument", f"log({ex.text(arg)}) of its square", ex.Log(ex.Pow(arg, 2)))
    for name in pool.symbols:
        for what, new in (
            ("times", ex.mul(arg, ex.Sym(name))),
            ("over", ex.Div(arg, ex.Sym(name))),
            ("plus", ex.add(arg, ex.Sym(name))),
        ):
            yield Mutant("log argument", f"{ex.text(arg)} {what} {name} in the log", ex.Log(new))
