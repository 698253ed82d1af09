"""A placement: which device group runs which model in which stage.  Everything else about a placement is inferred."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from graphs.errors import GraphError
from graphs.schemes import cuts, schemes
from graphs.stages.stage import ASSESSMENT, GENERATION, MODELS, STAGES, TRAINING

ANY = "*"
#: what schemes of a stage may cut: samples, layers, and what tensor parallelism does; also what they store
UNDERSTOOD = ("Data", "Pipeline", "Tensor")
BARRIERS = ((GENERATION, ASSESSMENT), (ASSESSMENT, TRAINING))


@dataclass(frozen=True)
class Group:
    """Devices that work together; an exclusive group runs one invocation at a time, in program order."""

    name: str
    exclusive: bool = True


@dataclass(frozen=True)
class Seat:
    """The group on which the role runs in the stage; ``*`` stands for any."""

    stage: str
    role: str
    group: str

    def takes(self, stage: str, role: str) -> bool:
        return self.stage in (ANY, stage) and self.role in (ANY, role)


@dataclass(frozen=True)
class Placement:
    """``seats`` are tried in order.

    ``barriers`` are pairs of stages of which the first is over on all samples before the second starts on any; leaving
    one out fuses the two.  ``schemes`` names the parallelism of a stage's invocations.  ``staleness``, where the
    iterations overlap, is how many updates the sampling policy may be behind.  ``shared`` says that actor and critic
    are one model.
    """

    name: str
    heading: str
    groups: tuple[Group, ...]
    seats: tuple[Seat, ...]
    source: str
    barriers: tuple[tuple[str, str], ...] = BARRIERS
    schemes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    staleness: int | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        for law in LAWS:
            law(self)

    def group(self, stage: str, role: str) -> Group:
        """Where the role runs in the stage; GraphError where no seat says so."""
        for seat in self.seats:
            if seat.takes(stage, role):
                return next(g for g in self.groups if g.name == seat.group)
        raise GraphError(f"placement {self.name}: no seat for the {role} in {stage}; add one")

    def schemes_of(self, stage: str) -> tuple[str, ...]:
        return dict(self.schemes).get(stage, ())

    @property
    def phases(self) -> tuple[tuple[str, ...], ...]:
        """Stages between which no barrier stands run together."""
        out: list[tuple[str, ...]] = [(STAGES[0],)]
        for before, after in pairwise(STAGES):
            if (before, after) in self.barriers:
                out.append((after,))
            else:
                out[-1] = (*out[-1], after)
        return tuple(out)


def _refuse(placement: Placement, sentence: str) -> None:
    raise GraphError(f"placement {placement.name}: {sentence}")


def groups_differ_and_are_known(placement: Placement) -> None:
    names = [g.name for g in placement.groups]
    for name in names:
        if names.count(name) > 1:
            _refuse(placement, f"two groups are called {name!r}; rename one")
    for seat in placement.seats:
        if seat.group not in names:
            _refuse(placement, f"there is no group {seat.group!r}; use one of {', '.join(names)}")


def words_are_known(placement: Placement) -> None:
    for seat in placement.seats:
        if seat.stage not in (ANY, *STAGES) or seat.role not in (ANY, *MODELS):
            _refuse(
                placement, f"no seat can be for {seat.role!r} in {seat.stage!r}; use stages and roles of the graphs"
            )
    for pair in placement.barriers:
        if pair not in BARRIERS:
            _refuse(placement, f"a barrier stands between two stages that follow each other, not {' and '.join(pair)}")
    understood = frozenset[tuple[str, str]]().union(*map(cuts, UNDERSTOOD))
    known = [s.lower() for s in schemes() if cuts(s) <= understood]
    for stage, names in placement.schemes:
        if stage not in STAGES:
            _refuse(placement, f"schemes are given for an unknown stage {stage!r}; use one of {', '.join(STAGES)}")
        for name in names:
            if name not in known:
                _refuse(placement, f"{name!r} is no scheme with costs for a stage; use one of {', '.join(known)}")


def training_overlaps_on_devices_of_its_own(placement: Placement) -> None:
    if placement.staleness is None:
        return
    if placement.staleness < 0:
        _refuse(placement, f"a staleness of {placement.staleness} updates is below 0; give a count")
    training = {placement.group(TRAINING, role).name for role in ("actor", "critic")}
    for role in MODELS:
        for stage in (GENERATION, ASSESSMENT):
            if any(s.takes(stage, role) and s.group in training for s in placement.seats):
                _refuse(placement, f"{stage} and Training share a group, so they cannot overlap; give one its own")


LAWS: tuple[Callable[[Placement], None], ...] = (
    groups_differ_and_are_known,
    words_are_known,
    training_overlaps_on_devices_of_its_own,
)
