"""5D parallelism: 3D with context and expert parallelism, each on a mesh dimension of its own."""

from __future__ import annotations

from graphs.schemes.context import SCHEME as CONTEXT
from graphs.schemes.expert import SCHEME as EXPERT
from graphs.schemes.scheme import Scheme
from graphs.schemes.three_d import SCHEME as THREE_D

SCHEME = Scheme(
    "5D",
    THREE_D.entries + CONTEXT.entries + EXPERT.entries,
    source="3D with context and expert parallelism; tokens are repeated over P_e",
)
FFN = "experts"
