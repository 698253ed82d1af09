"""Exact linear programming over the rationals, for the small programs of the proof search.

`Program` collects nonnegative variables and linear rows and minimises a linear cost.  The tableau is integral and
pivoted without fractions (every entry is a subdeterminant), by Bland's rule: exact, finite and deterministic.
Nothing here is trusted: what it returns is checked again by `checker`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

Scalar = int | Fraction
PROGRAM_STEPS = 5  # what setting up one program costs, in pivots


class OutOfSteps(Exception):  # noqa: N818 - a limit, not a fault
    """The question used up its budget of pivots."""


class Budget:
    """Pivots left for one question; counted in steps so that answers do not depend on the machine."""

    def __init__(self, steps: int = 20_000) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise OutOfSteps


class Program:
    """Minimise ``cost`` over nonnegative variables, named by any hashable, subject to rows."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.columns: dict[Any, int] = {}
        self.rows: list[tuple[dict[int, Scalar], str, Scalar]] = []

    def column(self, name: Any) -> int:
        return self.columns.setdefault(name, len(self.columns))

    def add(self, row: Mapping[Any, Scalar], sense: str, right: Scalar) -> None:
        """One row; ``sense`` is ``<=``, ``>=`` or ``==``."""
        self.rows.append(({self.column(x): c for x, c in row.items() if c}, sense, right))

    def solve(self, cost: Mapping[Any, Scalar] | None = None) -> dict[Any, Fraction] | None:
        """An optimal vertex (zeros left out), or None when infeasible; an unbounded cost gives a feasible vertex."""
        for name in cost or {}:
            self.column(name)
        width = len(self.columns)
        first = width + sum(sense != "==" for _, sense, _ in self.rows)
        rows, basis, last = self._table(width, first)
        state = _Tableau(rows, basis, last, self.budget)
        self.budget.spend(PROGRAM_STEPS)
        state.minimise(dict.fromkeys(range(first, last), 1), first)
        if any(j >= first and row[-1] for j, row in zip(basis, rows, strict=True)):
            return None
        state.drive_out(first)
        if cost:
            state.minimise({self.columns[x]: c for x, c in cost.items()}, first)
        names = list(self.columns)
        return {names[j]: v for j, v in sorted(state.point().items()) if j < width and v}

    def _table(self, width: int, first: int) -> tuple[list[list[int]], list[int], int]:
        """Integral rows with nonnegative right sides; columns: variables, slacks, artificials where needed, right side.

        Slacks and artificials are rescaled to have coefficients 1 and -1.
        """
        lines: list[list[int]] = []
        basis: list[int] = []
        slack, last = width, first
        for row, sense, right in self.rows:
            scale = math.lcm(*(c.denominator for c in row.values()), right.denominator)
            sign = -1 if right < 0 or (right == 0 and sense == ">=") else 1
            line = [0] * first
            for j, c in row.items():
                line[j] = c.numerator * (scale // c.denominator) * sign
            if sense != "==":
                line[slack] = sign if sense == "<=" else -sign
                slack += 1
            if sense != "==" and line[slack - 1] == 1:
                basis.append(slack - 1)
            else:
                basis.append(last)
                last += 1
            lines.append([*line, int(right * scale) * sign])
        for line, j in zip(lines, basis, strict=True):
            right_side = line.pop()
            line.extend(int(j == k) for k in range(first, last))
            line.append(right_side)
        return lines, basis, last


class _Tableau:
    """An integral simplex tableau: each true entry is the stored one divided by ``scale``."""

    def __init__(self, rows: list[list[int]], basis: list[int], width: int, budget: Budget) -> None:
        self.rows, self.basis, self.width, self.budget = rows, basis, width, budget
        self.scale = 1

    def point(self) -> dict[int, Fraction]:
        return {j: Fraction(row[-1], self.scale) for j, row in zip(self.basis, self.rows, strict=True)}

    def minimise(self, cost: Mapping[int, Scalar], allowed: int) -> None:
        """Pivot among the columns below ``allowed`` until no reduced cost is negative (or the cost is unbounded)."""
        weights = _integers(cost)
        line = [0] * (self.width + 1)
        for j, c in weights.items():
            line[j] = c * self.scale
        for row, j in zip(self.rows, self.basis, strict=True):
            if weights.get(j):
                c = weights[j]
                line = [x - c * y for x, y in zip(line, row, strict=True)]
        self.rows.append(line)
        try:
            while True:
                enter = next((j for j in range(allowed) if line[j] < 0), None)
                leave = None if enter is None else self._leaving(enter)
                if enter is None or leave is None:
                    return
                self._pivot(leave, enter)
                line = self.rows[-1]
        finally:
            self.rows.pop()

    def _leaving(self, enter: int) -> int | None:
        best: int | None = None
        for i, j in enumerate(self.basis):
            entry = self.rows[i][enter]
            if entry <= 0:
                continue
            if best is not None:
                a, b = self.rows[i][-1] * self.rows[best][enter], self.rows[best][-1] * entry
                if a > b or (a == b and j > self.basis[best]):
                    continue
            best = i
        return best

    def _pivot(self, leave: int, enter: int) -> None:
        self.budget.spend()
        pivot_row = self.rows[leave]
        pivot = pivot_row[enter]
        if pivot < 0:
            pivot_row = self.rows[leave] = [-x for x in pivot_row]
            pivot = -pivot
        scale = self.scale
        for i, row in enumerate(self.rows):
            if i == leave:
                continue
            factor = row[enter]
            if factor:
                self.rows[i] = [(x * pivot - factor * y) // scale for x, y in zip(row, pivot_row, strict=True)]
            elif pivot != scale:
                self.rows[i] = [x * pivot // scale for x in row]
        self.scale = pivot
        self.basis[leave] = enter

    def drive_out(self, first: int) -> None:
        """Take artificial columns (all zero now) out of the basis; a row without other entries is redundant."""
        for i in range(len(self.basis) - 1, -1, -1):
            if self.basis[i] < first:
                continue
            enter = next((j for j in range(first) if self.rows[i][j]), None)
            if enter is None:
                del self.rows[i], self.basis[i]
            else:
                self._pivot(i, enter)


def _integers(cost: Mapping[int, Scalar]) -> dict[int, int]:
    scale = math.lcm(*(c.denominator for c in cost.values())) if cost else 1
    return {j: int(c * scale) for j, c in cost.items()}
