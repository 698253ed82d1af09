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

    A free factor is named after the size it is left of: ``h = P_t*h_1``, ``d = P_t*h_1*d_h``.
    """
    extents = {name: from_sympy(axis.size) for name, axis in sizes.axes().items()}
    split: dict[str, Form] = {}
    for entry in scheme.entries:
        extent = extents.get(entry.axis)
        if extent is None or len(extent.terms) != 1:
            continue
        ((monomial, _),) = extent.terms.items()
        if len(monomial) == 1 and isinstance(monomial[0][0], str):
            name = monomial[0][0]
            if name == entry.mesh:  # as many entries as ranks
                continue
            if symbol(entry.mesh).symbols <= split.get(name, Form.constant(1)).symbols:
                continue
            split[name] = split.get(name, Form.constant(1)) * symbol(entry.mesh)
    out = {name: mesh * symbol(f"{name}_1") for name, mesh in split.items()}
    heads, width = from_sympy(sizes.h), from_sympy(sizes.d)
    (h,), (d,) = heads.symbols, width.symbols
    out[d] = out.get(h, heads) * symbol(f"d_h{d.removeprefix('d')}")
    return dict(sorted(out.items()))
