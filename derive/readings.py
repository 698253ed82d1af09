"""A reading: one model's version of a claim, derived and judged under a set of assumptions.

This is the only place where a derived cost and a printed claim meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from derive import cells, expr
from derive.asymptotics.problem import Bound, Domain, Regime, as_max
from derive.claims import Book, Claim
from derive.expr import Call, Expr
from derive.forms import Form, Max, symbol
from derive.ledger import FACTS, HYPOTHESES, narrowed, under
from derive.measure import Measured
from derive.normal import named_costs, single_form, to_form
from derive.records import ClaimError
from derive.render.typeset import with_m
from derive.sums import without_sums
from derive.textform import parse_text
from derive.verdict import HOLDS, VERDICTS, Judgement, climb, judge
from graphs.schemes import schemes
from graphs.symbols import MODELS, PER_MODEL

#: counts that a regime may keep constant, besides degrees of parallelism; along the other sizes costs are claimed
COUNTS = frozenset({"h", "E", "E_a"})
#: what the context length m is the sum of
SEQUENCE = frozenset({"S", "T"})
#: a witness keeps heads this wide where it can
TYPICAL = {"d_h": 128}


@dataclass(frozen=True)
class Reading:
    """What was asked, what the graph gave, what is printed, and the judgement."""

    instance: cells.Instance
    assumptions: tuple[str, ...]
    measured: Measured
    printed: Max
    domain: Domain
    hypotheses: tuple[Bound, ...]
    judgement: Judgement

    @property
    def model(self) -> str | None:
        return self.instance.model

    @property
    def holds(self) -> bool:
        return self.judgement.verdict in (*HOLDS, "CONDITIONAL")


def read(claim: Claim, instance: cells.Instance, assumptions: Sequence[str], book: Book, most: int = 2) -> Reading:
    """Derive and judge; where the claim fails, at most so many conditions are tried together."""
    names = tuple(assumptions)
    given = printed_value(claim, book, instance.model)
    measured, printed, domain = tied(claim, cells.derive(instance, names), given, domain_of(instance, names))
    hypotheses = hypotheses_of(names, measured.value.symbols | printed.symbols)
    judgement = _judged(measured.value, printed, claim.kind, _Frozen(domain), hypotheses, most)
    return Reading(instance, names, measured, printed, domain, hypotheses, judgement)


def stands(claim: Claim, reading: Reading, assumptions: Sequence[str], regime: Regime | None) -> bool:
    """Does the claim keep its strength under other assumptions, the same condition granted?"""
    names = tuple(assumptions)
    free = domain_of(reading.instance, names)
    measured, printed, domain = tied(claim, cells.derive(reading.instance, names), reading.printed, free)
    extra = regime.bounds if regime else ()
    hypotheses = (*hypotheses_of(names, measured.value.symbols | printed.symbols), *extra)
    found = climb(measured.value, printed, claim.kind, domain, hypotheses, refute=False).verdict
    wanted = reading.judgement.verdict
    return found in HOLDS and (wanted == "CONDITIONAL" or VERDICTS.index(found) <= VERDICTS.index(wanted))


class _Frozen(Domain):
    """A domain that can be a key."""

    def __init__(self, domain: Domain) -> None:
        super().__init__(domain.factors, domain.least, domain.typical)

    def __hash__(self) -> int:
        return hash((tuple(self.factors.items()), tuple(self.least.items())))


@lru_cache(maxsize=1024)
def _judged(
    derived: Max,
    printed: Max,
    kind: str,
    domain: Domain,
    hypotheses: tuple[Bound, ...],
    most: int,
) -> Judgement:
    names = derived.symbols | printed.symbols
    names |= {n for b in hypotheses for n in b.left.symbols | b.right.symbols}
    return judge(derived, printed, kind, domain, hypotheses, constants(names), most)


def weakest(readings: Sequence[Reading]) -> Reading:
    """The reading that decides: a claim about every model holds as far as it holds for the worst."""
    return max(readings, key=lambda r: VERDICTS.index(r.judgement.verdict))


# -- what is printed --------------------------------------------------------------------------------------------------
def printed_value(claim: Claim, book: Book, model: str | None) -> Max:
    """The printed form's value, or the argument of its O."""
    try:
        if claim.opaque:
            return as_max(to_form(named_costs(order_to_value(with_m(claim.expr)))))
        return as_max(to_form(without_sums(order_to_value(with_m(resolve(claim.expr, book, model))))))
    except ValueError as error:
        raise ClaimError(f"{claim.id}: {error}") from None


def tied(claim: Claim, measured: Measured, printed: Max, domain: Domain) -> tuple[Measured, Max, Domain]:
    """The same, with m written as S + T everywhere where the claim has S or T outside of S + T.

    Otherwise m, S and T would vary independently.  ClaimError where a scheme divides m, or a cost is divided by it.
    """
    if not SEQUENCE & printed.symbols:
        return measured, printed, domain
    if "m" in domain.factors:
        raise ClaimError(f"{claim.id}: S and T stand apart, but the scheme divides their sum; write S + T")
    whole = {"m": symbol("S") + symbol("T")}
    try:
        parts = tuple((where, amount.substitute(whole)) for where, amount in measured.parts)
        value = Measured(measured.value.substitute(whole), parts)
        least = {name: bound for name, bound in domain.least.items() if name != "m"}
        return value, printed.substitute(whole), replace(domain, least=least)
    except ValueError as error:
        raise ClaimError(f"{claim.id}: S and T stand apart, where {error}; write S + T") from None


def resolve(e: Expr, book: Book, model: str | None, seen: tuple[Call, ...] = ()) -> Expr:
    """Costs that a table names, ``C_f_tok(pi)``, become what the table prints for them; M becomes ``model``."""
    if isinstance(e, Call):
        call = Call(e.name, tuple(model if a == "M" and model else a for a in e.args))
        for claim in book.claims.values():
            if claim.symbol == call:
                if call in seen:
                    raise ClaimError(f"{claim.id}: {expr.text(call)} is defined by itself")
                return resolve(claim.expr, book, model, (*seen, call))
        return e
    return expr.rebuild(e, lambda child: resolve(child, book, model, seen))


def order_to_value(e: Expr) -> Expr:
    """Every ``O(x)`` becomes ``x``: a sum of a cost and a bound is one bound."""
    return order_to_value(e.arg) if isinstance(e, expr.Order) else expr.rebuild(e, order_to_value)


# -- where it is claimed ----------------------------------------------------------------------------------------------
def bound(text: str) -> Bound:
    """``left = O(right)`` in text form; a named cost is a size of its own."""
    left, _, right = text.partition("=")
    return Bound(*(single_form(named_costs(order_to_value(parse_text(side)))) for side in (left, right)))


def domain_of(instance: cells.Instance, assumptions: Sequence[str]) -> Domain:
    """Free factors of the reading's scheme; a context has two tokens, a pipeline two stages."""
    q = under(instance.question, assumptions)
    pipeline = schemes()[q.scheme].pipeline
    least = {"m": 2} | ({pipeline: 2} if pipeline else {})
    return Domain(narrowed(dict(q.factors), assumptions), least, TYPICAL)


def hypotheses_of(assumptions: Sequence[str], names: frozenset[str]) -> tuple[Bound, ...]:
    """Facts, and the hypotheses among the assumptions, that bound one of these sizes, for the model at hand."""
    texts = dict.fromkeys([*FACTS, *(HYPOTHESES[a] for a in assumptions if a in HYPOTHESES)])
    return tuple(b for b in (_for_model(bound(t), names) for t in texts) if b.left.symbols <= names)


def constants(names: Iterable[str]) -> frozenset[str]:
    """The sizes among the names that a regime may keep constant."""
    return frozenset(n for n in names if n.startswith("P_") or n in COUNTS or _stem(n) in COUNTS & set(PER_MODEL))


def _stem(name: str) -> str:
    stem, _, model = name.rpartition("_")
    return stem if model in MODELS else name


def _for_model(general: Bound, names: frozenset[str]) -> Bound:
    """The bound with ``d_ff`` as ``d_ff_pi`` where the names are those of model pi."""
    suffix = next((f"_{model}" for model in MODELS if f"d_{model}" in names), "")
    if not suffix:
        return general
    rename = {n: Form.atom(f"{n}{suffix}") for n in PER_MODEL}
    return Bound(general.left.substitute(rename), general.right.substitute(rename))
