"""The domain on which formulas are read: sizes as products of free factors.

Divisibility is how models are configured: heads divide the width, a degree divides what it splits.  In free factors
every constraint of that kind is gone.
"""

from __future__ import annotations

from derive.forms import Form, symbol
from derive.interchange import from_sympy
from graphs.schemes.scheme import Scheme
from graphs.sizes import Sizes


def factors_of(sizes: Sizes, scheme: Scheme) -> dict[str, Form]:
    """Size symbol -> product of free factors, from what the scheme splits and from d = h d_h.

    A free factor is named after the size it is left of: ``h = P_t*h_1``, ``d = P_t*h_1*d_h``.  What cuts the model
    channel or a head's channel divides the width of a head: ``d = h*P_y*d_h_1``.
    """
    axes = {**sizes.axes(), "t": sizes.axes()["s"].renamed("t")}
    cut = {axis: _degrees(scheme, axis) for axis in axes}
    split: dict[str, tuple[str, ...]] = {}
    for name, axis in axes.items():
        found = from_sympy(axis.size).symbols
        if len(found) == 1:  # not a number, nor the width of a head, which is no size of its own
            (size,) = found
            by = (degree for degree in cut[name] if degree != size)  # as many entries as ranks
            split[size] = tuple(dict.fromkeys((*split.get(size, ()), *by)))
    (h,), (d,) = from_sympy(sizes.h).symbols, from_sympy(sizes.d).symbols
    head = f"d_h{d.removeprefix('d')}"
    channels = tuple(dict.fromkeys((*cut["k"], *(p for p in split.pop(d) if p not in split[h]))))
    out = {name: _shared(name, by) for name, by in split.items() if by}
    out[d] = out.get(h, symbol(h)) * (_shared(head, channels) if channels else symbol(head))
    return dict(sorted(out.items()))


def _degrees(scheme: Scheme, axis: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e.mesh for e in scheme.entries if e.axis == axis))


def _shared(name: str, degrees: tuple[str, ...]) -> Form:
    """``P*Q*name_1``: what is left of a size that the degrees divide."""
    out = symbol(f"{name}_1")
    for degree in degrees:
        out = symbol(degree) * out
    return out
