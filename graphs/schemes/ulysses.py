"""Ulysses: positions are cut, but inside attention the heads are, so that a rank sees whole sequences of some heads.

Going from one cut to the other is an all-to-all of queries, keys, values and results.
"""

from __future__ import annotations

from graphs.schemes.scheme import Mapping, Scheme

SCHEME = Scheme(
    "Ulysses",
    (Mapping("s", "P_c"), Mapping("h", "P_c", priority=1, where="attention")),
    source="Jacobs et al. 2023, DeepSpeed Ulysses",
)
