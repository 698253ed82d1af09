"""The sizes of one model, as symbols, and the axes they span."""

from __future__ import annotations

from dataclasses import dataclass, fields

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


@dataclass(frozen=True)
class Shape(Sizes):
    """Sizes of a decoder whose parts vary, of numbers or symbols; what a model has no use for is None.

    ``h_kv`` heads of keys and values serve ``h`` query heads; ``d_h`` is the width of a head, whatever d/h is.
    ``d_ff`` is the width of dense feed-forward layers, ``d_s`` that of shared experts together.  In latent attention
    keys and values have a latent of ``d_kv`` channels and queries one of ``d_q``; ``d_h`` channels of a head carry no
    position, ``d_r`` do, and ``d_v`` are mixed.  ``positions`` are the rows of a learned table.  ``rank`` is the width
    of low-rank adapters.
    """

    h_kv: sympy.Expr | None = None
    d_s: sympy.Expr | None = None
    d_kv: sympy.Expr | None = None
    d_q: sympy.Expr | None = None
    d_r: sympy.Expr | None = None
    d_v: sympy.Expr | None = None
    positions: sympy.Expr | None = None
    rank: sympy.Expr | None = None

    @staticmethod
    def of(**given: sympy.Expr | int | None) -> Shape:
        """Sizes by name; what is not named the model has no use for."""
        known = {f.name for f in fields(Shape)}
        if unknown := sorted(given.keys() - known):
            raise GraphError(f"no size is called {unknown[0]!r}; known are {', '.join(sorted(known))}")
        sizes = {name: None if n is None else sympy.sympify(n) for name, n in given.items()}
        return Shape(**(dict.fromkeys(known) | sizes))

    def axes(self) -> dict[str, Axis]:
        """The axes of `Sizes` that the model has, where h are heads of keys and values, and further ones.

        q query heads of a head of keys and values; latent and q_latent; rope and value channels of a head; p learned
        position; rank of adapters; onto, the
        channels again.
        """
        heads = self.h if self.h_kv is None else self.h_kv
        extents = {
            "b": self.B,
            "s": self.m,
            "c": self.d,
            "h": heads,
            "q": None if heads is None else self.h / heads,
            "k": self.d_h,
            "f": self.d_ff,
            "v": self.V,
            "r": self.E,
            "e": self.E,
            "g": self.d_e,
            "latent": self.d_kv,
            "q_latent": self.d_q,
            "rope": self.d_r,
            "value": self.d_v,
            "p": self.positions,
            "rank": self.rank,
            "onto": self.d,
        }
        return {name: Axis(name, extent) for name, extent in extents.items() if extent is not None}
