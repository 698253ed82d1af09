"""Expert parallelism with owned tokens: ranks that share out sequences and experts exchange copies and answers.

In an expert's products the expert stays cut, elsewhere the sequences do.
"""

from __future__ import annotations

from graphs.schemes.scheme import Mapping, Scheme

SCHEME = Scheme(
    "Expert-A2A",
    (Mapping("b", "P_e"), Mapping("e", "P_e", priority=1)),
    source="Lepikhin et al. 2020, GShard; with the dispatched layer the exchanges are all-to-all",
)
FFN = "dispatched"
ASSUMES = ("balanced-routing", "experts-per-rank")
