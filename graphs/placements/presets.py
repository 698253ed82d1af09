"""Post-training frameworks as presets: a placement, the schemes of its stages and the options they fix.

Each says how the framework is commonly run according to its source; most can be configured otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from graphs.errors import GraphError
from graphs.placements import Placement, placement
from graphs.stages import Options
from graphs.stages.stage import ASSESSMENT, GENERATION, TRAINING


@dataclass(frozen=True)
class Preset:
    """A named combination; ``placement`` carries the source."""

    name: str
    placement: Placement
    options: Options = field(default_factory=Options)


Schemes = tuple[str, ...]
OWN_PASS = Options(log_probabilities_own_pass=True)


def _preset(
    name: str, base: str, source: str, sample: Schemes, assess: Schemes, train: Schemes, options: Options | None = None
) -> Preset:
    schemes = ((GENERATION, sample), (ASSESSMENT, assess), (TRAINING, train))
    placed = replace(placement(base), name=name, schemes=schemes, source=source)
    return Preset(name, placed, options or Options())


_ALL = (
    _preset(
        "colossalchat",
        "baseline",
        "Table XI: Colossal-AI HybridParallel + Gemini; TP/PP/SP, Z1/2 and Z3; the actor is run again for its scores",
        ("tensor",),
        ("tensor", "pipeline"),
        ("tensor", "pipeline", "zero-3"),
        OWN_PASS,
    ),
    _preset(
        "deepspeed-chat",
        "hybrid",
        "Table XI: ZeRO-2/3 in training, the Hybrid Engine uses TP mainly for rollout; arXiv:2308.01320",
        ("tensor",),
        ("zero-3",),
        ("zero-3",),
        OWN_PASS,
    ),
    _preset(
        "openrlhf",
        "disaggregated",
        "Table XI: ZeRO-3/AutoTP in training, vLLM TP/PP in rollout, RingAttention; models on separate GPUs (README)",
        ("tensor", "pipeline"),
        ("zero-3",),
        ("zero-3",),
        OWN_PASS,
    ),
    _preset(
        "rlhfuse",
        "stage-fusion",
        "RLHFuse, arXiv:2409.13221: inter-stage and intra-stage fusion, Megatron-like 3D parallelism in training",
        ("tensor",),
        ("tensor",),
        ("3d",),
    ),
    _preset(
        "trl",
        "baseline",
        "Table XI: Accelerate; TP/vLLM mostly in rollout; CP via FSDP2/Ulysses; PPO sums its two losses",
        ("tensor",),
        (),
        ("zero-3",),
        Options(joint_update=True),
    ),
    _preset(
        "verl",
        "hybrid",
        "HybridFlow, arXiv:2409.19256: colocated models, resharding between FSDP or Megatron training and vLLM rollout",
        ("tensor",),
        ("zero-3",),
        ("zero-3",),
        OWN_PASS,
    ),
)
PRESETS = {p.name: p for p in _ALL}


def preset(name: str) -> Preset:
    """The preset of that name; GraphError for an unknown one."""
    if name not in PRESETS:
        raise GraphError(f"no preset is called {name!r}; choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
