"""ZeRO-1: the optimizer state is cut over the data-parallel ranks; gradients and parameters are not.

Every parameter has the model channel, so that is the axis cut in storage.
"""

from __future__ import annotations

from graphs.schemes.scheme import Mapping, Scheme

SCHEME = Scheme(
    "ZeRO-1",
    (Mapping("b", "P_d"), Mapping("c", "P_d", where="optimizer")),
    source="Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
)
