"""From a cell's id to its verdict, as one record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from derive import cells
from derive.asymptotics.problem import Regime
from derive.cell import Cell, bound_json, domain_json, regime_text
from derive.cells import SCHEME_TABLES, STAGE_TABLES
from derive.claims import Book, Claim, Scope, load
from derive.details import explain_correction, explain_verdict
from derive.expr import Expr, calls
from derive.forms import Form, Max
from derive.generation import over_steps, sum_of_steps
from derive.ledger import FIXED, refuse_fixed
from derive.readings import Reading, domain_of, hypotheses_of, read, resolve, stands, weakest
from derive.records import ClaimError
from derive.reduce import order_argument, order_of_maximum
from derive.render.typeset import ORDER_TABLES, display
from derive.verdict import HOLDS, rest
from derive.workers import for_each
from derive.written import arranged, text
from graphs.errors import GraphError


def check_all(
    dropped: Iterable[str] = (), table: str | None = None, book: Book | None = None, jobs: int = 1
) -> list[Cell]:
    """Every supported cell, in the order of the tables; the result does not depend on ``jobs``, the processes used."""
    _claims_are_of_cells(book or load(), cells.cell_ids())
    return _checked(cells.cell_ids(), dropped, table, book, jobs)


def check_row(
    row: str, dropped: Iterable[str] = (), table: str | None = None, book: Book | None = None, jobs: int = 1
) -> list[Cell]:
    """The cells of one scheme's row in Tables V-VIII; the scheme need not have a row in the paper."""
    if table not in (None, *SCHEME_TABLES):
        raise GraphError(f"table {table} has no rows of schemes; choose one of {', '.join(SCHEME_TABLES)}")
    _claims_are_of_cells(book or load(), [*cells.cell_ids(), *cells.row_ids(row)])
    return _checked(cells.row_ids(row), dropped, table, book, jobs)


def _checked(ids: Iterable[str], dropped: Iterable[str], table: str | None, book: Book | None, jobs: int) -> list[Cell]:
    wanted = [c for c in ids if table in (None, c.split("/")[0])]
    return for_each(wanted, partial(check, dropped=tuple(dropped), book=book), jobs)


def _claims_are_of_cells(book: Book, known: Iterable[str]) -> None:
    if strange := sorted(book.claims.keys() - set(known)):
        raise ClaimError(f"{strange[0]}: a claim about a cell that derive/cells.py does not know; add it there")


def check(cell: str, dropped: Iterable[str] = (), book: Book | None = None) -> Cell:
    """The verdict of one cell; ``dropped`` assumptions are not in force."""
    book = book or load()
    dropped = tuple(sorted(set(dropped)))
    for name in dropped:
        book.assumption(name)
    refuse_fixed(n for n in dropped if n in in_force(cell, book))
    if cell not in book.claims:
        return _not_printed(cell, cells.instances(cell)[0], _Force.of(cell, dropped, book).base)
    return _case(cell, dropped, book).cell()


def foundations(cell: str) -> dict[str, str]:
    """For each assumption in force at a printed cell: load-bearing, idle, or built in (it cannot be dropped)."""
    case = _case(cell, (), load())
    names = case.decided.assumptions
    return {n: "built in" if n in FIXED else "load-bearing" if case.rests_on(n) else "idle" for n in sorted(names)}


def in_force(cell: str, book: Book) -> dict[str, Scope]:
    """Assumptions that cover the cell, and those that its scheme declares, with their origin.

    What a scheme declares holds for the columns for which the ledger has it.
    """
    own = [book.assumption(name) for name in cells.declared_for(cell)]
    if not own:
        return book.in_force(cell)
    table, _, column = cell.split("/")
    here = [a for a in own if any(a.scope_for(f"{table}/{row}/{column}") for row in cells.ROWS)]
    return {a.id: Scope("implied", "the scheme's own file", (cell,)) for a in here} | book.in_force(cell)


def _case(cell: str, dropped: Sequence[str], book: Book) -> _Case:
    return _Case(book.claim(cell), cells.instances(cell), _Force.of(cell, dropped, book), book)


@dataclass(frozen=True)
class _Force:
    """Assumptions of a cell: in force, and those that contradict the caption and can only rescue."""

    scopes: Mapping[str, Scope]
    rescue: tuple[str, ...]

    @staticmethod
    def of(cell: str, dropped: Sequence[str], book: Book) -> _Force:
        scopes = {n: s for n, s in in_force(cell, book).items() if n not in dropped}
        against = book.contradicted(cell)
        return _Force(scopes, tuple(n for n, other in against.items() if n in scopes and other not in dropped))

    @property
    def base(self) -> tuple[str, ...]:
        return tuple(n for n in self.scopes if n not in self.rescue)


class _Case:
    """One printed cell on its way to a verdict."""

    def __init__(self, claim: Claim, instances: Sequence[cells.Instance], force: _Force, book: Book) -> None:
        self.claim, self.force, self.book = claim, force, book
        self.instances = instances if claim.is_well_formed else [i.iteration for i in instances]
        self.asked = instances[0]
        self.readings = self.read(force.base, most=self.most_conditions())
        self.plain = weakest(self.readings)
        self.rescued: Reading | None = None
        if self.plain.judgement.verdict not in HOLDS and force.rescue:
            found = weakest(self.read((*force.base, *force.rescue), most=2))
            self.rescued = found if found.holds else None
            if self.rescued is None:
                self.plain = weakest(self.read(force.base, most=2))

    def read(self, assumptions: Sequence[str], most: int) -> list[Reading]:
        return [read(self.claim, i, assumptions, self.book, most) for i in self.instances]

    def most_conditions(self) -> int:
        """How many conditions to try together before an assumption may rescue the claim.

        An exact claim needs that assumption anyway; an order may do with one condition instead.
        """
        if not self.force.rescue:
            return 2
        return 1 if self.claim.kind == "order" else 0

    @property
    def decided(self) -> Reading:
        return self.rescued or self.plain

    @property
    def rescue(self) -> tuple[str, ...]:
        return self.force.rescue if self.rescued else ()

    @property
    def verdict(self) -> str:
        return "CONDITIONAL" if self.rescued else self.plain.judgement.verdict

    def cell(self) -> Cell:
        return self.well_formed() if self.claim.is_well_formed else self.corrected()

    def corrected(self) -> Cell:
        """The cell of a printed form that says nothing as it stands, with the judgement on its corrected form."""
        claim, table = self.claim, self.claim.table
        value = cells.derive(self.asked, self.plain.assumptions).value
        order = self.reduced()
        reduced = None if order is None else sum_of_steps(display(order, order=True))
        return Cell(
            id=claim.id,
            table=table,
            row=claim.row,
            column=claim.column,
            printed=claim.latex,
            derived=text(arranged(self.asked, self.plain.assumptions, value), table),
            derived_order=None if reduced is None else text(reduced, table),
            verdict="REFUTED",
            assumptions=tuple(sorted(self.plain.assumptions)),
            kind=claim.kind,
            detail=explain_correction(claim, self.verdict, self.regime(), self.leaned_on()),
            value=value,
            order_form=None if order is None else over_steps(order),
            context={"corrected": self.correction(), "readings": [self._other(self.plain)]},
        )

    def correction(self) -> dict[str, str | None]:
        """The corrected form, and what holds of it."""
        assert self.claim.corrected is not None
        verdict = {"verdict": self.verdict, "regime": self.regime(), "regime_verdict": self.regime_verdict()}
        return {"expr": text(self.claim.corrected, self.claim.table), **verdict}

    def reduced(self) -> Form | None:
        if self.claim.kind != "order":
            return None
        return order_argument(self.plain.measured.value, self.plain.domain, self.plain.hypotheses)

    def derived(self, reading: Reading) -> Expr:
        return arranged(reading.instance, reading.assumptions, reading.measured.value)

    def well_formed(self) -> Cell:
        claim, decided, reduced = self.claim, self.decided, self.reduced()
        return Cell(
            id=claim.id,
            table=claim.table,
            row=claim.row,
            column=claim.column,
            printed=claim.latex,
            printed_expr=text(claim.expr, claim.table),
            derived=text(self.derived(self.plain), claim.table),
            derived_order=None if reduced is None else text(display(reduced, order=True), claim.table),
            expanded=_expanded(claim.table, self.plain.instance, self.plain.assumptions),
            verdict=self.verdict,
            assumptions=tuple(sorted(self.plain.assumptions)),
            regime=self.regime(),
            regime_verdict=self.regime_verdict(),
            weakest=self.weakest(),
            directions=decided.judgement.directions,
            slack=self.slack(),
            certificate=self.certificate(),
            kind=claim.kind,
            implied=self.leaned_on(),
            witness=self.plain.judgement.witness,
            detail=explain_verdict(claim, self.verdict, self.plain, decided, self.rescue, self.regime()),
            value=self.plain.measured.value,
            order_form=reduced,
            context=self.context(),
        )

    def context(self) -> dict[str, Any]:
        table, decided = self.claim.table, self.decided
        bounds = [b for reading in (self.plain, decided) for r in reading.judgement.regimes for b in r.bounds]
        out: dict[str, Any] = {**self._ties(decided), "regime_bounds": [bound_json(b) for b in dict.fromkeys(bounds)]}
        force = dict.fromkeys((*self.plain.hypotheses, *decided.hypotheses))
        out["hypotheses"] = [bound_json(b) for b in force]
        if self.rescued:
            out["rescued"] = text(display(decided.measured.value), table)
        others = [r for r in self.readings if r is not self.plain]
        if others:
            out["readings"] = [self._other(r) for r in others]
        return out

    def _other(self, reading: Reading) -> dict[str, Any]:
        """The claim for another model, judged on its own."""
        judged = reading.judgement
        return {
            "model": reading.model,
            "printed": self.claim.latex,
            "printed_expr": text(self.claim.expr, self.claim.table),
            "derived": text(display(reading.measured.value), self.claim.table),
            "verdict": judged.verdict,
            "certificate": judged.certificate,
            "witness": judged.witness,
            "regime_bounds": [bound_json(b) for r in judged.regimes for b in r.bounds],
            **self._ties(reading),
        }

    def _ties(self, reading: Reading) -> dict[str, Any]:
        domain, table = reading.domain, self.claim.table
        costs = () if self.claim.opaque else calls(self.claim.expr)
        named = {text(c, table): text(resolve(c, self.book, reading.model), table) for c in costs}
        return {
            "reads": dict(sorted(named.items())),
            "domain": domain_json(domain),
            "hypotheses": [bound_json(b) for b in reading.hypotheses],
        }

    def regime(self) -> str | None:
        """The conditions under which the claim holds; alternatives are joined by ``or``."""
        return self._alternatives(lambda regimes: regimes[:1])

    def weakest(self) -> str | None:
        """The same with the weakest condition that suffices in place of a readable one; None where none is known."""
        regimes = [*self.plain.judgement.regimes, *(self.rescued.judgement.regimes if self.rescued else ())]
        if not any(r.weakest for r in regimes):
            return None
        return self._alternatives(lambda regimes: [r for r in regimes if r.weakest][:1] or regimes[:1])

    def _alternatives(self, chosen: Callable[[Sequence[Regime]], Sequence[Regime]]) -> str | None:
        options = [regime_text(r) for r in chosen(self.plain.judgement.regimes)]
        if self.rescued:
            needed = [regime_text(r) for r in chosen(self.rescued.judgement.regimes)]
            options.append(" and ".join([*self.rescue, *needed]))
        return " or ".join(options) or None

    def regime_verdict(self) -> str | None:
        """The verdict under each of the alternatives of `regime`."""
        options = [self.plain.judgement.under] if self.plain.judgement.under else []
        if self.rescued:
            options.append(self.rescued.judgement.under or self.rescued.judgement.verdict)
        return " or ".join(options) or None

    def slack(self) -> str | None:
        """Derived minus printed for exact claims; None where they agree or an order is claimed."""
        gap = rest(self.decided.measured.value, self.decided.printed) if self.claim.kind != "order" else None
        return text(display(gap), self.claim.table) if gap else None

    def certificate(self) -> Mapping[str, Any]:
        if self.rescued is None:
            return self.plain.judgement.certificate
        out = {"kind": "conditional", "assuming": list(self.rescue), "proof": self.rescued.judgement.certificate}
        plain = self.plain.judgement.certificate
        return {**out, "regimes": plain["regimes"]} if plain else out

    def leaned_on(self) -> tuple[str, ...]:
        """Implied assumptions that the verdict rests on."""
        implied = [n for n in self.decided.assumptions if self.force.scopes[n].origin == "implied"]
        return tuple(sorted(n for n in implied if self.rests_on(n)))

    def rests_on(self, name: str) -> bool:
        """Is the claim no longer proven to the same strength without the assumption, the same condition granted?"""
        if name in self.rescue or name in FIXED or not self.decided.holds:
            return name in self.rescue or (name in FIXED and self.decided.holds)
        regime = next(iter(self.decided.judgement.regimes), None)
        others = [n for n in self.decided.assumptions if n != name]
        return not stands(self.claim, self.decided, others, regime)


def _not_printed(cell: str, instance: cells.Instance, base: Sequence[str]) -> Cell:
    table, row, column = cells.headings(cell)
    value = cells.derive(instance, base).value
    reduced: Form | Max | None = None
    if table in ORDER_TABLES:
        reduce = order_of_maximum if table in STAGE_TABLES else order_argument
        reduced = reduce(value, domain_of(instance, base), hypotheses_of(base, value.symbols))
    return Cell(
        id=cell,
        table=table,
        row=row,
        column=column or cells.FORMULA_COLUMN,
        derived=text(arranged(instance, base, value), table),
        derived_order=None if reduced is None else text(display(reduced, order=True), table),
        expanded=_expanded(table, instance, base),
        verdict="NOT_PRINTED",
        assumptions=tuple(sorted(base)),
        detail="The copy of the paper at hand prints no such cell; the derived cost stands alone."
        if any(value.members)
        else "No model runs here, so there is nothing to print.",
        value=value,
        order_form=reduced,
    )


def _expanded(table: str, instance: cells.Instance, assumptions: Sequence[str]) -> str | None:
    value = cells.expanded(instance, assumptions)
    return None if value is None else text(display(value), table)
