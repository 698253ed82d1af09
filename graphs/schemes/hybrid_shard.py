"""Hybrid sharded data parallelism: stored state is cut within a group of P_s ranks and repeated over the P_d groups.

Sequences are shared out over groups and over the ranks of a group.
"""

from __future__ import annotations

from graphs.schemes.scheme import Mapping, Scheme

SCHEME = Scheme(
    "HSDP",
    (Mapping("b", "P_d"), Mapping("b", "P_s"), Mapping("c", "P_s", where="storage")),
    source="Zhao et al. 2023, PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel",
    nesting=(("b", ("P_d", "P_s")),),
    dimensions=(("P_s", "degree of sharding within a data-parallel group"),),
)
