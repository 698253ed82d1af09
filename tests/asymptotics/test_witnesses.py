"""Every witness of the tables, recomputed by sympy and with big integers along its family: no code of the checker."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import sympy as sp

VERDICTS = Path(__file__).parents[2] / "tables" / "out" / "verdicts.json"
CELLS = json.loads(VERDICTS.read_text(encoding="utf-8"))["cells"]
WITNESSES = {cell["id"]: cell["witness"] for cell in CELLS if cell["witness"]}
FAMILIES = {cell: w for cell, w in WITNESSES.items() if "family" in w}
POINTS = {cell: w for cell, w in WITNESSES.items() if "family" not in w}
N, LOG = sp.Symbol("n", positive=True), sp.Symbol("log_n", positive=True)
POWERS = [sp.Symbol(f"E{p}", positive=True) for p in (3, 2, 1)]  # E_p = 2**(n**p)
ORDER = [*POWERS, N, LOG]  # each outgrows every power of the next: the largest in lexicographic order leads


class Along:
    """The family of a witness, in exact terms of n or at one n."""

    def __init__(self, witness, n=None):
        self.n = n
        self.sizes = {s: self.size(data.get("n", 0), data.get("log", {})) for s, data in witness["free"].items()}
        self.sizes |= {name: self.value(text) for name, text in witness["factors"].items()}

    def size(self, power, log):
        log = {int(p): e for p, e in log.items()}
        if self.n is not None:
            return sp.Integer(2 ** sum(e * self.n**p for p, e in log.items()) * self.n**power)
        return 2 ** log.pop(0, 0) * N**power * sp.prod(POWERS[3 - p] ** e for p, e in log.items())

    def log(self, value):
        if self.n is not None:
            top, bottom = (int(x) for x in sp.fraction(value))
            assert top & (top - 1) == bottom & (bottom - 1) == 0
            return sp.Integer(top.bit_length() - bottom.bit_length())
        number, rest = value.as_coeff_Mul()
        logs = {N: LOG, **{E: N**p for E, p in zip(POWERS, (3, 2, 1), strict=True)}}
        exact = sp.Integer(int(number.p).bit_length() - int(number.q).bit_length())
        assert number == 2**exact
        return exact + sum(logs[base] * e for base, e in rest.as_powers_dict().items() if base != 1)

    def value(self, text):
        names = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", text), sp.Integer(1))
        return sp.sympify(text, locals={**names, **self.sizes, "log": self.log, "Max": sp.Max})

    def lead(self, text):
        """Exponents of the leading term, and its coefficient; nothing for what is not positive in the long run."""
        top, bottom = sp.fraction(sp.together(sp.expand(self.value(text))))
        (up, c), (down, k) = (sp.Poly(x, *ORDER).terms(order="lex")[0] for x in (top, bottom))
        return (tuple(a - b for a, b in zip(up, down, strict=True)), c / k) if c / k > 0 else ((-1,) * 5, sp.Integer(0))


def degree_written(text):
    text = re.sub(r"2\*\*(n)\b|2\*\*\(([^()]*)\)", lambda m: f"power({m[1] or m[2]})", text)

    def power(above):
        return sp.prod(POWERS[3 - p] ** e for (p,), e in sp.Poly(above, N).terms())

    found = sp.sympify(text, locals={"n": N, "log": lambda _: LOG, "power": power})
    return sp.Poly(found, *ORDER).monoms()[0]


ZERO = (0,) * 5


@pytest.mark.parametrize("cell", FAMILIES)
def test_degrees_and_hypotheses_of_every_witness(cell):
    witness = FAMILIES[cell]
    family = Along(witness)
    f, g = family.lead(witness["f"]), family.lead(witness["g"])
    written = witness["degrees"]
    assert [max(ZERO, f[0]), max(ZERO, g[0])] == [degree_written(written["f"]), degree_written(written["g"])]
    for hypothesis in witness["hypotheses"]:
        assert family.lead(hypothesis["left"])[0] <= max(ZERO, family.lead(hypothesis["right"])[0])
    if witness["claim"] == "order":
        assert f[0] > max(ZERO, g[0])
        return
    assert witness["claim"] == "leading"
    assert f != g  # the ratio does not tend to 1, although every size grows that may
    assert max(f[0], g[0]) > ZERO
    fixed = {h["left"] for h in witness["hypotheses"] if family.lead(h["right"])[0] == ZERO}
    assert all(family.lead(size)[0] > ZERO for size in occurring(witness) - fixed)


def occurring(witness):
    """The free factors in both sides that do not cancel."""
    names = set(re.findall(r"[A-Za-z_]\w*", json.dumps([witness[k] for k in ("f", "g", "factors")]))) - {"log", "Max"}
    free = {name: sp.Symbol(name, positive=True) for name in names - set(witness["factors"])}
    sizes = {name: sp.sympify(text, locals=free) for name, text in witness["factors"].items()}
    known = {**free, **sizes, "log": lambda x: sp.expand_log(sp.log(x))}
    return {str(x) for side in "fg" for x in sp.expand(sp.sympify(witness[side], locals=known)).free_symbols}


@pytest.mark.parametrize("cell", POINTS)
def test_every_point_against_an_exact_claim(cell):
    witness = POINTS[cell]

    def plain(text):
        """Opaque costs get names without brackets."""
        return re.sub(r"\b([CDM]_\w+|params)\((\w+)\)", r"\1_of_\2", text)

    def value(text):
        names = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", plain(text)), sp.Integer(1))
        return sp.sympify(plain(text), locals={**names, **sizes, "Max": sp.Max})

    sizes = {plain(name): sp.Integer(n) for name, n in witness["free"].items()}
    sizes |= {name: value(text) for name, text in witness["factors"].items()}
    assert all(n >= 1 for n in sizes.values())
    assert all(sizes.get(name, 1) >= least for name, least in witness["least"].items())
    f, g = (value(witness[side]) for side in "fg")
    assert (f, g) == tuple(sp.Rational(witness[witness[f"{side}_is"]]) for side in "fg")
    assert f > g or (witness["claim"] == "equal" and f != g)


@pytest.mark.parametrize("cell", FAMILIES)
def test_every_witness_with_big_integers(cell):
    """The illustrating size is right; along n = 2**k the ratio f/(1 + g) of an order claim grows without end."""
    witness = FAMILIES[cell]
    there = Along(witness, int(witness["n"]))
    for side in "fg":
        assert there.value(witness[side]) == sp.Rational(witness[witness[f"{side}_is"]])
    assert all(there.value(name) == int(size) for name, size in witness["sizes"].items())
    exponential = any(int(p) > 0 for data in witness["free"].values() for p in data.get("log", {}))
    ratios = []
    for k in (1, 2, 3, 4) if exponential else (2, 32, 512, 4096):
        family = Along(witness, 2**k)
        assert all(family.value(name) >= least for name, least in witness["least"].items())
        assert all(family.value(h["left"]) <= 4 * (1 + max(0, family.value(h["right"]))) for h in witness["hypotheses"])
        ratios.append(family.value(witness["f"]) / (1 + max(0, family.value(witness["g"]))))
    if witness["claim"] == "order":
        assert ratios == sorted(set(ratios))
        assert exponential or ratios[-1] > 50 * ratios[0]
