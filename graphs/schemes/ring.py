"""Ring attention: positions are cut; keys and values go round from rank to rank instead of being gathered.

A model whose attention works block by block (graphs/blocks/ring.py) is cut between its blocks ``a``.
"""

from __future__ import annotations

from graphs.schemes.scheme import Mapping, Scheme

SCHEME = Scheme(
    "Ring",
    (Mapping("s", "P_c"), Mapping("a", "P_c")),
    source="Liu et al. 2023, Ring Attention with Blockwise Transformers for Near-Infinite Context",
)
ATTENTION = "ring"
