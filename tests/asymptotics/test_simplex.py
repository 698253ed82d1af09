"""The exact simplex against z3, and by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derive.asymptotics.simplex import Budget, OutOfSteps, Program

NUMBERS = st.fractions(min_value=-4, max_value=4, max_denominator=3)
ROWS = st.lists(
    st.tuples(st.lists(NUMBERS, min_size=4, max_size=4), st.sampled_from(["<=", ">=", "=="]), NUMBERS), max_size=6
)


def test_a_vertex_with_the_least_cost():
    program = Program(Budget())
    program.add({"x": 1, "y": 2}, ">=", 4)
    program.add({"x": 1}, "<=", 1)
    assert program.solve({"x": 1, "y": 1}) == {"y": Fraction(2)}


def test_no_solution_is_none():
    program = Program(Budget())
    program.add({"x": 1}, "<=", -1)
    assert program.solve() is None


def test_a_redundant_equation_does_no_harm():
    program = Program(Budget())
    program.add({"x": 1, "y": 1}, "==", 3)
    program.add({"x": 2, "y": 2}, "==", 6)
    assert program.solve({"x": 1}) == {"y": Fraction(3)}


def test_the_budget_is_counted_in_steps():
    program = Program(Budget(2))
    program.add({"x": 1}, ">=", 1)
    with pytest.raises(OutOfSteps):
        program.solve()


@given(ROWS, st.lists(st.integers(0, 4), min_size=4, max_size=4))
def test_agrees_with_z3(rows, cost):
    z3 = pytest.importorskip("z3")
    program, solver = Program(Budget()), z3.Optimize()
    xs = [z3.Real(f"x{i}") for i in range(4)]
    solver.add(*(x >= 0 for x in xs))
    for row, sense, right in rows:
        program.add(dict(enumerate(row)), sense, right)
        left = z3.Sum(*(_z3(z3, c) * x for c, x in zip(row, xs, strict=True)))
        bound = _z3(z3, right)
        solver.add({"<=": left <= bound, ">=": left >= bound, "==": left == bound}[sense])
    found = program.solve(dict(enumerate(cost)))
    best = solver.minimize(z3.Sum(*(c * x for c, x in zip(cost, xs, strict=True))))
    if found is None:
        assert solver.check() == z3.unsat
        return
    for row, sense, right in rows:
        left = sum((c * found.get(i, Fraction(0)) for i, c in enumerate(row)), Fraction(0))
        assert {"<=": left <= right, ">=": left >= right, "==": left == right}[sense]
    assert solver.check() == z3.sat
    value = solver.lower(best)
    assert Fraction(str(value)) == sum(c * found.get(i, Fraction(0)) for i, c in enumerate(cost))


def _z3(z3, value):
    return z3.Q(value.numerator, value.denominator)
