"""What one iteration of post-training costs at numbers, where every model of it is built like the evaluated one.

Models run one after the other on one group of devices (the baseline placement), each as `derive.evaluate` measures it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from derive.evaluate import Setting
from derive.placements import StageQuestion, stage_depth, stage_work
from derive.rank import whole
from graphs.errors import GraphError
from graphs.stages.stage import MODELS


@dataclass(frozen=True)
class Iteration:
    """``rollouts`` for each of the setting's B prompts, or, where an algorithm compares pairs, B pairs."""

    setting: Setting
    algorithm: str
    rollouts: int = 1

    def __post_init__(self) -> None:
        if self.setting.model.ahead:
            raise GraphError("an iteration has no modules that predict further tokens; leave --multi-token out")
        if "generation" not in self.setting.work():
            raise GraphError("an iteration generates, which is not measured where positions are cut; leave P_c out")

    def work(self) -> dict[str, int]:
        """FLOPs of each stage over all ranks, and of all stages."""
        s = self.setting
        found, tokens = s.work(), s.B * (s.S + s.T)
        each = {
            "C_gen_roll": Fraction(found["generation"].world, s.B),
            "C_f_tok": Fraction(found["forward"].world, tokens),
            "C_b_tok": Fraction(found["backward"].world, tokens),
        }
        return self._evaluated(each, depth=False)

    def depth(self) -> dict[str, int]:
        """Steps of each stage over all ranks; a forward and a backward pass together are as deep as a training step."""
        found = {name: Fraction(amount.world) for name, amount in self.setting.depth().items()}
        passes = {"D_f": found["forward"], "D_b": found["training_step"] - found["forward"]}
        return self._evaluated({"D_gen": found["generation"], **passes}, depth=True)

    def _evaluated(self, each: dict[str, Fraction], *, depth: bool) -> dict[str, int]:
        s, q = self.setting, StageQuestion(self.algorithm)
        sizes = {"B": s.B, "B_pairs": s.B, "K": self.rollouts, "m": s.S + s.T}
        costs = {f"{name}({model})": value for name, value in each.items() for model in MODELS.values()}
        measure = stage_depth if depth else stage_work
        out = {}
        for stage in q.stages:
            value = measure(replace(q, stage=stage)).value.evaluate({**sizes, **costs})
            out[stage.lower()] = whole(Fraction(value), f"the cost of {stage}")
        return out | {"iteration": sum(out.values())}
