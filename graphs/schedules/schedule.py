"""A pipeline schedule: in which order each rank does its tasks.  The graph of all tasks follows from it.

The layers of a model are cut into chunks (virtual stages); chunk c lies on rank c mod P_p, so that with one chunk per
rank a chunk is a stage.  A task is one pass of one micro-batch through one chunk.  Data edges belong to the pipeline,
resource edges to the order: a rank does one task at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import networkx as nx

from graphs.errors import GraphError


class Kind(Enum):
    """What is done; the backward pass is one task, or two: the gradient of the input, then of the weights."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT_GRADIENT = "I"
    WEIGHT_GRADIENT = "W"


WHOLE = (Kind.FORWARD, Kind.BACKWARD)
SPLIT = (Kind.FORWARD, Kind.INPUT_GRADIENT, Kind.WEIGHT_GRADIENT)
MOST_PASSES = 200_000  # graphs of more tasks take minutes


@dataclass(frozen=True)
class Task:
    """One pass of ``micro_batch`` through ``chunk``; both count from 0."""

    kind: Kind
    chunk: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind.value}(chunk {self.chunk}, micro-batch {self.micro_batch})"


@dataclass(frozen=True)
class Pipeline:
    """P_p stages (ranks), n_mb micro-batches per step, n_vs chunks on each rank."""

    stages: int
    micro_batches: int
    virtual: int = 1

    def __post_init__(self) -> None:
        counts = {"stages": self.stages, "micro-batches": self.micro_batches, "virtual stages": self.virtual}
        for what, count in counts.items():
            if count < 1:
                raise GraphError(f"a pipeline with {count} {what} has no schedule; give at least 1")
        if self.chunks * self.micro_batches > MOST_PASSES:
            raise GraphError(
                f"{self.chunks} chunks of {self.micro_batches} micro-batches are more than {MOST_PASSES} passes;"
                " take fewer of one"
            )

    @property
    def chunks(self) -> int:
        return self.stages * self.virtual

    def chunks_of(self, rank: int) -> range:
        """The chunks on a rank, in the order of the forward pass."""
        return range(rank, self.chunks, self.stages)


Order = Sequence[Task]


@dataclass(frozen=True)
class Schedule:
    """``order`` gives the tasks of one rank; ``virtual`` says whether ranks may hold several chunks.

    ``kinds`` are those of its tasks, `WHOLE` or `SPLIT`.
    An order that exists for some pipelines only raises GraphError.
    """

    name: str
    order: Callable[[Pipeline, int], Order]
    source: str
    kinds: tuple[Kind, ...] = WHOLE
    virtual: bool = False

    def orders(self, pipeline: Pipeline) -> tuple[Order, ...]:
        """The order of every rank."""
        if pipeline.virtual > 1 and not self.virtual:
            raise GraphError(
                f"schedule {self.name} has one stage per rank, not {pipeline.virtual} virtual ones; use interleaved"
            )
        return tuple(tuple(self.order(pipeline, rank)) for rank in range(pipeline.stages))

    def graph(self, pipeline: Pipeline) -> nx.DiGraph:
        """The tasks of one training step with data and resource edges, see `task_graph`."""
        return task_graph(pipeline, self.orders(pipeline), self.kinds)


def task_graph(pipeline: Pipeline, orders: Sequence[Order], kinds: tuple[Kind, ...] = WHOLE) -> nx.DiGraph:
    """An acyclic graph whose nodes are tasks with a ``rank``; an edge says ``data`` and ``resource``, true or false.

    Nodes are listed rank by rank, on each rank as it does them.  Refused (GraphError): an order that lacks, repeats or
    misplaces a task, and orders that wait for each other.
    """
    every_rank_does_its_own_tasks_once(pipeline, orders, kinds)
    graph = nx.DiGraph()
    for rank, order in enumerate(orders):
        graph.add_nodes_from(order, rank=rank)
    graph.add_edges_from(_data_edges(pipeline, kinds), data=True, resource=False)
    for order in orders:
        for before, after in pairwise(order):
            graph.add_edge(before, after, data=graph.has_edge(before, after), resource=True)
    no_ranks_wait_for_each_other(graph)
    return graph


def every_rank_does_its_own_tasks_once(pipeline: Pipeline, orders: Sequence[Order], kinds: tuple[Kind, ...]) -> None:
    if len(orders) != pipeline.stages:
        raise GraphError(f"{len(orders)} orders for {pipeline.stages} stages; give one order for each rank")
    for rank, order in enumerate(orders):
        seen: set[Task] = set()
        own = set(_tasks(pipeline, kinds, pipeline.chunks_of(rank)))
        for task in order:
            if task not in own:
                raise GraphError(f"rank {rank}: {task} is no task of this rank; remove it from the order")
            if task in seen:
                raise GraphError(f"rank {rank}: {task} is done twice; remove one from the order")
            seen.add(task)
        for task in _tasks(pipeline, kinds, pipeline.chunks_of(rank)):
            if task not in seen:
                raise GraphError(f"rank {rank}: {task} is never done; add it to the order")


def no_ranks_wait_for_each_other(graph: nx.DiGraph) -> None:
    if nx.is_directed_acyclic_graph(graph):
        return
    cycle = nx.find_cycle(graph)
    waits = " -> ".join(f"{task} on rank {graph.nodes[task]['rank']}" for task, _ in [*cycle, cycle[0]])
    raise GraphError(f"the order deadlocks: {waits}; change the order of one of these ranks")


def _tasks(pipeline: Pipeline, kinds: tuple[Kind, ...], chunks: range) -> Iterator[Task]:
    for kind in kinds:
        for chunk in chunks:
            for i in range(pipeline.micro_batches):
                yield Task(kind, chunk, i)


def _data_edges(pipeline: Pipeline, kinds: tuple[Kind, ...]) -> Iterator[tuple[Task, Task]]:
    """Activations go up the chunks, gradients down; a backward pass reads what its own forward pass kept."""
    back, *weights = kinds[1:]
    for i in range(pipeline.micro_batches):
        for c in range(pipeline.chunks):
            yield Task(Kind.FORWARD, c, i), Task(back, c, i)
            if c + 1 < pipeline.chunks:
                yield Task(Kind.FORWARD, c, i), Task(Kind.FORWARD, c + 1, i)
                yield Task(back, c + 1, i), Task(back, c, i)
            for weight in weights:
                yield Task(back, c, i), Task(weight, c, i)
