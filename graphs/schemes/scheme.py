"""A parallelism scheme: which axis is cut over which mesh dimension.  Everything else about a scheme is inferred."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from graphs.errors import GraphError
from graphs.symbols import SIZES

MESHES = tuple(sorted(name for name in SIZES if name.startswith("P_")))
LAYOUTS = ("contiguous", "zigzag")
PLACES = ("everywhere", "blocks", "storage")
LAYER = "layer"


@dataclass(frozen=True)
class Mapping:
    """``axis`` is cut over ``mesh``.

    Where an operation has two axes of one mesh dimension the higher ``priority`` stays cut.  ``where`` says where the
    entry is in force: everywhere, inside the loop bodies only (blocks), or only for parameters and their gradients
    while they are not in use (storage, as in ZeRO).
    """

    axis: str
    mesh: str
    priority: int = 0
    layout: str = "contiguous"
    where: str = "everywhere"


@dataclass(frozen=True)
class Scheme:
    """``nesting`` lists, for an axis cut over several mesh dimensions, these from the outermost to the innermost."""

    name: str
    entries: tuple[Mapping, ...]
    source: str
    nesting: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __post_init__(self) -> None:
        for law in LAWS:
            law(self)

    @property
    def meshes(self) -> tuple[str, ...]:
        """The mesh dimensions in use, in order of first mention."""
        return tuple(dict.fromkeys(e.mesh for e in self.entries))

    def order(self, axis: str) -> tuple[str, ...]:
        return dict(self.nesting).get(axis, ())


def _refuse(scheme: Scheme, sentence: str) -> None:
    raise GraphError(f"scheme {scheme.name}: {sentence}")


def words_are_known(scheme: Scheme) -> None:
    known = {"mesh": MESHES, "layout": LAYOUTS, "where": PLACES}
    for entry in scheme.entries:
        for word, values in known.items():
            said = getattr(entry, word)
            if said not in values:
                _refuse(scheme, f"axis {entry.axis!r} has unknown {word} {said!r}; use one of {', '.join(values)}")


def no_entry_is_listed_twice(scheme: Scheme) -> None:
    pairs = [(e.axis, e.mesh) for e in scheme.entries]
    for axis, mesh in pairs:
        if pairs.count((axis, mesh)) > 1:
            _refuse(scheme, f"axis {axis!r} is mapped to {mesh} twice; remove one entry")


def several_meshes_of_an_axis_are_nested(scheme: Scheme) -> None:
    by_axis = sorted((e.axis, e.mesh) for e in scheme.entries)
    for axis, group in groupby(by_axis, key=lambda pair: pair[0]):
        meshes = [mesh for _, mesh in group]
        if len(meshes) > 1 and sorted(scheme.order(axis)) != meshes:
            _refuse(scheme, f"axis {axis!r} is mapped to {' and '.join(meshes)}; declare the nesting, outermost first")


def the_layer_axis_has_a_mesh_of_its_own(scheme: Scheme) -> None:
    """Stages of a pipeline hold different layers, so their mesh dimension can carry nothing else."""
    for entry in (e for e in scheme.entries if e.axis == LAYER and e.where != "storage"):
        if entry.layout != "contiguous" or entry.where != "everywhere":
            _refuse(scheme, "the layer axis is cut into contiguous stages everywhere; remove its layout and place")
        if any(e.mesh == entry.mesh and e is not entry for e in scheme.entries):
            _refuse(
                scheme, f"{entry.mesh} carries the layer axis and another; give that one a mesh dimension of its own"
            )
        if any(e.axis == LAYER and e is not entry for e in scheme.entries):
            _refuse(scheme, "the layer axis can be mapped to one mesh dimension only; remove the other entry")


LAWS = (
    words_are_known,
    no_entry_is_listed_twice,
    several_meshes_of_an_axis_are_nested,
    the_layer_axis_has_a_mesh_of_its_own,
)
