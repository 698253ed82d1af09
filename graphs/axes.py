"""Named axes, domain restrictions and tensor types: what a value looks like, before anyone asks what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

import sympy

from graphs.errors import GraphError

Mesh = Mapping[str, int]


@dataclass(frozen=True)
class Split:
    """One axis cut over one mesh dimension; ``zigzag`` gives a rank a chunk and its mirror (equal causal work)."""

    mesh: str
    layout: str = "contiguous"


@dataclass(frozen=True)
class Axis:
    """A named axis of global size ``size``; over the mesh dimensions of ``splits`` a rank holds only its part."""

    name: str
    size: sympy.Expr
    splits: tuple[Split, ...] = ()

    @property
    def extent(self) -> sympy.Expr:
        """Entries that one rank holds."""
        out = self.size
        for split in self.splits:
            out = out / sympy.Symbol(split.mesh, integer=True, positive=True)
        return out

    def renamed(self, name: str) -> Axis:
        return replace(self, name=name)


@dataclass(frozen=True)
class Causal:
    """Only the pairs with key position <= query position are meaningful: m(m+1)/2 of m^2, longest row m."""

    query: str
    key: str

    @property
    def axes(self) -> frozenset[str]:
        return frozenset((self.query, self.key))

    def renamed(self, old: str, new: str) -> Causal:
        return Causal(*(new if x == old else x for x in (self.query, self.key)))


@dataclass(frozen=True)
class Window(Causal):
    """Of the keys up to a query's position only the last ``width`` are meaningful, its own among them."""

    width: sympy.Expr

    def renamed(self, old: str, new: str) -> Window:
        return replace(self, query=new if self.query == old else self.query, key=new if self.key == old else self.key)


@dataclass(frozen=True)
class TopK:
    """Only ``active`` members of the axis are meaningful for each setting of the ``per`` axes (routing of tokens)."""

    axis: str
    per: tuple[str, ...]
    active: sympy.Expr

    @property
    def axes(self) -> frozenset[str]:
        return frozenset((self.axis, *self.per))

    def renamed(self, old: str, new: str) -> TopK:
        per = tuple(new if x == old else x for x in self.per)
        return replace(self, axis=new if self.axis == old else self.axis, per=per)


@dataclass(frozen=True)
class Behind:
    """Only the blocks of ``key`` positions that lie behind a block of queries are meaningful to it.

    Over all steps of a ring every block of ``key`` passes every other ``block`` of ``query``, and half of them lie
    behind: in the mean a step does half of its pairs, and the last block does all of them in every step.
    """

    block: str
    query: str
    key: str

    @property
    def axes(self) -> frozenset[str]:
        return frozenset((self.block, self.query, self.key))

    def renamed(self, old: str, new: str) -> Behind:
        return Behind(*(new if x == old else x for x in (self.block, self.query, self.key)))


@dataclass(frozen=True)
class Prefix:
    """Only the first ``length`` entries of the axis are meaningful: what a cache holds so far."""

    axis: str
    length: sympy.Expr

    @property
    def axes(self) -> frozenset[str]:
        return frozenset((self.axis,))

    def renamed(self, old: str, new: str) -> Prefix:
        return replace(self, axis=new if self.axis == old else self.axis)


Restriction = Causal | TopK | Behind | Prefix


class Role(Enum):
    """What a tensor is in the computation.

    Index data is never differentiated and moves at no cost.  A frozen parameter is not trained.  Detached data
    cancels out of every result, like the shift of a softmax's exponents, so its derivative is zero and is not worked
    out.  A mask is one of dropout, a statistic one of a norm: their elements may be narrower or wider than activations.
    """

    INPUT = "input"
    INDEX = "index"
    DETACHED = "detached"
    PARAMETER = "parameter"
    FROZEN = "frozen parameter"
    ACTIVATION = "activation"
    MASK = "mask"
    STATISTIC = "statistic"
    CACHE = "cache"
    GRADIENT = "gradient"
    PARAMETER_GRADIENT = "parameter gradient"
    OPTIMIZER = "optimizer state"


#: what has no cotangent
UNDIFFERENTIATED = (Role.INDEX, Role.INPUT, Role.DETACHED, Role.FROZEN)
#: what a model is made of, trained or not
WEIGHTS = (Role.PARAMETER, Role.FROZEN)


@dataclass(frozen=True)
class Tensor:
    """The type of a value: ordered axes, a role, and restrictions on which entries are meaningful."""

    axes: tuple[Axis, ...]
    role: Role = Role.ACTIVATION
    domain: tuple[Restriction, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.axes):
            raise GraphError(f"a tensor over ({', '.join(self.names)}) names an axis twice; relabel one")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.axes)

    def axis(self, name: str) -> Axis:
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise GraphError(f"no axis {name!r} in a tensor over ({', '.join(self.names)})")

    def with_role(self, role: Role) -> Tensor:
        return replace(self, role=role)

    def without(self, *names: str) -> Tensor:
        """The type with the named axes, and every restriction that speaks of them, removed."""
        kept = tuple(a for a in self.axes if a.name not in names)
        return replace(self, axes=kept, domain=tuple(r for r in self.domain if not r.axes & set(names)))

    def prepend(self, axis: Axis) -> Tensor:
        return replace(self, axes=(axis, *self.axes))

    def at(self, index: sympy.Symbol, value: sympy.Expr) -> Tensor:
        """The type in the iteration of a loop in which ``index`` is ``value``."""
        domain = (replace(r, length=r.length.subs(index, value)) if isinstance(r, Prefix) else r for r in self.domain)
        return replace(self, domain=tuple(domain))


def restrictions_on(names: frozenset[str], *groups: tuple[Restriction, ...]) -> tuple[Restriction, ...]:
    """The distinct restrictions of the groups whose axes all lie in ``names``, in order of first appearance."""
    out: list[Restriction] = []
    for restriction in (r for group in groups for r in group):
        if restriction.axes <= names and restriction not in out:
            out.append(restriction)
    return tuple(out)
