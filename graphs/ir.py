"""Operations, occurrences and graphs.

An `Op` is a frozen description that knows three things: the types of its results, its numpy meaning, and its
vector-Jacobian rule.  A `Node` is one occurrence of an op in a `Graph`.  Edges run from producer to consumer.  What an
op costs is said elsewhere (``derive/costs``), in a file with the same stem.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import networkx as nx
import numpy as np
import numpy.typing as npt
import sympy

from graphs.axes import WEIGHTS, Axis, Role, Tensor
from graphs.errors import GraphError

if TYPE_CHECKING:
    from graphs.transforms.tape import Tape

Array = npt.NDArray[np.float64]


#: the phase of the optimizer step
UPDATE = "update"

#: regions of a block that schemes and recomputation may name
ATTENTION = "attention"
REGIONS = (ATTENTION,)


class Place(ABC):
    """Where an op runs: gives global positions of a rank's part of an axis, and values of symbolic numbers."""

    @abstractmethod
    def positions(self, axis: Axis) -> npt.NDArray[np.int64]: ...

    @abstractmethod
    def value(self, expr: sympy.Expr) -> float: ...


class Op(ABC):
    """A kind of operation with its attributes; equal attributes make equal ops."""

    kind: ClassVar[str]
    #: axes the op treats as a whole, so that its operands must not be split over them (it is expanded first)
    whole_axes: tuple[str, ...] = ()

    @abstractmethod
    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        """Types of the results; GraphError where the operands do not fit."""

    @abstractmethod
    def run(self, arrays: Sequence[Array], types: Sequence[Tensor], place: Place) -> tuple[Array, ...]:
        """The numpy meaning on one rank's arrays, laid out in the order of the types' axes."""

    @abstractmethod
    def vjp(self, tape: Tape, node: Node, cotangents: Sequence[Value | None]) -> Sequence[Value | None]:
        """Cotangents of the operands; None where there is none (index data)."""

    def with_axes(self, axes: Mapping[str, Axis]) -> Op:
        """The same op with the axes among its attributes replaced by those of the same name."""
        return self

    def inverse(self) -> Op | None:
        """The op that undoes it without arithmetic; None where there is none."""
        return None

    def at(self, index: sympy.Symbol, value: sympy.Expr) -> Op:
        """The same op in the iteration of a loop in which ``index`` is ``value``."""
        return self

    def expand(self, build: Builder, operands: Sequence[Value]) -> Sequence[Value]:
        """A macro's primitives; primitives refuse."""
        raise GraphError(f"{self.kind} is a primitive and has no expansion")


@dataclass(frozen=True, order=True)
class Value:
    """Result ``index`` of the occurrence (or the graph input) called ``node``."""

    node: str
    index: int = 0


@dataclass(frozen=True)
class Node:
    """One occurrence of an op.

    ``phase`` is forward, recompute, backward or update.  ``region`` names a part of a block, such as ``attention``, for
    schemes and recomputation; backward occurrences are in the region of what they differentiate.  ``stage`` (first,
    last) binds it to a pipeline's boundary stage.  ``origins`` of a collective name the occurrences whose partial
    results it completes.
    """

    name: str
    op: Op
    operands: tuple[Value, ...]
    types: tuple[Tensor, ...]
    phase: str = "forward"
    region: str | None = None
    stage: str | None = None
    origins: tuple[Node, ...] = ()


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs with their types, occurrences in an order of execution, and named outputs."""

    name: str
    inputs: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    outputs: Mapping[str, Value]

    def __post_init__(self) -> None:
        for law in INVARIANTS:
            law(self)

    @cached_property
    def by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    def type(self, value: Value) -> Tensor:
        if value.node in self.inputs:
            return self.inputs[value.node]
        return self.by_name[value.node].types[value.index]

    @cached_property
    def network(self) -> nx.DiGraph:
        """The occurrences and inputs as a networkx graph, producer -> consumer."""
        net = nx.DiGraph(name=self.name)
        net.add_nodes_from(self.inputs)
        net.add_nodes_from(node.name for node in self.nodes)
        net.add_edges_from((v.node, node.name) for node in self.nodes for v in node.operands)
        return net

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Those that are trained."""
        return ((name, t) for name, t in self.inputs.items() if t.role is Role.PARAMETER)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """All parameters, trained or frozen."""
        return ((name, t) for name, t in self.inputs.items() if t.role in WEIGHTS)


def names_are_unique(graph: Graph) -> None:
    seen = set(graph.inputs)
    for node in graph.nodes:
        if node.name in seen:
            raise GraphError(f"graph {graph.name}: two occurrences are called {node.name!r}; rename one")
        seen.add(node.name)


def operands_are_known(graph: Graph) -> None:
    arity = dict.fromkeys(graph.inputs, 1) | {node.name: len(node.types) for node in graph.nodes}
    uses = [(node.name, v) for node in graph.nodes for v in node.operands]
    uses += [(f"output {name!r}", v) for name, v in graph.outputs.items()]
    for user, value in uses:
        if value.index >= arity.get(value.node, 0):
            raise GraphError(f"graph {graph.name}: {user} reads {value.node}[{value.index}], which nothing produces")


def graph_is_acyclic(graph: Graph) -> None:
    seen = set(graph.inputs)
    for node in graph.nodes:
        if any(v.node not in seen for v in node.operands):
            if not nx.is_directed_acyclic_graph(graph.network):
                cycle = " -> ".join(a for a, _ in nx.find_cycle(graph.network))
                raise GraphError(f"graph {graph.name} has a cycle ({cycle}); cut one of these edges")
            raise GraphError(f"graph {graph.name}: {node.name} comes before a value it reads; order the occurrences")
        seen.add(node.name)


def types_follow_from_operands(graph: Graph) -> None:
    for node in graph.nodes:
        inferred = node.op.infer(*(graph.type(v) for v in node.operands))
        if [t.axes for t in inferred] != [t.axes for t in node.types]:
            raise GraphError(f"graph {graph.name}: {node.name} declares types its operands do not give")


INVARIANTS = (names_are_unique, operands_are_known, graph_is_acyclic, types_follow_from_operands)


@dataclass
class Builder:
    """Collects inputs and occurrences, infers types, and makes a `Graph`."""

    name: str
    inputs: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    outputs: dict[str, Value] = field(default_factory=dict)
    phase: str = "forward"
    region: str | None = None
    _types: dict[Value, Tensor] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def input(self, name: str, tensor: Tensor) -> Value:
        if name in self.inputs:
            raise GraphError(f"graph {self.name}: input {name!r} is declared twice")
        self.inputs[name] = tensor
        self._types[Value(name)] = tensor
        self._counts.setdefault(name, 1)
        return Value(name)

    @contextmanager
    def within(self, region: str | None) -> Iterator[None]:
        """What is added inside belongs to the region."""
        before, self.region = self.region, region
        yield
        self.region = before

    def type(self, value: Value) -> Tensor:
        if value not in self._types:
            raise GraphError(f"graph {self.name}: nothing called {value.node!r} was added yet; add it before its use")
        return self._types[value]

    def fresh(self, hint: str) -> str:
        """``hint``, numbered from its second use on."""
        count = self._counts.get(hint, 0) + 1
        self._counts[hint] = count
        return hint if count == 1 else self.fresh(f"{hint}.{count}")

    def add(
        self, op: Op, *operands: Value, name: str | None = None, role: Role | None = None, **fields: object
    ) -> tuple[Value, ...]:
        """Append an occurrence; returns its results."""
        label = self.fresh(name or op.kind)
        try:
            types = op.infer(*(self.type(v) for v in operands))
        except GraphError as error:
            raise GraphError(f"{label} in graph {self.name}: {error}") from None
        if role is not None:
            types = tuple(t.with_role(role) for t in types)
        node = Node(label, op, tuple(operands), types, self.phase, self.region)
        self.append(replace(node, **fields) if fields else node)  # type: ignore[arg-type]
        return tuple(Value(label, i) for i in range(len(types)))

    def append(self, node: Node) -> None:
        """Append a ready occurrence as it is."""
        self._counts.setdefault(node.name, 1)
        self.nodes.append(node)
        self._types.update({Value(node.name, i): t for i, t in enumerate(node.types)})

    def output(self, name: str, value: Value) -> None:
        self.outputs[name] = value

    def graph(self) -> Graph:
        return Graph(self.name, dict(self.inputs), tuple(self.nodes), dict(self.outputs))
