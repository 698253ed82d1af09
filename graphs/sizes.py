"""The sizes of one model, as symbols, and the axes they span."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from graphs.axes import Axis, Role, Tensor
from graphs.errors import GraphError
from graphs.symbols import size


@dataclass(frozen=True)
class Sizes:
    """Symbolic sizes of a decoder; the width of a head is d/h unless given."""

    B: sympy.Expr
    m: sympy.Expr
    L: sympy.Expr
    d: sympy.Expr
    h: sympy.Expr
    d_ff: sympy.Expr
    V: sympy.Expr
    d_h: sympy.Expr
    E: sympy.Expr
    E_a: sympy.Expr
    d_e: sympy.Expr

    @staticmethod
    def canonical() -> Sizes:
        """One model."""
        return Sizes._make("")

    @staticmethod
    def of_model(model: str) -> Sizes:
        """The sizes of one of several models (``pi``, ``R``, ``V``, ``M``), which share batch and vocabulary."""
        return Sizes._make(f"_{model}")

    @staticmethod
    def _make(suffix: str) -> Sizes:
        d, h = size(f"d{suffix}"), size(f"h{suffix}")
        shared = {n: size(n) for n in ("B", "m", "V", "E", "E_a", "d_e")}
        return Sizes(L=size(f"L{suffix}"), d=d, h=h, d_ff=size(f"d_ff{suffix}"), d_h=d / h, **shared)

    def axes(self) -> dict[str, Axis]:
        """b batch, s position, c channel, h head, k head channel, f ffn channel, v vocabulary, r/e expert, layer.

        Where positions are seen as blocks: a block, u position in a block.
        """
        extents = {
            "b": self.B,
            "s": self.m,
            "c": self.d,
            "h": self.h,
            "k": self.d_h,
            "f": self.d_ff,
            "v": self.V,
            "r": self.E,
            "e": self.E,
            "g": self.d_e,
            "layer": self.L,
            "a": size("P_c"),
            "u": self.m / size("P_c"),
        }
        return {name: Axis(name, extent) for name, extent in extents.items()}

    def tensor(self, names: str, role: Role = Role.ACTIVATION) -> Tensor:
        """A tensor over the axes named in ``names``, e.g. ``tensor("b s c")``."""
        axes = self.axes()
        for name in names.split():
            if name not in axes:
                raise GraphError(f"no axis is called {name!r}; known are {', '.join(axes)}")
        return Tensor(tuple(axes[n] for n in names.split()), role)
