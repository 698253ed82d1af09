"""Where z3 decides the same question by itself, it agrees: monomials by growth rates, logs by rays of a cone.

Both classes are exactly linear: ``f = O(g)`` fails just when some nonnegative direction makes a term of f outgrow g.
z3 gets the question, never the prover's certificate, and shares no code with it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from derive.asymptotics import Bound, Domain, Proved, Refuted, order
from derive.forms import Form, Log, Max
from tests.asymptotics.oracle import affine, product

z3 = pytest.importorskip("z3")
SYMBOLS = [f"x{i}" for i in range(5)]
SEEDS = st.integers(0, 2**32)


def rates():
    return {s: z3.Real(s) for s in SYMBOLS}


def degree(mono, direction):
    return z3.Sum(*(direction[a] * p for a, p in mono), z3.RealVal(0))


def linear(form: Form, direction):
    parts = []
    for mono, c in form.terms.items():
        for atom, _ in mono:
            assert isinstance(atom, Log)
            parts.append(direction[next(iter(atom.arg.symbols))] * z3.Q(c.numerator, c.denominator))
    return z3.Sum(*parts, z3.RealVal(0))


def fails_for_monomials(f: Form, g: Form, hypotheses: Sequence[tuple[Form, Form]]) -> bool:
    """Is there a direction of growth along which a term of f beats 1 and every term of g, within the hypotheses?"""
    solver = z3.Solver()
    direction = rates()
    solver.add(*(x >= 0 for x in direction.values()))
    for left, right in hypotheses:
        tops = [degree(m, direction) for m in right.terms] + [z3.RealVal(0)]
        solver.add(*(z3.Or(*(degree(m, direction) <= t for t in tops)) for m in left.terms))
    mine = [degree(m, direction) for m in f.terms]
    others = [degree(m, direction) for m in g.terms] + [z3.RealVal(0)]
    solver.add(z3.Or(*(z3.And(*(a > b for b in others)) for a in mine)))
    return solver.check() == z3.sat


def fails_for_logs(f: Max, g: Max, hypotheses: Sequence[tuple[Form, Form]]) -> bool:
    """Is there a ray of logs along which f grows and g does not, within the hypotheses?"""
    solver = z3.Solver()
    ray = rates()
    solver.add(*(x >= 0 for x in ray.values()))
    for left, right in hypotheses:
        solver.add(z3.Or(linear(left, ray) <= 0, linear(right, ray) > 0))
    solver.add(z3.Or(*(linear(m, ray) > 0 for m in f.members)), *(linear(m, ray) <= 0 for m in g.members))
    return solver.check() == z3.sat


def agree(answer, fails: bool) -> None:
    assert isinstance(answer, Refuted if fails else Proved), answer


def _monomials(number: int) -> None:
    rng = random.Random(number)
    f, g = (sum((product(rng, SYMBOLS) for _ in range(rng.randint(1, 4))), Form({})) for _ in range(2))
    hypotheses = []
    for _ in range(rng.choice([0, 1, 2])):
        right = product(rng, SYMBOLS, 1)
        hypotheses.append((product(rng, SYMBOLS, 1), right + product(rng, SYMBOLS, 1) if rng.random() < 0.5 else right))
    answer = order(f, g, Domain(), [Bound(a, b) for a, b in hypotheses])
    agree(answer, fails_for_monomials(f, g, hypotheses))


def _logs(number: int) -> None:
    rng = random.Random(number)
    f = Max.of(*(affine(rng, SYMBOLS, True) for _ in range(rng.choice([1, 2]))))
    g = Max.of(*(affine(rng, SYMBOLS, False) for _ in range(rng.choice([1, 1, 2]))))
    hypotheses = [(affine(rng, SYMBOLS, False), affine(rng, SYMBOLS, False)) for _ in range(rng.choice([0, 0, 1, 2]))]
    answer = order(f, g, Domain(), [Bound(a, b) for a, b in hypotheses])
    agree(answer, fails_for_logs(f, g, hypotheses))


@seed(4)
@settings(max_examples=100)
@given(SEEDS)
def test_monomials(number):
    _monomials(number)


@seed(5)
@settings(max_examples=100)
@given(SEEDS)
def test_logs(number):
    _logs(number)


@pytest.mark.soak
def test_soak_against_z3():
    start = random.SystemRandom().randrange(2**32)
    print(f"from seed {start}")
    for n in range(3_000):
        _monomials(start + n)
        _logs(start + n)
