"""What a model costs at numbers: parameters, work, depth, memory and key-value cache, on a rank and over all of them.

The ranks of a pipeline hold unlike stages, each of which is measured as a model by itself (`derive.rank`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from derive.memory import Widths
from derive.rank import ALONE, Rank
from graphs.errors import GraphError
from graphs.models.transformer import Transformer
from graphs.transforms.recompute import Recompute

PIPELINE = "P_p"
#: the mesh dimensions over which a model can be cut
MESHES = ("P_d", PIPELINE, "P_t", "P_c", "P_e")


@dataclass(frozen=True)
class Amount:
    """A number for the rank that has most, and for all ranks together."""

    rank: int
    world: int


#: by name
Amounts = dict[str, Amount]


@dataclass(frozen=True)
class Setting:
    """``B`` sequences of ``S`` prompt tokens and ``T`` generated ones, under conventions, on a mesh.

    ``widths`` are bytes of an element of what a training step holds, ``cache_width`` those of one of the cache.
    """

    model: Transformer
    B: int = 1
    S: int = 1024
    T: int = 1024
    causal: str = "exact"
    degrees: Mapping[str, int] = field(default_factory=dict)
    recompute: Recompute = Recompute.NONE
    widths: Widths = Widths()  # noqa: RUF009 - frozen
    cache_width: int = 2

    def __post_init__(self) -> None:
        rows = self.model.shape.positions
        if rows is not None and rows < self.S + self.T:
            raise GraphError(
                f"{self.model.name} has learned positions for {rows} tokens, not for S+T = {self.S + self.T}; "
                "make S or T smaller"
            )
        for mesh in self.degrees:
            if mesh not in MESHES:
                raise GraphError(f"no model is cut over {mesh} here; use {', '.join(MESHES)}")

    # -- ranks --------------------------------------------------------------------------------------------------------
    @property
    def inside(self) -> dict[str, int]:
        """The degrees over which every stage is cut; a degree of one cuts nothing."""
        return {mesh: n for mesh in ALONE if (n := self.degrees.get(mesh, 1)) > 1}

    def _rank(self, model: Transformer, degrees: Mapping[str, int]) -> Rank:
        return Rank(model, self.B, self.S, self.T, self.causal, degrees, self.recompute)

    @cached_property
    def stages(self) -> list[tuple[Rank, int]]:
        """A rank of each kind of stage, and how many stages are of that kind; without a pipeline there is one."""
        kinds = Counter(self.model.stages(self.degrees.get(PIPELINE, 1)))
        return [(self._rank(stage, self.inside), times) for stage, times in kinds.items()]

    @cached_property
    def device(self) -> Rank:
        """The one device that does everything."""
        return self._rank(self.model, {}) if self.degrees else self.chain

    @cached_property
    def chain(self) -> Rank:
        """A rank of those that share all layers, as the stages of a pipeline do one after the other."""
        return self._rank(self.model, self.inside) if PIPELINE in self.degrees else self.stages[0][0]

    def _gathered(self, measure: Callable[[Rank], dict[str, int]], whole: dict[str, int] | None = None) -> Amounts:
        """On the stage that has most; over all ranks, replicas included, or as a ``whole`` that is known otherwise."""
        found = [(measure(rank), times * prod(self.inside.values())) for rank, times in self.stages]
        world = {key: sum(ranks * one[key] for one, ranks in found) for key in found[0][0]} | (whole or {})
        return {key: Amount(max(one[key] for one, _ in found), total) for key, total in world.items()}

    # -- measures -----------------------------------------------------------------------------------------------------
    def work(self) -> Amounts:
        """FLOPs of the passes of a training step and, where no positions are cut, of generating."""
        return self._gathered(Rank.work)

    def depth(self) -> Amounts:
        """Longest chains of additions; over all ranks through all stages, with reducing collectives."""
        return self._gathered(Rank.depth, self.chain.depth(everywhere=True) if self.degrees else None)

    def parameters(self) -> Amounts:
        """All, active, multiplied and trained ones; over all ranks these are the model's, without replicas."""
        return self._gathered(Rank.parameters, self.device.parameters())

    def memory(self, widths: Widths | None = None) -> Amounts:
        """What a training step holds between its passes, in elements or, where widths are given, in bytes."""
        return self._gathered(lambda rank: rank.memory(widths))

    def held(self) -> int:
        """Bytes that a training step holds between its passes, on the rank that holds most."""
        return max(sum(rank.memory(self.widths).values()) for rank, _ in self.stages)

    def cache(self) -> Amounts:
        """Elements of the key-value cache: for one token, and for B sequences when the last token is chosen.

        What a token takes is the model's over all ranks, and what is held is that of all ranks, replicas included.
        """
        return self._gathered(Rank.cache, {"per_token": self.device.cache()["per_token"]})
