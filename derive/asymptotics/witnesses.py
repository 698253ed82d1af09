"""From candidate families and points to witnesses: what is tried, what is accepted, and how it is written out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from derive.asymptotics.checker import (
    Family,
    Mono,
    Poly,
    Rejected,
    Setting,
    add,
    is_log,
    key_text,
    maximum,
    value_at,
)
from derive.asymptotics.families import Finder, entries, gens_of
from derive.asymptotics.rates import Pool
from derive.asymptotics.simplex import Budget

MAX_BITS = 4000
MARGIN = 10


def specialised(setting: Setting) -> Iterator[Setting]:
    """The setting itself, then with some factors fixed at their least values, where terms of g may vanish."""
    yield setting
    negative = {(s,) for p in setting.g for m, c in p.items() if c < 0 for s in gens_of(setting, m)}
    logged = {
        tuple(sorted({s for gen, _ in m if is_log(gen) for s in gens_of(setting, ((gen, 1),))}))
        for p in setting.g
        for m in p
    }
    every = tuple(sorted({s for group in logged for s in group}))
    inside = {s for arg in setting.reader.logs.values() for m in arg for s, _ in m}
    for symbols in [*sorted(negative), *sorted((logged | {every}) - negative - {()})]:
        values = {s: setting.least.get(s, 1) for s in symbols}
        if inside.isdisjoint(symbols) and all(v & (v - 1) == 0 for v in values.values()):
            case = setting.copy()
            case.f, case.g = list(setting.f), list(setting.g)
            for sym, value in values.items():
                case.f, case.g = ([_fixed(p, sym, value) for p in side] for side in (case.f, case.g))
            yield case


def _fixed(poly: Poly, sym: str, value: int) -> Poly:
    out: Poly = {}
    log = Fraction(value.bit_length() - 1)
    for mono, c in poly.items():
        powers = dict(mono)
        factor = Fraction(value) ** powers.pop(sym, 0) * log ** powers.pop(f"log({sym})", 0)
        out = add(out, {tuple(sorted(powers.items())): c * factor})
    return out


def illustrate(
    setting: Setting, header: Mapping[str, Any], free: Mapping[str, Any], names: Iterable[str]
) -> dict[str, Any] | None:
    """A full witness along the family, with sizes at which f clearly exceeds g (or as far as can be written down)."""
    family = Family(setting.reader, free)
    best: tuple[int, dict[str, int]] | None = None
    symbols = sorted(free)
    for t in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384):
        n = 2**t
        if sum(family.powers[s] * t + sum(e * n**p for p, e in family.logs[s].items()) for s in symbols) > MAX_BITS:
            break
        sizes = {s: family.value(((s, 1),), n) for s in symbols}
        best = n, sizes
        f, g = (maximum(side, sizes, setting.reader.logs)[0] for side in (setting.f, setting.g))
        if f >= MARGIN * max(g, Fraction(1)) or (header["claim"] == "leading" and t >= 6):
            break
    if best is None:
        return None
    n, sizes = best
    shown = {name: setting.mono(name) for name in sorted(names)}
    degrees = {"f": key_text(family.least(setting.f)[0]), "g": key_text(family.most(setting.g)[0])}
    return {
        **header,
        "free": dict(free),
        "family": {name: family.text(mono) for name, mono in shown.items()},
        "degrees": degrees,
        "n": str(n),
        **_values(setting, header, sizes, shown),
    }


def _values(
    setting: Setting, header: Mapping[str, Any], free: Mapping[str, int], shown: Mapping[str, Mono]
) -> dict[str, Any]:
    sizes = {name: str(value_at({mono: Fraction(1)}, free, {})[0]) for name, mono in shown.items()}
    values = {
        header["f_is"]: str(maximum(setting.f, free, setting.reader.logs)[0]),
        header["g_is"]: str(maximum(setting.g, free, setting.reader.logs)[0]),
    }
    return {"sizes": sizes, **values}


def points(setting: Setting, header: Mapping[str, Any], names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Witness candidates for exact claims: structured powers of two, then a fixed pseudo-random sequence."""
    symbols = sorted({s for poly in (*setting.f, *setting.g) for m in poly for s in gens_of(setting, m)})
    least = sorted({s for name in setting.least for s, _ in setting.mono(name)})
    shown = {name: setting.mono(name) for name in sorted(names)}
    for exponents in _exponents(len(symbols)):
        free = dict.fromkeys(least, 1) | {s: 2**e for s, e in zip(symbols, exponents, strict=True)}
        for name, value in sorted(setting.least.items()):
            mono = setting.mono(name)
            while value_at({mono: Fraction(1)}, free, {})[0] < value:
                free[mono[-1][0]] *= 2
        f, g = (maximum(side, free, setting.reader.logs) for side in (setting.f, setting.g))
        if f[0] > g[1] or (header["claim"] == "equal" and f[1] < g[0]):
            yield {
                **header,
                "free": {s: str(v) for s, v in sorted(free.items())},
                **_values(setting, header, free, shown),
            }


def _exponents(count: int) -> Iterator[list[int]]:
    for e in (0, 1, 3):
        yield [e] * count
    for base, top in ((0, 1), (0, 3), (0, 6), (0, 20), (1, 6), (3, 0)):
        for i in range(count):
            yield [top if i == j else base for j in range(count)]
    for i, j in itertools.combinations(range(count), 2):
        yield [6 if k in (i, j) else 0 for k in range(count)]
    state = 12345
    for _ in range(400):
        out = []
        for _ in range(count):
            state = (state * 1103515245 + 12345) % 2**31
            out.append((state >> 16) % 5)
        yield out


def simple(setting: Setting) -> bool:
    """Does f outgrow g as one or two free factors grow?  A cheap look for questions where only a proof is wanted."""
    sides = (setting.f, setting.g, *setting.hyps)
    symbols = sorted({s for side in sides for poly in side for m in poly for s in gens_of(setting, m)})
    pool = Pool(setting, symbols, most=2)
    large, small = ([pool.groups(poly) for poly in side] for side in (setting.f, setting.g))
    return bool(pool.over(large, small).any())


def keeps_up(setting: Setting, piece: Poly, budget: Budget) -> bool:
    """Is there a family along which everything grows and ``piece`` keeps up with g, so that it fades nowhere?"""
    case = setting.copy()
    case.f = [piece]
    finder = Finder(case, budget, {}, grow=True)
    for rows in finder.cases():
        for target in entries(case.f):
            for free in finder.balanced(target, rows):
                family = Family(setting.reader, free)
                if family.least([piece])[0] >= family.most(setting.g)[0] > family.zero:
                    return True
    return False


def accepted(setting: Setting, free: Mapping[str, Any], claim: str) -> bool:
    """A quick look with the checker's own comparison, before the witness is written out and checked in full."""
    try:
        family = Family(setting.reader, free)
        for left, right in setting.hyps:
            if family.most([left])[0] > max(family.zero, family.least([right])[0]):
                return False
        low, high = family.least(setting.f), family.most(setting.g)
        if claim == "order":
            return low[0] > max(family.zero, high[0])
        return max(low[0], high[0]) > family.zero and (low > high or family.most(setting.f) < family.least(setting.g))
    except Rejected:
        return False
