"""What a scheme says of a set of axes: which of them stay cut, over which mesh dimensions, in which order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from graphs.axes import Role, Split
from graphs.errors import GraphError
from graphs.ir import Graph
from graphs.ops.relabel import Relabel
from graphs.ops.repeat import Repeat
from graphs.schemes.scheme import STORAGE, Scheme
from graphs.schemes.scheme import Mapping as Entry
from graphs.sizes import Sizes

Splits = Mapping[str, tuple[Split, ...]]


@dataclass(frozen=True)
class Layouts:
    """The rules of one scheme outside of loop bodies or, ``in_blocks``, inside of them."""

    scheme: Scheme
    in_blocks: bool = False

    @property
    def keeps_gathered(self) -> bool:
        return self.scheme.gathered == "kept"

    def splits(
        self, names: Collection[str], place: str, role: Role | None = None, region: str | None = None
    ) -> dict[str, tuple[Split, ...]]:
        """For each mesh dimension the axis of highest priority among ``names`` stays cut.

        ``role`` is that of a stored value, ``region`` that of an occurrence; ``place`` is for messages.
        """
        chosen: dict[str, list[Split]] = {}
        for mesh in self.scheme.meshes:
            entries = [
                e for e in self.scheme.entries if e.mesh == mesh and e.axis in names and self._holds(e, role, region)
            ]
            if entries:
                best = self._first(entries, place)
                chosen.setdefault(best.axis, []).append(Split(mesh, best.layout))
        return {axis: self._nested(axis, found) for axis, found in chosen.items()}

    def _holds(self, entry: Entry, role: Role | None, region: str | None) -> bool:
        if entry.where == "blocks":
            return self.in_blocks
        return entry.where in ("everywhere", region) or role in STORAGE.get(entry.where, ())

    def _first(self, entries: list[Entry], place: str) -> Entry:
        best = max(entries, key=lambda e: e.priority)
        rivals = [e.axis for e in entries if e.priority == best.priority]
        if len(rivals) > 1:
            raise GraphError(
                f"scheme {self.scheme.name}: {place} has axes {' and '.join(rivals)}, both mapped to {best.mesh} with "
                f"priority {best.priority}; give the one that shall stay cut a higher priority"
            )
        return best

    def _nested(self, axis: str, found: list[Split]) -> tuple[Split, ...]:
        order = self.scheme.order(axis)
        return tuple(sorted(found, key=lambda s: order.index(s.mesh))) if len(found) > 1 else tuple(found)


def meshes_of(target: Splits) -> set[str]:
    return {s.mesh for splits in target.values() for s in splits}


def without(target: Splits, meshes: frozenset[str]) -> dict[str, tuple[Split, ...]]:
    return {axis: tuple(s for s in splits if s.mesh not in meshes) for axis, splits in target.items()}


def all_nodes_axes(graph: Graph) -> Iterator[tuple[str, str | None]]:
    """Every axis name in the graph and its loop bodies, with the name it is relabelled to, if it is."""
    for tensor in graph.inputs.values():
        yield from ((name, None) for name in tensor.names)
    for node in graph.nodes:
        if isinstance(node.op, Relabel):
            yield node.op.old, node.op.new
        if isinstance(node.op, Repeat):
            yield node.op.axis.name, None
            yield from all_nodes_axes(node.op.body)
        yield from ((name, None) for tensor in node.types for name in tensor.names)


def check_axes(graph: Graph, scheme: Scheme) -> None:
    """The scheme speaks of known axes only, and an axis mapped twice under two names has a declared nesting."""
    pairs = list(all_nodes_axes(graph))
    known = sorted({name for name, _ in pairs} | {"t", *Sizes.canonical().axes()})
    for entry in scheme.entries:
        if entry.axis not in known:
            raise GraphError(f"scheme {scheme.name}: unknown axis {entry.axis!r}; use one of {', '.join(known)}")
    for names in _alias_classes(pairs):
        meshes = sorted({e.mesh for e in scheme.entries if e.axis in names})
        if len(meshes) > 1 and not any(sorted(scheme.order(n)) == meshes for n in names):
            raise GraphError(
                f"scheme {scheme.name}: {' and '.join(names)} name one axis, mapped to {' and '.join(meshes)}; "
                "declare their nesting, outermost first"
            )


def _alias_classes(pairs: list[tuple[str, str | None]]) -> list[list[str]]:
    """Groups of names that relabelling makes one axis."""
    group = {name: {name} for pair in pairs for name in pair if name is not None}
    for old, new in pairs:
        if new is not None and group[old] is not group[new]:
            merged = group[old] | group[new]
            group.update(dict.fromkeys(merged, merged))
    return [sorted(g) for name, g in sorted(group.items()) if name == min(g) and len(g) > 1]
