"""Tensor parallelism (Megatron): heads, feed-forward channels and vocabulary are cut; the model channel is not.

No operation has two of these axes, so they need no priorities.  ``g`` is an expert's feed-forward channel.
"""

from __future__ import annotations

from graphs.schemes.scheme import Mapping, Scheme

SCHEME = Scheme(
    "Tensor",
    (Mapping("h", "P_t"), Mapping("f", "P_t"), Mapping("g", "P_t"), Mapping("v", "P_t")),
    source="row Tensor of Tables V-VIII; Megatron-LM",
)
