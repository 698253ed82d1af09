"""The printed cells and the ledger of assumptions, loaded from ``tables/paper/*.toml`` into frozen records.

A claim is what the paper prints, nothing more: its LaTeX, the kind of statement its table makes, and the expression
that the LaTeX parses to.  Every broken rule of the data is a `ClaimError` that names the file, the id and the mend.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from derive.data import paper_folder
from derive.expr import Add, Call, Expr, Order, Sum, Sym, add, free_symbols, rebuild, replace, walk
from derive.latex import parse, parse_definition
from derive.parsing import ParseError
from derive.records import ClaimError, entries, one_of, read, refuse_duplicates, refuse_unknown_keys, text, texts
from graphs.symbols import is_size

KINDS = ("equal", "approx", "leading", "order", "upper")
#: what a cell says of a printed sum: the terms without an O(...), or those with one
PARTS = ("exact", "remainder")
ORIGINS = ("stated", "elsewhere", "implied")
LEDGER = "assumptions.toml"
Definition = tuple[str | Call, Expr]
TABLE_KEYS = frozenset({"table", "kind", "definitions", "opaque", "not_printed", "claim"})
CLAIM_KEYS = frozenset({"id", "row", "column", "kind", "symbol", "latex", "part", "unbound"})
ASSUMPTION_KEYS = frozenset({"id", "text", "contradicts", "scope"})
SCOPE_KEYS = frozenset({"origin", "where", "cells"})


@dataclass(frozen=True)
class Claim:
    """One printed cell; `expr` has the table's definitions applied (``S+T`` is ``m`` in V-VIII).

    Where the paper prints an index outside of the sum that binds it, the cell says nothing as it stands: `expr` leaves
    the index free, and `corrected` is the same inside the bounds of that sum.  ``opaque`` says that its table is in the
    language of named costs, which stand for themselves.
    """

    id: str
    table: str
    row: str
    column: str
    kind: str
    latex: str
    expr: Expr
    symbol: Call | None
    symbols: frozenset[str]
    corrected: Sum | None = None
    opaque: bool = False

    @property
    def is_well_formed(self) -> bool:
        return self.corrected is None


@dataclass(frozen=True)
class Scope:
    """Where an assumption holds and where that is written."""

    origin: str
    where: str
    cells: tuple[str, ...]

    def covers(self, cell: str) -> bool:
        return any(fnmatchcase(cell, pattern) for pattern in self.cells)


@dataclass(frozen=True)
class Assumption:
    """One entry of the ledger; its origin may differ from table to table."""

    id: str
    text: str
    scopes: tuple[Scope, ...]
    contradicts: tuple[str, ...] = ()

    def scope_for(self, cell: str) -> Scope | None:
        return next((s for s in self.scopes if s.covers(cell)), None)


@dataclass(frozen=True)
class Book:
    """All claims and assumptions by id, in the order of the files, and ids of cells that are missing from our copy."""

    claims: Mapping[str, Claim]
    assumptions: Mapping[str, Assumption]
    not_printed: tuple[str, ...] = ()

    def claim(self, cell: str) -> Claim:
        if cell not in self.claims:
            raise ClaimError(f"no claim {cell!r}: the paper's copy prints no such cell")
        return self.claims[cell]

    def assumption(self, name: str) -> Assumption:
        if name not in self.assumptions:
            raise ClaimError(f"unknown assumption {name!r}: known are {', '.join(sorted(self.assumptions))}")
        return self.assumptions[name]

    def in_force(self, cell: str) -> dict[str, Scope]:
        """Assumptions that cover the cell (printed or not), with their origin there."""
        scopes = ((a.id, a.scope_for(cell)) for a in self.assumptions.values())
        return {name: scope for name, scope in scopes if scope is not None}

    def contradicted(self, cell: str) -> dict[str, str]:
        """Implied assumptions of the cell that contradict one which the paper states for it, and which one."""
        here = self.in_force(cell)
        written = [name for name, scope in here.items() if scope.origin != "implied"]
        return {
            name: other
            for name, scope in here.items()
            for other in self.assumptions[name].contradicts
            if scope.origin == "implied" and other in written
        }


@lru_cache(maxsize=4)
def load(folder: Path | None = None) -> Book:
    """The book of a folder of TOML files (the paper's by default)."""
    folder = folder or paper_folder()
    files = sorted(f for f in folder.glob("*.toml") if f.name != LEDGER)
    tables = [(read(file), file.name) for file in files]
    claims = [claim for data, name in tables for claim in _claims(data, name)]
    missing = [cell for data, name in tables for ids in texts(data, "not_printed", name) for cell in _alternatives(ids)]
    if not claims:
        raise ClaimError(f"{folder}: no claims there, a folder with *.toml files of claims is needed")
    ledger = folder / LEDGER
    assumptions = list(_assumptions(read(ledger))) if ledger.exists() else []
    refuse_duplicates([*(c.id for c in claims), *missing], f"{folder}: the claim")
    refuse_duplicates((a.id for a in assumptions), f"{LEDGER}: the assumption")
    book = Book({c.id: c for c in claims}, {a.id: a for a in assumptions}, tuple(missing))
    for check in (_scopes_match_cells, _one_scope_per_cell, _contradictions_known):
        check(book)
    return book


def with_claims(book: Book, file: Path, row: str, cells: Collection[str]) -> Book:
    """The book with a user's claims about one row, which has these cells, in the format of the paper's files."""
    mine = list(_claims(read(file), file.name))
    refuse_duplicates((c.id for c in mine), f"{file.name}: the claim")
    for claim in mine:
        wanted = f"{claim.table}/{row}/{claim.column}"
        if wanted not in cells or claim.id != wanted:
            mend = wanted if wanted in cells else f"one of {', '.join(cells)}"
            raise ClaimError(f"{file.name}, {claim.id}: not a cell of the row {row}; write {mend}")
        if claim.id in book.claims:
            raise ClaimError(f"{file.name}, {claim.id}: this cell has a printed claim already; remove it")
    return Book({**book.claims, **{c.id: c for c in mine}}, book.assumptions)


def _alternatives(ids: str) -> list[str]:
    """``V/{3D,5D}/Work``: the ids V/3D/Work and V/5D/Work."""
    parts = re.split(r"\{([^{}]*)\}", ids)
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


# -- reading ----------------------------------------------------------------------------------------------------------
def _claims(data: dict[str, Any], file: str) -> Iterator[Claim]:
    refuse_unknown_keys(data, TABLE_KEYS, file)
    definitions = [_definition(text, file) for text in texts(data, "definitions", file)]
    for entry in entries(data, "claim", file):
        yield _claim(entry, data, definitions, file)


def _definition(text: str, file: str) -> tuple[str | Call, Expr]:
    try:
        return parse_definition(text)
    except ParseError as error:
        raise ClaimError(f"{file}: the definition `{text}` does not parse: {error}") from None


def _claim(entry: dict[str, Any], table: dict[str, Any], definitions: list[Definition], file: str) -> Claim:
    name = text(entry, "id", file)
    place = f"{file}, {name}"
    refuse_unknown_keys(entry, CLAIM_KEYS, place)
    row, column = _row_and_column(entry, name, place)
    printed = text(entry, "latex", place)
    whole = _parsed(printed, place)
    expr = _part(whole, one_of(entry["part"], PARTS, "part", place), place) if "part" in entry else whole
    corrected = _corrected(expr, whole, text(entry, "unbound", place), place) if "unbound" in entry else None
    _symbols_are_bound(corrected or expr, place)
    kind = one_of(entry.get("kind", table.get("kind")), KINDS, "kind", place)
    _order_says_so(expr, kind, place)
    for short, long in definitions:
        expr = spelled_out(expr, short, long) if isinstance(short, Call) else replace(expr, long, Sym(short))
    return Claim(
        id=name,
        table=text(table, "table", file),
        row=row,
        column=column,
        kind=kind,
        latex=printed,
        expr=expr,
        symbol=_symbol(entry["symbol"], place) if "symbol" in entry else None,
        symbols=free_symbols(expr),
        corrected=corrected,
        opaque=table.get("opaque") is True,
    )


def _part(whole: Expr, part: str, place: str) -> Expr:
    """The terms of a printed sum that are exact, or its remainder: those with an O(...)."""
    terms = whole.terms if isinstance(whole, Add) else (whole,)
    kept = [t for t in terms if any(isinstance(x, Order) for x in walk(t)) == (part == "remainder")]
    if not kept:
        raise ClaimError(f"{place}: no term of the printed sum is {'a bound O(...)' if part == 'remainder' else part}")
    return add(*kept)


def _corrected(expr: Expr, whole: Expr, index: str, place: str) -> Sum:
    """The expression inside the sum of the same printed formula that binds its loose index."""
    if index not in free_symbols(expr):
        raise ClaimError(f"{place}: the index {index} is not loose; remove `unbound`")
    sums = {(s.index, s.lower, s.upper): s for s in walk(whole) if isinstance(s, Sum) and s.index == index}
    if len(sums) != 1:
        raise ClaimError(
            f"{place}: {len(sums)} printed sums bind the index {index}; one is needed to correct the formula"
        )
    ((_, lower, upper),) = sums
    return Sum(expr, index, lower, upper)


def spelled_out(expr: Expr, short: Call, long: Expr) -> Expr:
    """The expression with a defined cost written out for the model at hand."""
    if isinstance(expr, Call) and expr.name == short.name:
        return _about(long, expr.args)
    return rebuild(expr, lambda child: spelled_out(child, short, long))


def _about(expr: Expr, models: tuple[str, ...]) -> Expr:
    """A definition for any model M, about the model named."""
    if isinstance(expr, Call):
        return Call(expr.name, models)
    return rebuild(expr, lambda child: _about(child, models))


def _row_and_column(entry: dict[str, Any], name: str, place: str) -> tuple[str, str]:
    """The printed headings: given, or the second and third part of the id."""
    if "row" in entry or "column" in entry:
        return text(entry, "row", place), text(entry, "column", place)
    parts = name.split("/")
    if len(parts) != 3:
        raise ClaimError(f"{place}: an id of the form table/row/column is needed where row and column are not given")
    return parts[1], parts[2]


def _parsed(latex: str, place: str) -> Expr:
    try:
        return parse(latex)
    except ParseError as error:
        raise ClaimError(f"{place}: {error}") from None


def _symbol(latex: str, place: str) -> Call:
    symbol = _parsed(latex, place)
    if not isinstance(symbol, Call):
        raise ClaimError(f"{place}: `symbol` must be a cost such as C_{{f}}^{{\\text{{tok}}}}(M)")
    return symbol


def _assumptions(data: dict[str, Any]) -> Iterator[Assumption]:
    refuse_unknown_keys(data, frozenset({"assumption"}), LEDGER)
    for entry in entries(data, "assumption", LEDGER):
        name = text(entry, "id", LEDGER)
        place = f"{LEDGER}, {name}"
        refuse_unknown_keys(entry, ASSUMPTION_KEYS, place)
        scopes = tuple(_scope(s, place) for s in entries(entry, "scope", place))
        yield Assumption(name, text(entry, "text", place), scopes, texts(entry, "contradicts", place))


def _scope(entry: dict[str, Any], place: str) -> Scope:
    refuse_unknown_keys(entry, SCOPE_KEYS, place)
    cells = entry.get("cells")
    if not isinstance(cells, list) or not cells or not all(isinstance(c, str) for c in cells):
        raise ClaimError(f"{place}: `cells` must be a list of patterns such as V/*/Work")
    return Scope(one_of(entry.get("origin"), ORIGINS, "origin", place), text(entry, "where", place), tuple(cells))


# -- named invariants -------------------------------------------------------------------------------------------------
def _symbols_are_bound(expr: Expr, place: str) -> None:
    loose = sorted(s for s in free_symbols(expr) if not is_size(s))
    if loose:
        raise ClaimError(f"{place}: the index {loose[0]} occurs outside a sum that binds it")


def _order_says_so(expr: Expr, kind: str, place: str) -> None:
    if kind != "order" and any(isinstance(x, Order) for x in walk(expr)):
        raise ClaimError(f"{place}: a claim of kind {kind!r} has an O(...), which only an order may have")


def _scopes_match_cells(book: Book) -> None:
    for assumption in book.assumptions.values():
        for pattern in (p for s in assumption.scopes for p in s.cells):
            if not any(fnmatchcase(cell, pattern) for cell in (*book.claims, *book.not_printed)):
                raise ClaimError(f"{LEDGER}, {assumption.id}: the pattern {pattern!r} matches no cell")


def _one_scope_per_cell(book: Book) -> None:
    for assumption in book.assumptions.values():
        for cell in (*book.claims, *book.not_printed):
            if sum(s.covers(cell) for s in assumption.scopes) > 1:
                raise ClaimError(f"{LEDGER}, {assumption.id}: two scopes cover {cell}, so its origin there is unclear")


def _contradictions_known(book: Book) -> None:
    for assumption in book.assumptions.values():
        for other in assumption.contradicts:
            book.assumption(other)
