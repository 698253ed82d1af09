"""The O-argument of a derived cost: what is left when constants and dominated terms are dropped, with proof."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from derive.asymptotics.problem import Bound, Domain, Proved
from derive.asymptotics.prove import order
from derive.forms import Form, Log, Max, split_content, total


def order_argument(value: Max, domain: Domain, hypotheses: Sequence[Bound]) -> Form | None:
    """The derived cost as a reduced O-argument: coefficients 1, dominated terms dropped; None where not proven.

    Terms are grouped by what multiplies their logs.  Signed logs of a group stay together (``log(d/P_t)``) where
    dropping the negative part would change the class.
    """
    if len(value.members) != 1:
        value = Max.of(total(Form({m: 1}) for m in {m for f in value.members for m, c in f.terms.items() if c > 0}))
    groups = _log_groups(value.members[0])

    def same(candidate: Form) -> bool:
        there, back = (value, Max.of(candidate)), (Max.of(candidate), value)
        return all(isinstance(order(a, b, domain, hypotheses, refute=False), Proved) for a, b in (there, back))

    for i, group in enumerate(groups):
        simple = Form({m: 1 for m, c in group.terms.items() if c > 0})
        scaled = group / _number(group)
        groups[i] = simple if same(total([*groups[:i], simple, *groups[i + 1 :]])) else scaled
    candidate = total(groups)
    return _pruned(candidate, domain, hypotheses) if same(candidate) else None


def order_of_maximum(value: Max, domain: Domain, hypotheses: Sequence[Bound]) -> Max | None:
    """The same, member by member: the order of a maximum is the maximum of the orders."""
    found = [order_argument(Max.of(f), domain, hypotheses) for f in value.members]
    return None if any(f is None for f in found) else Max.of(*(f for f in found if f is not None))


def _number(form: Form) -> Fraction:
    """The common numeric factor of the coefficients."""
    ((_, c),) = split_content(form)[0].terms.items()
    return c


def _log_groups(form: Form) -> list[Form]:
    """Terms with the same sizes in front, constants left out; the order is that of printing."""
    groups: dict[tuple[Any, ...], dict[Any, Any]] = {}
    for monomial, c in form.ordered:
        if monomial or len(form.terms) == 1:
            sizes = tuple(x for x in monomial if not isinstance(x[0], Log))
            groups.setdefault(sizes, {})[monomial] = c
    return [Form(terms) for terms in groups.values()]


def _pruned(form: Form, domain: Domain, hypotheses: Sequence[Bound]) -> Form:
    """Without the terms that the rest bounds; groups with signed logs stay whole."""
    kept = dict(form.terms)
    whole = {m for g in _log_groups(form) if any(c < 0 for c in g.terms.values()) for m in g.terms}
    for monomial, _ in reversed(form.ordered):
        rest = {m: c for m, c in kept.items() if m != monomial}
        if monomial in whole or not rest:
            continue
        answer = order(Max.of(Form({monomial: 1})), Max.of(Form(rest)), domain, hypotheses, refute=False)
        if isinstance(answer, Proved):
            kept = rest
    return Form(kept)
