"""Data-parallel attention and parallel experts on the same ranks.

A rank has its share of the sequences, and all parameters but the experts, of which it has its own.  Copies of the
tokens are exchanged all-to-all with the ranks that have their experts, and so are the answers.
"""

from __future__ import annotations

from graphs.schemes import Mapping, Scheme

SCHEME = Scheme(
    "Attention data + experts",
    (Mapping("b", "P_e"), Mapping("e", "P_e", priority=1)),
    source="Lepikhin et al. 2020, GShard; DeepSeek-AI 2024, DeepSeek-V3 (data-parallel attention)",
)
#: its table row speaks of a mixture of experts that tokens are sent to
FFN = "dispatched"
#: assumptions of the ledger that it needs besides those of every row
ASSUMES = ("balanced-routing", "experts-per-rank")
