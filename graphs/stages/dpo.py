"""DPO: given pairs of two responses, scored once by the reference; no generation, and the policy alone is trained.

The policy's log-probabilities are those of the training forward pass, so assessment does not run the policy.
"""

from __future__ import annotations

from graphs.stages.compose import PAIRS, RESPONSES, Composer
from graphs.stages.stage import Algorithm, Options, StageGraph


def build(options: Options) -> StageGraph:
    g = Composer("DPO", (PAIRS, RESPONSES), options)
    g.update({"actor": (g.reference(),)})
    return g.graph()


ALGORITHM = Algorithm("DPO", build, source="column DPO of Table IV; Rafailov et al. 2023, arXiv:2305.18290")
