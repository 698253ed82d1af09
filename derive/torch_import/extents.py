"""Sizes of traced tensors as expressions in named symbols."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import sympy
from torch.utils._sympy.functions import CleanDiv, FloorDiv

from graphs.axes import Axis, Role, Tensor
from graphs.errors import GraphError


@dataclass
class Extents:
    """Names for the symbols that PyTorch traced a layer with.

    Sizes that are equal in the example are one symbol.  ``where`` says of each name which axes have that size,
    ``equal`` which names the trace takes to be as large as others, and ``conditions`` what must divide what for
    the expressions to hold.
    """

    environment: Any
    given: Mapping[str, int] = field(default_factory=dict)
    where: dict[str, list[str]] = field(default_factory=dict)
    example: dict[str, int] = field(default_factory=dict)
    conditions: set[str] = field(default_factory=set)
    equal: dict[sympy.Symbol, sympy.Expr] = field(default_factory=dict)
    _names: dict[Any, sympy.Symbol] = field(default_factory=dict)

    def declare(self, label: str, tensor: Any) -> None:
        """Name the symbols among the sizes of an input: as given, else n1, n2, ... in order of appearance."""
        for position, size in enumerate(tensor.shape):
            traced = self._traced(size)
            if traced.is_Symbol:
                name = self._names.setdefault(traced, _symbol(self._name(self._number(traced)))).name
                self.example[name] = self._number(traced)
                self.where.setdefault(name, []).append(f"{label}[{position}]")

    def _name(self, number: int) -> str:
        free = (f"n{i}" for i in range(1, len(self._names) + len(self.given) + 2))
        taken = {*self.given, *self.where}
        return next((n for n, value in self.given.items() if value == number), next(n for n in free if n not in taken))

    def settle(self) -> None:
        """Express names by others where the layer compared sizes and went on because they are equal.

        To be called once all inputs are declared.
        """
        for guard in self.environment.guards:
            traced = self.environment.simplify(self.environment.replace(guard.expr))
            if isinstance(traced, sympy.Eq):
                with suppress(GraphError):  # comparisons of remainders say nothing of this kind
                    left, right = (self._named(side).subs(self.equal) for side in traced.args)
                    self._equate(sympy.numer(sympy.together(left - right)))
        self.conditions.clear()  # those of sizes that no tensor has

    def _equate(self, zero: sympy.Expr) -> None:
        """Solve ``zero = 0`` for a name, best for one that was not given; leave what is not linear alone."""
        factors = [f for f, _ in sympy.factor_list(zero)[1] if not f.is_Symbol]
        if len(factors) != 1:
            return
        found = {}
        for name in sorted(factors[0].free_symbols, key=str):
            slope = factors[0].coeff(name)
            if slope.is_Rational and not (rest := factors[0] - slope * name).has(name):
                found[name] = sympy.expand(-rest / slope)
        if found:
            name = min(found, key=lambda n: (n.name in self.given, sympy.denom(sympy.together(found[n])), n.name))
            self.equal = {n: sympy.expand(v.subs(name, found[name])) for n, v in self.equal.items()}
            self.equal[name] = found[name]

    @property
    def fixed(self) -> dict[str, int]:
        """Names whose size is a number in the layer's own code, and no symbol."""
        given = {name: number for name, number in self.given.items() if name not in self.where}
        return given | {name.name: int(value) for name, value in self.equal.items() if value.is_Integer}

    def tensor(self, value: Any, role: Role) -> Tensor:
        """The type of a traced tensor; its axes are called by their sizes and told apart by primes."""
        sizes = [self.extent(size) for size in value.shape]
        return Tensor(tuple(Axis(n, s) for n, s in zip(distinct(map(str, sizes)), sizes, strict=True)), role)

    def extent(self, size: Any) -> sympy.Expr:
        """The named expression of a size; GraphError where it is no quotient of products and sums."""
        return sympy.expand(self._named(self._traced(size)).subs(self.equal))

    def _traced(self, size: Any) -> Any:
        node = getattr(size, "node", None)
        return sympy.Integer(size) if node is None else self.environment.simplify(self.environment.replace(node.expr))

    def _number(self, traced: Any) -> int:
        return int(self.environment.optimization_hint(traced))

    def _named(self, traced: Any) -> sympy.Expr:
        if traced.is_Integer:
            return sympy.Integer(int(traced))
        if traced in self._names:
            return self._names[traced]
        if traced.is_Add or traced.is_Mul:
            return traced.func(*map(self._named, traced.args))
        if traced.is_Pow and traced.exp.is_Integer:
            return self._named(traced.base) ** int(traced.exp)
        if isinstance(traced, FloorDiv | CleanDiv):
            return self._quotient(*traced.args)
        raise GraphError(
            f"a size is {traced}, which is no quotient of products and sums; take sizes that divide evenly"
        )

    def _quotient(self, above: Any, below: Any) -> sympy.Expr:
        """What is left over in the example is taken to be left over always, if what divides is a number."""
        left = self._number(above) % self._number(below)
        if left and not below.is_Integer:
            raise GraphError(f"{self._named(below)} does not divide {self._named(above)} in the example; let it")
        top, bottom = ((self._named(x) - shift).subs(self.equal) for x, shift in ((above, left), (below, 0)))
        multiple, divisor = sympy.fraction(sympy.together(sympy.cancel(top / bottom)))
        if divisor != 1:
            self.conditions.add(f"{divisor} divides {multiple}")
        return sympy.expand(top / bottom)


def _symbol(name: str) -> sympy.Symbol:
    return sympy.Symbol(name, integer=True, positive=True)


def distinct(names: Iterable[str], taken: Iterable[str] = ()) -> tuple[str, ...]:
    """The names, with primes where one was there before."""
    used, out = set(taken), []
    for name in names:
        new = re.sub(r"\s", "", name)
        while new in used:
            new += "'"
        used.add(new)
        out.append(new)
    return tuple(out)
