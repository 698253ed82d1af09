"""GRPO: no critic; rewards are normalised over the rollouts of a prompt, and KL with the reference is in the loss."""

from __future__ import annotations

from graphs.stages.compose import PROMPTS, ROLLOUTS, Composer
from graphs.stages.stage import ASSESSMENT, Algorithm, Options, StageGraph


def build(options: Options) -> StageGraph:
    g = Composer("GRPO", (PROMPTS, ROLLOUTS), options)
    rollouts = g.rollouts()
    old = g.log_probabilities(rollouts)
    reference = g.reference(rollouts)
    score = g.rewards(rollouts)
    advantages = g.glue("group_normalisation", ASSESSMENT, score)
    g.update({"actor": (old, advantages)}, reference)
    return g.graph()


ALGORITHM = Algorithm("GRPO", build, source="column GRPO of Table IV; Shao et al. 2024, arXiv:2402.03300")
