"""One reinforcement-learning iteration as a graph of model invocations, in three stages.

A node is either an `Invocation`, one pass of one model over all samples of the batch, or a `Glue`, what stands between
passes and runs no model (log-probabilities, KL, advantages, losses, updates).  Samples are an axis of an invocation,
never invocations of their own.  What an invocation costs is said elsewhere (derive/building_blocks.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import networkx as nx
import sympy

from graphs.axes import Axis
from graphs.errors import GraphError

GENERATION, ASSESSMENT, TRAINING = STAGES = ("Generation", "Assessment", "Training")
#: role -> the model that plays it, by its name in the paper's formulas
MODELS = {"actor": "pi", "critic": "V", "reference": "ref", "reward": "R"}
SHARED = "SH"
TRAINED = ("actor", "critic")
ONE = sympy.Integer(1)


class Pass(Enum):
    """How a model is run; prefill and decode are the two parts of generating."""

    GENERATE = "generate"
    PREFILL = "prefill"
    DECODE = "decode"
    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True)
class Invocation:
    """One pass of the model in ``role`` over ``samples`` x ``tokens``, done ``trips`` times one after the other."""

    name: str
    stage: str
    role: str
    run: Pass
    samples: tuple[Axis, ...]
    tokens: Axis
    inputs: tuple[str, ...] = ()
    trips: sympy.Expr = ONE

    @property
    def sequences(self) -> sympy.Expr:
        """Sequences in one trip."""
        out: sympy.Expr = ONE
        for axis in self.samples:
            out = out * axis.size
        return out


@dataclass(frozen=True)
class Glue:
    """A step without a model; ``chain`` is the axis along which it is a recursion (advantages over time)."""

    name: str
    stage: str
    inputs: tuple[str, ...] = ()
    chain: Axis | None = None
    trips: sympy.Expr = ONE


Node = Invocation | Glue


@dataclass(frozen=True)
class Options:
    """Choices that an algorithm leaves open.

    ``epochs`` passes over the rollout batch, each in ``updates`` mini-batches; ``joint_update`` runs every trained
    model forward before any runs backward, as one summed loss does; ``share_prefill`` runs a prompt once for all of its
    rollouts; ``sequential_reward`` has a process reward decode its verification.
    """

    log_probabilities_own_pass: bool = False
    values_own_pass: bool = True
    shared: bool = False
    joint_update: bool = False
    share_prefill: bool = False
    sequential_reward: bool = False
    epochs: sympy.Expr = ONE
    updates: sympy.Expr = ONE


@dataclass(frozen=True)
class StageGraph:
    """The nodes of one iteration in program order; edges follow from ``inputs``."""

    name: str
    nodes: tuple[Node, ...]
    shared: bool = False
    by_name: dict[str, Node] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {n.name: n for n in self.nodes})
        for law in LAWS:
            law(self)

    @property
    def invocations(self) -> tuple[Invocation, ...]:
        return tuple(n for n in self.nodes if isinstance(n, Invocation))

    def in_stage(self, stage: str) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if n.stage == stage)

    def model(self, role: str) -> str:
        """The model that plays a role; actor and critic are one where they are shared."""
        return SHARED if self.shared and role in TRAINED else MODELS[role]

    @cached_property
    def digraph(self) -> nx.DiGraph:
        """Names of the nodes, with an edge from each input to its reader."""
        out = nx.DiGraph()
        out.add_nodes_from(n.name for n in self.nodes)
        out.add_edges_from((i, n.name) for n in self.nodes for i in n.inputs)
        return out

    def reader_of_activations(self, node: Invocation) -> str | None:
        """The backward pass for which a forward pass keeps its activations; None for inference."""
        if node.run is not Pass.FORWARD:
            return None
        readers = (n.name for n in self.invocations if n.run is Pass.BACKWARD and node.name in n.inputs)
        return next(readers, None)


def _refuse(graph: StageGraph, sentence: str) -> None:
    raise GraphError(f"stages of {graph.name}: {sentence}")


def names_differ(graph: StageGraph) -> None:
    names = [n.name for n in graph.nodes]
    for name in names:
        if names.count(name) > 1:
            _refuse(graph, f"two nodes are called {name!r}; rename one")


def inputs_come_before(graph: StageGraph) -> None:
    """Program order is an order of execution, so there is no cycle."""
    seen: set[str] = set()
    for node in graph.nodes:
        for name in node.inputs:
            if name not in seen:
                _refuse(graph, f"{node.name} reads {name!r}, which no earlier node computes; list it before")
        seen.add(node.name)


def words_are_known(graph: StageGraph) -> None:
    for node in graph.nodes:
        if node.stage not in STAGES:
            _refuse(graph, f"{node.name} is in an unknown stage {node.stage!r}; use one of {', '.join(STAGES)}")
        if isinstance(node, Invocation) and node.role not in MODELS:
            _refuse(graph, f"{node.name} has an unknown role {node.role!r}; use one of {', '.join(MODELS)}")


def stages_follow_each_other(graph: StageGraph) -> None:
    for node in graph.nodes:
        for name in node.inputs:
            if STAGES.index(graph.by_name[name].stage) > STAGES.index(node.stage):
                _refuse(graph, f"{node.name} reads {name!r} of a later stage; move one of them")


def backward_follows_its_forward(graph: StageGraph) -> None:
    for node in (n for n in graph.invocations if n.run is Pass.BACKWARD):
        read = [graph.by_name[name] for name in node.inputs]
        if not any(isinstance(n, Invocation) and n.run is Pass.FORWARD and n.role == node.role for n in read):
            _refuse(graph, f"{node.name} reads no forward pass of the {node.role}; name it among its inputs")


LAWS: tuple[Callable[[StageGraph], None], ...] = (
    names_differ,
    inputs_come_before,
    words_are_known,
    stages_follow_each_other,
    backward_follows_its_forward,
)


@dataclass(frozen=True)
class Algorithm:
    """A post-training algorithm: its graph for given options, and the roles it needs."""

    name: str
    build: Callable[[Options], StageGraph]
    source: str
