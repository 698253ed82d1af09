"""Bounds as a reader sees them: cancelled, in pieces, and how much of them there is to read."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from derive.asymptotics.problem import Bound
from derive.asymptotics.rates import Some
from derive.forms import Form, Log, Monomial, split_content


@dataclass(frozen=True)
class Candidate:
    """Bounds that may be a regime, the families that meet them, and how much there is to read."""

    bounds: tuple[Bound, ...]
    meets: Some
    complexity: int

    @property
    def key(self) -> tuple[int, int, str]:
        """Simple ones first, then those that allow more."""
        return self.complexity, -int(self.meets.sum()), " and ".join(b.text for b in self.bounds).swapcase()


def sizes_of(monomial: Monomial) -> Monomial:
    return tuple(x for x in monomial if not isinstance(x[0], Log))


def logs_of(group: Form) -> Form:
    """The logs of a group, without the constant and what they share in front."""
    logs = Form({m: c for m, c in group.terms.items() if m != sizes_of(m)})
    return logs * split_content(logs)[0].inverse()


def pieces(form: Form) -> list[Form]:
    """Positive monomials and, where logs occur, all terms with the same sizes in front."""
    groups: dict[Monomial, dict[Monomial, Fraction]] = {}
    for monomial, c in form.ordered:
        groups.setdefault(sizes_of(monomial), {})[monomial] = c
    out = [Form(terms) for terms in groups.values()]
    return [g for g in out if any(c > 0 for c in g.terms.values())]


def cancelled(bound: Bound) -> Bound:
    """Without the sizes that all terms of both sides share."""
    terms = [dict(sizes_of(m)) for side in (bound.left, bound.right) for m in side.terms]
    powers = {s: [t.get(s, 0) for t in terms] for s in sorted({s for t in terms for s in t}, key=str)}
    shared = {s: min(p) if min(p) > 0 else min(0, max(p)) for s, p in powers.items()}
    factor = Form({tuple((s, -p) for s, p in shared.items() if p): 1})
    return Bound(bound.left * factor, bound.right * factor)


def quotient(small: Form, large: Form) -> Bound:
    """``small = O(large)`` of two monomials, cancelled, without divisors."""
    ((monomial, _),) = (small * large.inverse()).terms.items()
    above = Form({tuple((s, p) for s, p in monomial if p > 0): 1})
    return Bound(above, Form({tuple((s, -p) for s, p in monomial if p < 0): 1}))


def terms_of(bound: Bound) -> int:
    """Terms of the right side, logs with the same sizes in front counted once."""
    return len({sizes_of(m) if any(isinstance(x, Log) for x, _ in m) else m for m in bound.right.terms})


def complexity(bound: Bound) -> int:
    """Symbols to read, common factors once, and one more for logs."""
    return int(bound.left.has_logs) + _length(bound.left) + _length(bound.right)


def _length(form: Form) -> int:
    groups: dict[Monomial, int] = {}
    shared, rest = split_content(form)
    for monomial in rest.terms:
        front = sizes_of(monomial)
        groups[front] = groups.get(front, sum(abs(p) for _, p in front)) + len(monomial) - len(front)
    ((common, _),) = shared.terms.items()
    return sum(abs(p) for _, p in common) + sum(groups.values())
