"""ZeRO-2: gradients and optimizer state are cut over the data-parallel ranks; parameters are not.

Every parameter has the model channel, so that is the axis cut in storage.
"""

from __future__ import annotations

from graphs.schemes.scheme import Mapping, Scheme

SCHEME = Scheme(
    "ZeRO-2",
    (Mapping("b", "P_d"), Mapping("c", "P_d", where="gradients")),
    source="Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
)
