"""A parallelism scheme: which axis is cut over which mesh dimension.  Everything else about a scheme is inferred."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from graphs.axes import Role
from graphs.errors import GraphError
from graphs.ir import REGIONS
from graphs.symbols import SIZES, register_degree

LAYOUTS = ("contiguous", "zigzag")
LAYER = "layer"
#: a scheme's name is a part of cell ids and heads a row of tables
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 +.-]{0,38}[A-Za-z0-9+])?")

#: where an entry is in force: everywhere, in loop bodies, in a region of them, or only for what is stored between uses
STORED = (Role.PARAMETER, Role.PARAMETER_GRADIENT, Role.OPTIMIZER)
STORAGE = {
    "storage": STORED,
    "gradients": (Role.PARAMETER_GRADIENT, Role.OPTIMIZER),
    "optimizer": (Role.OPTIMIZER,),
}
PLACES = ("everywhere", "blocks", *REGIONS, *STORAGE)

#: what becomes of a value that an exchange widened in the forward pass and the backward pass reads again
GATHERED = ("again", "kept")
#: to what the gradients of a micro-batch are added
ACCUMULATED = ("shards", "partial")


@dataclass(frozen=True)
class Mapping:
    """``axis`` is cut over ``mesh``.

    Where an operation has two axes of one mesh dimension the higher ``priority`` stays cut.  ``where`` says where the
    entry is in force: everywhere, inside the loop bodies only (blocks), in a region of a block (attention), or only for
    parameters, gradients and optimizer state while they are not in use: all three (storage, as in ZeRO-3), the latter
    two (gradients, ZeRO-2) or the last (optimizer, ZeRO-1).
    """

    axis: str
    mesh: str
    priority: int = 0
    layout: str = "contiguous"
    where: str = "everywhere"

    @property
    def stored(self) -> bool:
        """Is the entry about what is stored between uses?"""
        return self.where in STORAGE


@dataclass(frozen=True)
class Scheme:
    """Entries and policies.

    ``nesting`` lists, for an axis cut over several mesh dimensions, these from the outermost to the innermost.
    ``gathered``: what the forward pass gathered is gathered ``again`` in the backward pass, or ``kept`` until then.
    ``accumulated``: where stored gradients are cut, those of a micro-batch are added to ``shards``, which takes a
    reduction each, or to ``partial`` sums, which take one reduction in the end and memory for whole gradients.
    ``dimensions`` are names and meanings of mesh dimensions that the scheme brings along.
    """

    name: str
    entries: tuple[Mapping, ...]
    source: str
    nesting: tuple[tuple[str, tuple[str, ...]], ...] = ()
    gathered: str = "again"
    accumulated: str = "shards"
    dimensions: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for law in LAWS:
            law(self)
        for name, meaning in self.dimensions:
            register_degree(name, meaning)

    @property
    def meshes(self) -> tuple[str, ...]:
        """The mesh dimensions in use, in order of first mention."""
        return tuple(dict.fromkeys(e.mesh for e in self.entries))

    @property
    def pipeline(self) -> str | None:
        """The mesh dimension whose ranks hold different layers."""
        return next((e.mesh for e in self.entries if e.axis == LAYER and not e.stored), None)

    def order(self, axis: str) -> tuple[str, ...]:
        return dict(self.nesting).get(axis, ())


def _refuse(scheme: Scheme, sentence: str) -> None:
    raise GraphError(f"scheme {scheme.name}: {sentence}")


def the_name_fits_a_table(scheme: Scheme) -> None:
    name: object = scheme.name  # whatever the annotation says: a user's file may hold anything
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise GraphError(
            f"a scheme cannot be called {scheme.name!r}; use up to 40 letters, digits, spaces, and the signs + - ."
        )


def _are_pairs(value: object, second: Callable[[object], bool]) -> bool:
    pairs = value if isinstance(value, tuple) else (None,)
    return all(isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) and second(p[1]) for p in pairs)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(map(_is_text, value))


def texts_are_texts(scheme: Scheme) -> None:
    if not _is_text(scheme.source):
        _refuse(scheme, f"its source is {scheme.source!r}; write in a text where the scheme is described")
    if not _are_pairs(scheme.nesting, _are_texts):
        _refuse(scheme, f"its nesting is {scheme.nesting!r}; write one like (('b', ('P_d', 'P_e')),)")
    if not _are_pairs(scheme.dimensions, _is_text):
        _refuse(scheme, f"its dimensions are {scheme.dimensions!r}; write names and meanings like (('P_x', 'rows'),)")


def entries_are_mappings(scheme: Scheme) -> None:
    entries: object = scheme.entries
    if not isinstance(entries, tuple) or not all(isinstance(e, Mapping) for e in entries):
        _refuse(scheme, "its entries must be a tuple; write (Mapping(axis, mesh), ...)")
    for entry in scheme.entries:
        if not _is_text(entry.axis):
            _refuse(scheme, f"an entry cuts the axis {entry.axis!r}; name the axis by its letter, such as 'b'")
        if type(entry.priority) is not int:
            _refuse(scheme, f"axis {entry.axis!r} has priority {entry.priority!r}; give it a whole number")


def words_are_known(scheme: Scheme) -> None:
    for policy, ways in (("gathered", GATHERED), ("accumulated", ACCUMULATED)):
        if getattr(scheme, policy) not in ways:
            _refuse(scheme, f"unknown policy {policy} = {getattr(scheme, policy)!r}; use one of {', '.join(ways)}")
    own = {name for name, _ in scheme.dimensions}
    meshes = tuple(sorted(own | {name for name in SIZES if name.startswith("P_")}))
    known = {"mesh": meshes, "layout": LAYOUTS, "where": PLACES}
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


def nesting_is_about_what_is_cut(scheme: Scheme) -> None:
    cut = {e.axis for e in scheme.entries}
    for axis, meshes in scheme.nesting:
        if axis not in cut:
            _refuse(scheme, f"its nesting is about axis {axis!r}, which no entry cuts; remove it or map the axis")
        if strange := [m for m in meshes if m not in scheme.meshes]:
            _refuse(scheme, f"its nesting of axis {axis!r} has {strange[0]!r}, over which nothing is cut; remove it")


def the_layer_axis_has_a_mesh_of_its_own(scheme: Scheme) -> None:
    """Stages of a pipeline hold different layers, so their mesh dimension can carry nothing else."""
    for entry in (e for e in scheme.entries if e.axis == LAYER and not e.stored):
        if entry.layout != "contiguous" or entry.where != "everywhere":
            _refuse(scheme, "the layer axis is cut into contiguous stages everywhere; remove its layout and place")
        if any(e.mesh == entry.mesh and e is not entry for e in scheme.entries):
            _refuse(
                scheme, f"{entry.mesh} carries the layer axis and another; give that one a mesh dimension of its own"
            )
        if any(e.axis == LAYER and e is not entry for e in scheme.entries):
            _refuse(scheme, "the layer axis can be mapped to one mesh dimension only; remove the other entry")


LAWS = (
    the_name_fits_a_table,
    texts_are_texts,
    entries_are_mappings,
    words_are_known,
    no_entry_is_listed_twice,
    several_meshes_of_an_axis_are_nested,
    nesting_is_about_what_is_cut,
    the_layer_axis_has_a_mesh_of_its_own,
)
