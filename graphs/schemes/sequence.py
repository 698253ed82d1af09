"""Tensor parallelism with sequence parallelism (Megatron): between the contractions the positions are cut instead.

The axes of the contractions have priority.  Embedding, final norm, head and loss keep whole positions.
"""

from __future__ import annotations

from dataclasses import replace

from graphs.schemes.scheme import Mapping, Scheme
from graphs.schemes.tensor import SCHEME as TENSOR

SCHEME = Scheme(
    "Sequence",
    (*(replace(e, priority=1) for e in TENSOR.entries), Mapping("s", "P_t", where="blocks")),
    source="Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models",
)
