"""PPO: rollouts scored by a reference, a reward model and a critic; actor and critic are trained."""

from __future__ import annotations

from graphs.stages.compose import PROMPTS, ROLLOUTS, STEPS, Composer
from graphs.stages.stage import ASSESSMENT, Algorithm, Options, StageGraph


def build(options: Options) -> StageGraph:
    g = Composer("PPO", (PROMPTS, ROLLOUTS), options)
    rollouts = g.rollouts()
    old = g.log_probabilities(rollouts)
    reference = g.reference(rollouts)
    score = g.rewards(rollouts)
    values = g.values(rollouts)
    kl = g.glue("kl", ASSESSMENT, old, reference)
    advantages = g.glue("advantages", ASSESSMENT, score, kl, values, chain=STEPS)
    g.update({"actor": (old, advantages), "critic": (values, advantages)})
    return g.graph()


ALGORITHM = Algorithm("PPO", build, source="column PPO of Table IV; Schulman et al. 2017, arXiv:1707.06347")
