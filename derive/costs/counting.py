"""How many index points a set of axes has under its restrictions, and how long the longest row of a reduction is."""

from __future__ import annotations

from collections.abc import Iterable

import sympy

from derive.costs.model import CostModel
from derive.dominance import nonnegative
from derive.forms import Form
from derive.interchange import from_sympy
from graphs.axes import Axis, Behind, Causal, Prefix, Restriction, TopK, Window
from graphs.errors import GraphError


def product(forms: Iterable[Form]) -> Form:
    out = Form.constant(1)
    for form in forms:
        out = out * form
    return out


def volume(axes: Iterable[Axis], restrictions: Iterable[Restriction], model: CostModel) -> Form:
    """Index points of one rank; restrictions that speak of an absent axis do not apply."""
    extents = {a.name: a for a in axes}
    names, out = frozenset(extents), Form.constant(1)
    for restriction in dict.fromkeys(r for r in restrictions if r.axes <= names):
        counted = _counted(restriction)
        if not counted <= extents.keys():
            raise GraphError(f"two restrictions count the axis {min(counted - extents.keys())!r}; keep one of them")
        taken = {name: extents.pop(name) for name in counted}
        if isinstance(restriction, Window):
            out = out * window_pairs(restriction, taken[restriction.query], taken[restriction.key], model)
        elif isinstance(restriction, Causal):
            out = out * causal_pairs(taken[restriction.query], taken[restriction.key], model)
        elif isinstance(restriction, Behind):
            out = out * blocks_behind(taken[restriction.block], model)
        elif isinstance(restriction, Prefix):
            out = out * from_sympy(restriction.length)
        else:
            out = out * active(taken[restriction.axis], restriction, model)
    return out * product(from_sympy(a.extent) for a in extents.values())


def _counted(restriction: Restriction) -> frozenset[str]:
    """The axes whose points the restriction counts; a top-k reads its ``per`` axes and leaves them whole."""
    if isinstance(restriction, Causal):
        return restriction.axes
    return frozenset((restriction.block if isinstance(restriction, Behind) else restriction.axis,))


def causal_pairs(query: Axis, key: Axis, model: CostModel) -> Form:
    """Pairs (s, t) with t <= s that one rank holds of a square domain of side ``size``; no other has this count."""
    if query.size != key.size:
        raise GraphError(
            f"a causal restriction of {query.size} queries over {key.size} keys is not square; cut a prefix"
        )
    split, whole = (key, query) if key.splits else (query, key)
    side, part = from_sympy(whole.extent), from_sympy(split.extent)
    if model.causal == "dense":
        return part * side
    extra = Form.constant(1 if model.causal == "exact" else 0)
    if model.balanced_causal or all(s.layout == "zigzag" for s in split.splits):
        return part * (side + extra) / 2
    return part * (2 * side - part + extra) / 2


def window_pairs(window: Window, query: Axis, key: Axis, model: CostModel) -> Form:
    """Pairs that one rank holds of a square domain of side ``size`` whose rows are at most ``width`` long.

    Exactly W(W+1)/2 + (size-W)W for W <= size: W of each query but for the W(W-1)/2 that lie before the first key.
    """
    if query.size != key.size:
        raise GraphError(f"a window over {query.size} queries and {key.size} keys is not square; cut a prefix")
    side, width = from_sympy(query.size), shorter(window.width, query.size)
    if model.causal == "dense":
        pairs = side * width
    else:
        pairs = width * (2 * side - width + (1 if model.causal == "exact" else 0)) / 2
    if query.splits or key.splits:
        if not model.balanced_causal:
            raise GraphError("the rank with most work under a cut window is not counted; balance the causal work")
        pairs = pairs * from_sympy(query.extent * key.extent / (query.size * key.size))
    return pairs


def shorter(width: sympy.Expr, size: sympy.Expr) -> Form:
    """The smaller of two extents; GraphError where their symbols do not tell."""
    narrow, wide = from_sympy(width), from_sympy(size)
    if nonnegative(wide - narrow):
        return narrow
    if nonnegative(narrow - wide):
        return wide
    raise GraphError(f"nothing says which is smaller, {width} or {size}; give them numbers, or one as a multiple")


def blocks_behind(block: Axis, model: CostModel) -> Form:
    """Blocks of one rank that meet earlier keys in a step of a ring: the mean over steps, or those of the last rank."""
    here = from_sympy(block.extent)
    if model.causal == "dense" or (block.splits and not model.balanced_causal):
        return here
    return here / 2


def active(axis: Axis, restriction: TopK, model: CostModel) -> Form:
    """Members of a routed axis that one rank serves per token: the mean over ranks, or all of them."""
    if not model.balanced_routing:
        return from_sympy(restriction.active)
    return from_sympy(restriction.active * axis.extent / axis.size)


def longest_row(contracted: Iterable[Axis], restrictions: Iterable[Restriction], model: CostModel) -> Form:
    """The most terms any one result sums on one rank.

    A causal restriction leaves the full row (the last query), and all its pairs where both axes are summed.  A routed
    axis has at most its active members, and a rank may hold all of a token's.  A cache has what it holds so far.
    """
    axes = {a.name: a for a in contracted}
    out = Form.constant(1)
    for r in dict.fromkeys(restrictions):
        if isinstance(r, TopK) and r.axis in axes:
            del axes[r.axis]
            out = out * from_sympy(r.active)
        elif isinstance(r, Window):
            out = out * _longest_of_window(r, axes, model)
        elif isinstance(r, Prefix) and r.axis in axes:
            del axes[r.axis]
            out = out * from_sympy(r.length)
        elif isinstance(r, Causal) and r.axes <= axes.keys():
            out = out * causal_pairs(axes.pop(r.query), axes.pop(r.key), model)
    return out * product(from_sympy(a.extent) for a in axes.values())


def _longest_of_window(window: Window, axes: dict[str, Axis], model: CostModel) -> Form:
    """All pairs where both axes are summed, the window where one is; takes them out of ``axes``."""
    summed = [axes.pop(name) for name in (window.query, window.key) if name in axes]
    if len(summed) == 2:
        return window_pairs(window, summed[0], summed[1], model)
    return shorter(window.width, summed[0].extent) if summed else Form.constant(1)
