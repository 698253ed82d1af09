"""5D parallelism: 3D with context and expert parallelism; P_e also shares out the sequences."""

from __future__ import annotations

from graphs.schemes.context import SCHEME as CONTEXT
from graphs.schemes.expert_a2a import SCHEME as EXPERT
from graphs.schemes.scheme import Scheme
from graphs.schemes.three_d import SCHEME as THREE_D

SCHEME = Scheme(
    "5D",
    THREE_D.entries + CONTEXT.entries + EXPERT.entries,
    source="row 5D of Tables V-VIII: 3D, context and expert parallelism, with tokens owned over P_e as well",
    nesting=(("b", ("P_d", "P_e")),),
)
FFN = "experts"
FFN = "dispatched"
