"""Regimes: hypotheses under which a claim that fails in general is proved.

The weakest regime of an order claim says that the failing terms of f are O(g).  Readable regimes are single bounds
(``h*m = O(d)``, ``V = O(d)``, ``P_t = O(1)``, a log by a form of g) or two of them.  Candidates come from the failing
terms; a `Pool` of families drops those that cannot help, and what is left counts only with a checked certificate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations

from derive.asymptotics.bounds import Candidate, cancelled, complexity, logs_of, pieces, quotient, sizes_of, terms_of
from derive.asymptotics.checker import Rejected
from derive.asymptotics.problem import Bound, Domain, Proved, Regime, as_max
from derive.asymptotics.prove import DERIVED, leading, order
from derive.asymptotics.question import Question, Value
from derive.asymptotics.rates import Pool, Some
from derive.forms import Form, Log, Monomial, total

ONE = Form.constant(1)
MAX_PROOFS = 24  # of the claim, in one search
MAX_PAIRS = 3
MAX_LEADING = 3
MAX_FACTORS = 2  # on either side of a readable bound
MAX_SYMBOLS = 6  # in a readable regime


def search(
    f: Value,
    g: Value,
    domain: Domain,
    hypotheses: Sequence[Bound],
    kind: str,
    most: int = 2,
    constants: Collection[str] | None = None,
) -> tuple[Regime, ...]:
    """Readable regimes of at most so many bounds, weak ones before strong ones, and the weakest regime where known.

    ``kind`` is ``order`` or ``leading``; only ``constants`` (by default every size) may be kept below a constant.  The
    weakest regime is marked; it comes last unless it is readable itself.  Without a readable one there is none.
    """
    if most < 1:
        return ()
    try:
        return _Search(f, g, domain, hypotheses, kind, constants).regimes(most)
    except Rejected:
        return ()


class _Search:
    def __init__(
        self,
        f: Value,
        g: Value,
        domain: Domain,
        hypotheses: Sequence[Bound],
        kind: str,
        constants: Collection[str] | None,
    ) -> None:
        self.f, self.g, self.domain, self.hypotheses, self.kind = as_max(f), as_max(g), domain, tuple(hypotheses), kind
        self.setting = Question(kind, f, g, domain, self.hypotheses, DERIVED, 0).setting
        self.symbols = sorted(self.f.symbols | self.g.symbols | self._bounding(self.f.symbols | self.g.symbols))
        self.constants = set(self.symbols) if constants is None else set(constants)
        self.pool = Pool(self.setting, self.free(self.symbols))
        self.proofs = MAX_PROOFS
        self.known: dict[Bound, Some] = {}

    def _bounding(self, names: Collection[str]) -> set[str]:
        """Sizes that hypotheses put above those of the claim (E, where E_a = O(E))."""
        return {s for b in self.hypotheses if b.left.symbols & set(names) for s in b.right.symbols}

    def free(self, names: Iterable[str]) -> list[str]:
        return sorted({s for name in names for s, _ in self.setting.mono(name)})

    @cached_property
    def fails(self) -> Some:
        """Families along which an order claim fails."""
        return self.pool.outgrown(self.f.members, self.g.members)

    # -- failing terms ------------------------------------------------------------------------------------------------
    @cached_property
    def failing(self) -> list[Form]:
        """What g does not bound: monomials of f, or a size times logs; those that others bound are left out.

        For leading order, what does not fade.
        """
        if self.kind == "leading":
            return [*self.lasting(self.pool.every), *self.differences[1]]
        found: list[Form] = []
        for member in self.f.members:
            for piece in pieces(member):
                if self.pool.outgrown([piece], self.g.members).any():
                    found += [p for p in self.without_logs(piece) if p not in found]
        for piece in list(reversed(found)):
            others = [p for p in found if p != piece]
            if others and self.below(piece, total([self.right, *others])):
                found = others
        return found

    def without_logs(self, piece: Form) -> list[Form]:
        """The piece with coefficient 1; in place of a form in logs, the few logs of sizes that make it fail."""
        if not piece.has_logs:
            return [Form(dict.fromkeys(piece.terms, 1))]
        front = Form({sizes_of(next(iter(piece.terms))): 1})
        logs = {atom for m in piece.terms for atom, _ in m if isinstance(atom, Log)}
        chosen: list[Form] = []
        for log in sorted(logs, key=lambda x: (len(self.free(x.arg.symbols)), x.text)):
            term = front * Form.atom(log)
            bounded = not self.pool.outgrown([term], self.g.members).any()
            if bounded or self.below(term, total([self.right, *chosen])) or not self.implied(term):
                continue
            chosen.append(term)
            if self.below(piece, total([self.right, *chosen])):
                return [total(chosen)]
        return [piece]

    def tight(self) -> bool:
        """Is the simplified right side no larger than g?"""
        return isinstance(order(self.right, self.g, self.domain, self.hypotheses, refute=False), Proved)

    def implied(self, term: Form) -> bool:
        """Is the term O(f), so that bounding it is necessary?"""
        return isinstance(order(term, self.f, self.domain, self.hypotheses, refute=False), Proved)

    def below(self, small: Form, large: Form, extra: Sequence[Bound] = ()) -> bool:
        """Is small = O(large), as far as families and proofs tell?"""
        if (self.pool.outgrown([small], [large]) & self.meets(extra)).any():
            return False
        return isinstance(order(small, large, self.domain, [*self.hypotheses, *extra], refute=False), Proved)

    @cached_property
    def right(self) -> Form:
        """g with coefficients 1, without the terms that others dominate; signed groups of logs stay whole."""
        kept: dict[Monomial, Fraction] = {}
        for member in self.g.members:
            for group in pieces(member):
                kept |= self.plain(group).terms
        signed_fronts = {sizes_of(m) for m, c in kept.items() if c < 0}
        for monomial in sorted(kept, key=lambda m: Form({m: 1}).text, reverse=True):
            rest = Form({m: c for m, c in kept.items() if m != monomial})
            if rest and sizes_of(monomial) not in signed_fronts and self.below(Form({monomial: 1}), rest):
                del kept[monomial]
        return Form(kept)

    def plain(self, group: Form) -> Form:
        """A group of the same order without coefficients, dominated terms and, where it can be, negative ones."""
        positive = Form({m: 1 for m, c in group.terms.items() if c > 0})
        signs = Form({m: 1 if c > 0 else -1 for m, c in group.terms.items()})
        if positive == signs:
            for monomial, _ in reversed(positive.ordered):
                rest = positive - Form({monomial: 1})
                positive = rest if rest and self.below(Form({monomial: 1}), rest) else positive
            return positive
        for form in (positive, signs):
            if self.below(form, group) and self.below(group, form):
                return form
        return group

    # -- candidates ---------------------------------------------------------------------------------------------------
    def meets(self, bounds: Iterable[Bound]) -> Some:
        out = self.pool.every
        for bound in bounds:
            out &= self.satisfied(bound)
        return out

    def satisfied(self, bound: Bound) -> Some:
        if bound not in self.known:
            self.known[bound] = self.pool.satisfied(bound)
        return self.known[bound]

    def candidate(self, *bounds: Bound) -> Candidate:
        return Candidate(bounds, self.meets(bounds), sum(map(complexity, bounds)) + len(bounds) - 1)

    def suspects(self) -> list[str]:
        """Sizes in failing terms, and those that bound them."""
        found = {s for piece in self.failing for s in piece.symbols}
        return sorted(found | self._bounding(found))

    @cached_property
    def differences(self) -> tuple[list[Form], list[Form]]:
        """Terms of f - g and of g - f: those that stand alone, and those of groups that are signed in logs."""
        gaps = [a - b for a in self.f.members for b in self.g.members]
        groups = {g for gap in gaps for sign in (1, -1) for g in pieces(gap * sign)}
        plain = {Form({m: 1}) for g in groups if min(g.terms.values()) > 0 for m in g.terms}
        signed = {Form({m: c for m, c in g.terms.items() if c > 0}) for g in groups if min(g.terms.values()) < 0}
        return sorted(plain, key=lambda t: t.text), sorted(signed, key=lambda t: t.text)

    def lasting(self, meets: Some) -> list[Form]:
        """Differences without a size such that they, times a small power or a log of it, are O(g) on the families."""
        level = self.pool.level(self.g.members)

        def lasts(term: Form) -> bool:
            room = level - self.pool.level([term])
            ways = (
                self.pool.rates @ self.pool.vector(self.setting.mono(s)) > 0 for s in self.g.symbols | self.f.symbols
            )
            return not any((room >= way)[meets].all() for way in ways)

        return [t for t in self.differences[0] if lasts(t)]

    def simple(self) -> Iterator[Bound]:
        """``x = O(1)`` and ``x = O(y)``."""
        for name in self.suspects():
            size = Form.atom(name)
            if name in self.constants:
                yield Bound(size, ONE)
            yield from (Bound(size, Form.atom(other)) for other in sorted(self.g.symbols - {name}))

    def branches(self) -> Iterator[Bound]:
        """A failing term below a single term of g; for leading order, below it by a factor that can grow."""
        large = [Form({m: 1}) for x in self.g.members for m, c in x.terms.items() if c > 0]
        for small in self.failing:
            for x in large:
                if small.has_logs or x.has_logs or len(small.terms) > 1:
                    continue
                below = quotient(small, x)
                grows = sorted(below.right.symbols) if self.kind == "leading" else []
                yield from (quotient(below.left * Form.atom(s), below.right) for s in grows)
                yield from () if grows else (below,)

    def logs(self) -> Iterator[Bound]:
        """The logs of a failing term below the logs that g has in front of some size."""
        rights = [logs_of(self.plain(g)) for x in self.g.members for g in pieces(x) if g.has_logs]
        for small in self.failing if self.kind == "order" else ():
            if small.has_logs:
                left = Form({tuple(x for x in m if isinstance(x[0], Log)): 1 for m in small.terms})
                yield from (Bound(left, right) for right in rights)

    def readable(self, bounds: Iterable[Bound]) -> list[Candidate]:
        found = dict.fromkeys(b for b in bounds if self._fits(b))
        return sorted((self.candidate(b) for b in found), key=lambda c: c.key)

    def _fits(self, bound: Bound) -> bool:
        """Few factors on both sides; for leading order, and for constants, a bound on one size."""
        if bound.left.has_logs:
            return complexity(bound) <= MAX_SYMBOLS
        most = 1 if self.kind == "leading" else MAX_FACTORS
        left, right = (max(sum(abs(p) for _, p in m) for m in side.terms) for side in (bound.left, bound.right))
        if bound.right == ONE:
            return left == 1 and bound.left.symbols <= self.constants
        return 0 < left <= most and right <= most

    # -- the search ---------------------------------------------------------------------------------------------------
    def prove(self, bounds: Sequence[Bound]) -> Regime | None:
        if self.proofs < 1:
            return None
        self.proofs -= 1
        ask = order if self.kind == "order" else leading
        answer = ask(self.f, self.g, self.domain, [*self.hypotheses, *bounds], refute=False)
        return Regime(tuple(bounds), answer.certificate) if isinstance(answer, Proved) else None

    def may_hold(self, candidate: Candidate) -> bool:
        """No family refutes the claim under these bounds, and they leave every size free that they do not name."""
        bounded = self.bounded(candidate.bounds)
        meets = candidate.meets
        fails = self.lasting(meets) if self.kind == "leading" else (self.fails & meets).any()
        free = [s for s in self.pool.symbols if s not in bounded]
        return not fails and all((self.pool.grows(s) & meets).any() for s in free)

    def bounded(self, bounds: Sequence[Bound]) -> set[str]:
        """Free factors that the bounds say to be below a constant, and what hypotheses put below those."""
        out: set[str] = set()
        said = (*self.hypotheses, *(b for b in bounds if b.right == ONE))
        every = [(set(self.free(b.left.symbols)), set(self.free(b.right.symbols))) for b in said]
        for _ in every:
            for left, right in every:
                out |= left if right <= out else set()
        return out

    def implies(self, strong: Sequence[Bound], weak: Sequence[Bound]) -> bool:
        if (self.meets(strong) & ~self.meets(weak)).any():
            return False
        return all(self.below(b.left, b.right, strong) for b in weak)

    def regimes(self, most: int) -> tuple[Regime, ...]:
        if not self.failing:
            return ()
        found: list[tuple[Candidate, Regime]] = []
        sizes = self.readable([*self.simple(), *self.branches()])
        self.take(sizes, found, MAX_LEADING if self.kind == "leading" else len(sizes))
        if not found and most > 1:
            self.take(self.pairs(sizes), found, MAX_PAIRS)
        weakest = self.weakest() if self.kind == "order" and (found or len(self.failing) == 1) else None
        whole = weakest.bounds if weakest and len(weakest.bounds) == 1 and terms_of(weakest.bounds[0]) <= 2 else ()
        more = [self.candidate(b) for b in dict.fromkeys([*self.logs(), *whole])]
        more = sorted((c for c in more if c.complexity <= MAX_SYMBOLS), key=lambda c: c.key)
        self.take(more, found, len(more))
        listed = self.ordered(found)
        if weakest is None or not listed:
            return tuple(listed)
        marked = [weakest if r.bounds == weakest.bounds else r for r in listed]
        return tuple(marked if weakest in marked else [*marked, weakest])

    def take(self, candidates: Iterable[Candidate], found: list[tuple[Candidate, Regime]], limit: int) -> None:
        """Add those that are proved and not stronger than a simpler one."""
        for candidate in candidates:
            if (
                limit
                and self.may_hold(candidate)
                and not any(self.implies(candidate.bounds, c.bounds) for c, _ in found)
            ):
                regime = self.prove(candidate.bounds)
                if regime is not None:
                    found.append((candidate, regime))
                    limit -= 1

    def pairs(self, sizes: Sequence[Candidate]) -> list[Candidate]:
        """Two bounds of which neither suffices."""
        useful = sizes if self.kind == "leading" else [c for c in sizes if (self.fails & ~c.meets).any()]
        pairs = combinations(useful, 2)
        two = [(a, b) for a, b in pairs if self.kind == "leading" or not (self.fails & a.meets & b.meets).any()]
        return sorted(
            (self.candidate(*sorted((*a.bounds, *b.bounds), key=lambda x: x.text.swapcase())) for a, b in two),
            key=lambda c: (-int(c.meets.sum()), *c.key),
        )

    def ordered(self, found: Sequence[tuple[Candidate, Regime]]) -> list[Regime]:
        """Weak before strong; among those of which none implies another, simple before complex."""
        left = sorted(found, key=lambda pair: pair[0].key)
        stronger = {(a.key, b.key) for a, _ in left for b, _ in left if a is not b and self.implies(a.bounds, b.bounds)}
        out: list[Regime] = []
        while left:
            free = [p for p in left if not any((p[0].key, q[0].key) in stronger for q in left if q is not p)]
            out.append((free or left)[0][1])
            left.remove((free or left)[0])
        return out

    def weakest(self) -> Regime | None:
        """All failing terms below g, where that is necessary as well."""
        signed = any(c < 0 for x in (*self.f.members, *self.g.members) for c in x.terms.values())
        if signed and not (all(map(self.implied, self.failing)) and self.tight()):
            return None
        whole = [Bound(piece, self.right) for piece in self.failing]
        for bounds in dict.fromkeys((tuple(map(cancelled, whole)), tuple(whole))):
            regime = self.prove(bounds)
            if regime is not None:
                return Regime(regime.bounds, regime.certificate, weakest=True)
        return None
