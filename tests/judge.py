"""An independent judge of what is true of a printed formula.

The judge knows nothing of proofs and nothing of normal forms.  It evaluates expression trees, as signs and logarithms,
along thousands of families of sizes at once: each free factor stays constant or grows as n, as a power of 2**n or as
2**(n*n), and whether a ratio settles between n = 2**10, 2**14 and 2**18 decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import sympy

from derive import expr as ex
from derive.cell import Cell
from derive.cells import Instance, derive, instances
from derive.claims import Book, Claim
from derive.expr import Expr
from derive.forms import Form, Log, Max
from derive.readings import domain_of, hypotheses_of
from derive.textform import parse_text
from graphs.symbols import MODELS, PER_MODEL

# -- values by sign and logarithm -------------------------------------------------------------------------------------
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Wide:
    """Numbers of any magnitude: sign, and log2 of the absolute value."""

    sign: Floats
    log: Floats

    def __add__(self, other: Wide) -> Wide:
        top = np.maximum(self.log, other.log)
        top = np.where(np.isfinite(top), top, 0.0)
        sum_ = self.sign * np.exp2(self.log - top) + other.sign * np.exp2(other.log - top)
        sum_ = np.where(np.abs(sum_) < 1e-13, 0.0, sum_)
        return _wide(sum_, top)

    def __mul__(self, other: Wide) -> Wide:
        return Wide(self.sign * other.sign, self.log + other.log)

    def power(self, exponent: int) -> Wide:
        return Wide(self.sign**exponent, self.log * exponent)

    def larger(self, other: Wide) -> Wide:
        first = (self + Wide(-other.sign, other.log)).sign >= 0
        return Wide(np.where(first, self.sign, other.sign), np.where(first, self.log, other.log))


def _wide(value: Floats, scale: Floats | float = 0.0) -> Wide:
    with np.errstate(divide="ignore"):
        return Wide(np.sign(value), scale + np.log2(np.abs(value)))


def evaluate(e: Expr, sizes: Mapping[str, Floats]) -> Wide:
    """Value of a tree; ``sizes`` are log2 of each size, along all families at once."""
    match e:
        case ex.Num(value):
            return _wide(np.full_like(next(iter(sizes.values())), float(value)))
        case ex.Sym(name):
            return Wide(np.ones_like(sizes[name]), sizes[name])
        case ex.Add(items):
            return _fold(Wide.__add__, items, sizes)
        case ex.Mul(items):
            return _fold(Wide.__mul__, items, sizes)
        case ex.Max(items):
            return _fold(Wide.larger, items, sizes)
        case ex.Div(top, bottom):
            return evaluate(top, sizes) * evaluate(bottom, sizes).power(-1)
        case ex.Pow(base, exponent):
            return evaluate(base, sizes).power(exponent)
        case ex.Log(arg, _):
            return _wide(evaluate(arg, sizes).log)
        case ex.Order(arg):
            return evaluate(arg, sizes)
    raise TypeError(f"the judge cannot evaluate {ex.text(e)}")


def _fold(operation: Callable[[Wide, Wide], Wide], items: Sequence[Expr], sizes: Mapping[str, Floats]) -> Wide:
    out = evaluate(items[0], sizes)
    for item in items[1:]:
        out = operation(out, evaluate(item, sizes))
    return out


def tree(value: Form | Max) -> Expr:
    """A derived cost as a tree, term by term."""
    if isinstance(value, Max):
        members = tuple(map(tree, value.members))
        return members[0] if len(members) == 1 else ex.Max(members)
    terms = []
    for monomial, c in value.terms.items():
        atoms = [(ex.Log(tree(x.arg), x.ceil) if isinstance(x, Log) else ex.Sym(x), p) for x, p in monomial]
        terms.append(ex.mul(ex.num(c), *(ex.Pow(atom, p) for atom, p in atoms)))
    return ex.add(*terms)


def written_out(e: Expr, book: Book, model: str | None) -> Expr:
    """Costs that a table names replaced by what it prints for them, as the judge reads the book."""
    if isinstance(e, ex.Sum):
        return summed(e)
    if isinstance(e, ex.Call):
        wanted = (e.name, tuple(model if a == "M" and model else a for a in e.args))
        for claim in book.claims.values():
            if claim.symbol is not None and (claim.symbol.name, claim.symbol.args) == wanted:
                return written_out(claim.expr, book, model)
    return ex.rebuild(e, lambda child: written_out(child, book, model))


def summed(e: ex.Sum) -> Expr:
    """A sum over an index in sympy's closed form."""
    index = sympy.Symbol(e.index)
    closed = sympy.summation(sympied(e.body), (index, sympied(e.lower), sympied(e.upper)))
    return parse_text(str(sympy.expand(closed)))


def sympied(e: Expr) -> sympy.Expr:
    """A tree without logs and maxima in sympy."""
    match e:
        case ex.Num(value):
            return sympy.Rational(value.numerator, value.denominator)
        case ex.Sym(name):
            return sympy.Symbol(name)
        case ex.Add(items):
            return sympy.Add(*map(sympied, items))
        case ex.Mul(items):
            return sympy.Mul(*map(sympied, items))
        case ex.Div(top, bottom):
            return sympied(top) / sympied(bottom)
        case ex.Pow(base, exponent):
            return sympied(base) ** exponent
    raise TypeError(f"the judge cannot sum {ex.text(e)}")


def readings_of(claim: Claim) -> tuple[Instance, ...]:
    """The questions behind a cell; behind an ill-formed one, those about one value of the loose index."""
    found = instances(claim.id)
    return found if claim.is_well_formed else tuple(i.iteration for i in found)


def opaque(e: Expr) -> Expr:
    """Costs that stand for themselves, as sizes."""
    return ex.Sym(ex.text(e)) if isinstance(e, ex.Call) else ex.rebuild(e, opaque)


def printed_tree(claim: Claim, book: Book, model: str | None) -> Expr:
    return opaque(claim.expr) if claim.opaque else written_out(claim.expr, book, model)


# -- families of sizes ------------------------------------------------------------------------------------------------
POINTS = (2.0**10, 2.0**14, 2.0**18)
RANDOM_FAMILIES = 2_000
GROWING_FAMILIES = 2_000
STILL, SLOW, STEEP, CREEPING = 0.0, -1.0, -2.0, -3.0
Bounds = tuple[tuple[Expr, Expr], ...]


@dataclass(frozen=True)
class Setting:
    """Where a claim is judged: sizes as products of free factors, lower bounds, and ``left = O(right)`` in force."""

    factors: tuple[tuple[str, Expr], ...]
    least: tuple[tuple[str, int], ...]
    bounds: Bounds

    def free(self, names: Iterable[str]) -> tuple[str, ...]:
        """The free factors behind the sizes; a context that is written S + T is no factor of its own."""
        spanned = dict(self.factors)
        known = {*names, *(s for b in self.bounds for side in b for s in ex.free_symbols(side))}
        out = {s for n in known for s in (ex.free_symbols(spanned[n]) if n in spanned else {n})}
        return tuple(sorted(out - {"m"} | {"S", "T"} if out & {"S", "T"} else out))


def _rates(count: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Few factors growing and the rest still; all but few growing; and random ones."""
    rows: list[dict[int, float]] = []
    for i in range(count):
        rows += [{i: r} for r in (1.0, SLOW)]
    for i, j in itertools.permutations(range(count), 2):
        rows += [{i: q, j: r} for q, r in ((1.0, 1.0), (1.0, 2.0), (1.0, SLOW), (1.0, STEEP), (SLOW, STEEP))]
    for three in itertools.combinations(range(count), 3):
        rows += [dict(zip(three, rates, strict=True)) for rates in ((1.0, 1.0, 1.0), (1.0, 1.0, 2.0), (2.0, 1.0, 1.0))]
    for out in itertools.chain(itertools.combinations(range(count), 1), itertools.combinations(range(count), 2)):
        rows.append({i: 1.0 for i in range(count) if i not in out})
    few = np.array([[row.get(i, STILL) for i in range(count)] for row in rows])
    choices = np.array([STILL, STILL, STILL, STILL, SLOW, 1.0, 1.0, 2.0, 3.0, 5.0, STEEP])
    return np.vstack([few, choices[rng.integers(len(choices), size=(RANDOM_FAMILIES, count))]])


def _grown(rates: npt.NDArray[np.float64], constants: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """log2 of each free factor at the three points: (points, families, factors)."""
    n = np.array(POINTS).reshape(-1, 1, 1)
    grown = np.where(rates > 0, rates * n, np.where(rates == SLOW, np.log2(n), constants))
    grown = np.where(rates == CREEPING, np.log2(n) / 2, grown)
    return np.where(rates == STEEP, n * n, grown)


@lru_cache(maxsize=16)
def _sizes(setting: Setting, names: frozenset[str], growing: bool) -> dict[str, Floats]:
    """log2 of every size along the families that the setting allows, (points, families) each."""
    free, rng = setting.free(names), np.random.default_rng(7)
    rates = _rates(len(free), rng)
    constants = np.where(rng.random((len(rates), 1)) < 0.5, 0.0, rng.integers(0, 2, size=rates.shape))
    sizes = _allowed(setting, free, rates, constants)
    if not growing:
        return sizes
    moving = [bool(np.any(sizes[name][2] > sizes[name][0] + 8)) for name in free]
    rates = np.where(moving, _growing(len(free), rng), STILL)
    return _allowed(setting, free, rates, rng.integers(0, 2, size=rates.shape).astype(float))


def _growing(count: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """All factors grow: few of them fast and the rest as slowly as can be, and at random."""
    few = itertools.chain(itertools.combinations(range(count), 1), itertools.combinations(range(count), 2))
    rows = [[fast if i in chosen else CREEPING for i in range(count)] for chosen in few for fast in (1.0, STEEP)]
    choices = np.array([CREEPING, CREEPING, SLOW, 1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 20.0, STEEP])
    return np.vstack([np.array(rows), choices[rng.integers(len(choices), size=(GROWING_FAMILIES, count))]])


def _allowed(
    setting: Setting, free: tuple[str, ...], rates: npt.NDArray[np.float64], constants: npt.NDArray[np.float64]
) -> dict[str, Floats]:
    grown = _grown(rates, constants)
    sizes = {name: grown[:, :, i] for i, name in enumerate(free)}
    sizes = _spanned(setting, sizes)
    keep = np.ones(len(rates), dtype=bool)
    for left, right in setting.bounds:
        ratio = evaluate(left, sizes).log - _at_least_one(evaluate(right, sizes)).log
        keep &= ratio[2] <= ratio[0] + 1
    return {name: value[:, keep] for name, value in sizes.items()}


def _spanned(setting: Setting, free: dict[str, Floats]) -> dict[str, Floats]:
    """Lower bounds hold, and products of free factors (and S + T) have their values."""
    spanned, least = dict(setting.factors), dict(setting.least)
    sizes = dict(free)
    for name, lowest in least.items():
        parts = sorted(ex.free_symbols(spanned[name]) if name in spanned else {name})
        if parts[-1] in sizes and all(p in sizes for p in parts):
            whole = sum((sizes[p] for p in parts[:-1]), np.zeros_like(sizes[parts[-1]]))
            sizes[parts[-1]] = np.maximum(sizes[parts[-1]], np.log2(lowest) - whole)
    sizes |= {n: evaluate(e, sizes).log for n, e in spanned.items() if ex.free_symbols(e) <= sizes.keys()}
    if "S" in sizes:
        sizes["m"] = np.logaddexp2(sizes["S"], sizes["T"])
    return sizes


def _at_least_one(value: Wide) -> Wide:
    return value.larger(_wide(np.ones_like(value.log)))


# -- judgements -------------------------------------------------------------------------------------------------------
def bounded(small: Expr, large: Expr, setting: Setting) -> bool:
    """small = O(1 + large) along every family of the setting?"""
    sizes = _sizes(setting, ex.free_symbols(small) | ex.free_symbols(large), growing=False)
    one = _wide(np.ones_like(next(iter(sizes.values()))))
    f, g = evaluate(small, sizes) + one, evaluate(large, sizes) + one
    top = np.where(f.sign > 0, f.log, 0.0)
    ratio = top - np.where(g.sign > 0, g.log, -1e9)
    grows = (ratio[2] > ratio[0] + 5) & (ratio[2] > ratio[1] + 2.5)
    nothing = (g.sign[2] <= 0) & (f.sign[2] > 0)
    return not np.any(grows | nothing)


def leads(one: Expr, other: Expr, setting: Setting) -> bool:
    """Does the quotient tend to 1 along every family of the setting along which all sizes grow that can?"""
    sizes = _sizes(setting, ex.free_symbols(one) | ex.free_symbols(other), growing=True)
    f, g = evaluate(one, sizes), evaluate(other, sizes)
    gap = (f + Wide(-g.sign, g.log)).log - g.log
    stays = (gap[2] > np.log2(0.02)) & (gap[2] > gap[0] - 0.3)
    return not np.any(stays | (g.sign[2] <= 0))


def same_value(one: Expr, other: Expr, setting: Setting) -> bool:
    """Are the two equal at random sizes (reals, in free factors)?"""
    free, rng = setting.free(ex.free_symbols(one) | ex.free_symbols(other)), np.random.default_rng(11)
    sizes = _spanned(setting, {name: rng.uniform(0.1, 3.0, size=12) for name in free})
    f, g = evaluate(one, sizes), evaluate(other, sizes)
    gap = f + Wide(-g.sign, g.log)
    return bool(np.all((gap.sign == 0) | (gap.log < g.log - 30)))


@dataclass(frozen=True)
class Truth:
    """What the judge finds of one reading: for orders (upper, lower), for exact claims (equal, leading)."""

    first: bool
    second: bool

    def text(self, kind: str) -> str:
        """The verdict that this calls for."""
        if kind == "order":
            return ("TIGHT" if self.second else "UPPER") if self.first else "REFUTED"
        return "EQUAL" if self.first else "LEADING" if self.second and kind != "equal" else "REFUTED"


class Judge:
    """Judges printed expressions of one cell in the cases that its verdicts speak of."""

    def __init__(self, claim: Claim, book: Book) -> None:
        self.claim, self.book = claim, book
        rescue = book.contradicted(claim.id)
        self.base = tuple(n for n in book.in_force(claim.id) if n not in rescue)
        self.known: dict[tuple[str, Instance], tuple[Setting, Expr]] = {}
        self.judged: dict[tuple[str, Instance, Expr], Truth] = {}

    def place(self, case: str, instance: Instance) -> tuple[Setting, Expr]:
        """Setting and derived cost of a case: empty, or conditions and assumptions joined by ``and``."""
        if (case, instance) not in self.known:
            parts = [p for p in case.split(" and ") if p]
            conditions = [p for p in parts if "=" in p]
            names = (*self.base, *(p for p in parts if "=" not in p))
            value, domain = derive(instance, names).value, domain_of(instance, names)
            named = value.symbols | ex.free_symbols(printed_tree(self.claim, self.book, instance.model))
            force = [(tree(b.left), tree(b.right)) for b in hypotheses_of(names, named)]
            sides = [text.split(" = ") for text in conditions]
            reading = opaque if self.claim.opaque else (lambda e: written_out(e, self.book, None))
            force += [(reading(parse_text(left)), reading(parse_text(right))) for left, right in sides]
            factors = tuple((n, tree(f)) for n, f in domain.factors.items())
            setting = Setting(factors, tuple(sorted(domain.least.items())), tuple(force))
            self.known[case, instance] = setting, tree(value)
        return self.known[case, instance]

    def concerns(self, case: str, instance: Instance, printed: Expr) -> bool:
        """A condition about one model's sizes says nothing of another model."""
        setting, derived = self.place(case, instance)
        named = {s for b in setting.bounds for side in b for s in ex.free_symbols(side)}
        spoken = {s for s in named if s.rpartition("_")[2] in MODELS and s.rpartition("_")[0] in PER_MODEL}
        return spoken <= ex.free_symbols(derived) | ex.free_symbols(printed)

    def truth(self, case: str, claim: Claim, book: Book) -> tuple[Truth, ...]:
        """What holds of a claim in a case, reading by reading."""
        out = []
        for instance in readings_of(claim):
            printed = printed_tree(claim, book, instance.model)
            if self.concerns(case, instance, printed):
                key = case, instance, printed
                if key not in self.judged:
                    self.judged[key] = self.judged_anew(*key)
                out.append(self.judged[key])
        return tuple(out)

    def judged_anew(self, case: str, instance: Instance, printed: Expr) -> Truth:
        setting, derived = self.place(case, instance)
        if self.claim.kind == "order":
            return Truth(bounded(derived, printed, setting), bounded(printed, derived, setting))
        return Truth(same_value(derived, printed, setting), leads(derived, printed, setting))

    def worst(self, case: str, claim: Claim, book: Book) -> str:
        """The verdict that the truth of all readings calls for."""
        every = ("EQUAL", "LEADING", "TIGHT", "UPPER", "REFUTED")
        return max((t.text(claim.kind) for t in self.truth(case, claim, book)), key=every.index)

    def changes_value(self, claim: Claim, book: Book) -> bool:
        """Does the claim print other numbers than the book's own?"""
        for instance in readings_of(claim):
            setting, _ = self.place("", instance)
            before = printed_tree(self.claim, self.book, instance.model)
            if not same_value(before, printed_tree(claim, book, instance.model), setting):
                return True
        return False

    def changes_truth(self, claim: Claim, book: Book, cases: Iterable[str]) -> bool:
        """For exact claims any other value; for orders another answer in general or in one of the cases."""
        if claim.kind != "order":
            return self.changes_value(claim, book)
        every = dict.fromkeys(["", *cases])
        return any(self.truth(c, self.claim, self.book) != self.truth(c, claim, book) for c in every)

    def objections(self, found: Cell, claim: Claim, book: Book) -> list[str]:
        """Where the verdict says something else than the judge."""
        general, cases = self.worst("", claim, book), cases_of(found)
        verdict, _, under = stated(found)
        said = {"": verdict if not cases else "REFUTED"}
        said |= dict(zip(cases, (under or "").split(" or "), strict=True)) if cases else {}
        if verdict == "UNDECIDED":
            return [f"undecided, the judge says {general} in general"]
        seen = {case: general if not case else self.worst(case, claim, book) for case in said}
        return [
            f"{said[c]} {f'where {c}' if c else 'in general'}, the judge says {seen[c]}"
            for c in said
            if said[c] != seen[c]
        ]


def stated(cell: Cell) -> tuple[str, str | None, str | None]:
    """Verdict, regime and the verdict there; of an ill-formed cell, those of its corrected form."""
    corrected = (cell.context or {}).get("corrected")
    if corrected:
        return corrected["verdict"], corrected["regime"], corrected["regime_verdict"]
    return cell.verdict, cell.regime, cell.regime_verdict


def cases_of(cell: Cell) -> list[str]:
    """The alternatives of a cell's regime."""
    regime = stated(cell)[1]
    return regime.split(" or ") if regime else []
