"""What one model costs under one scheme: work, depth and memory, per rank or over all ranks.

A `Question` says which computation, under which conventions, seen from where; nothing here knows what anybody printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from derive.costs.model import PAPER, CostModel
from derive.depth import Arrival, DepthRule, as_max, depth
from derive.domains import factors_of
from derive.dominance import Factors, as_factors, below_any
from derive.forms import Form, Max, symbol, total
from derive.memory import ADAM_COPIES, parameter_terms, saved_terms
from derive.work import Term, work_terms
from graphs.blocks.decoder import DENSE, FeedForward
from graphs.ir import Graph, Node
from graphs.models.roles import POLICY, ModelRole, forward
from graphs.ops.repeat import Repeat
from graphs.ops.scan import Scan
from graphs.schemes import schemes
from graphs.sizes import Sizes
from graphs.transforms.backward import Recompute, training
from graphs.transforms.expand import expand_macros
from graphs.transforms.partition import partition

ZERO = Form.constant(0)


@dataclass(frozen=True)
class Question:
    """One computation under one set of conventions.

    ``blocks_only`` leaves out what happens outside the loop over decoder blocks (parameters always count).
    ``collectives`` charges reducing collectives to the depth; ``over_all_ranks`` is the global view.
    """

    sizes: Sizes = field(default_factory=Sizes.canonical)
    role: ModelRole = POLICY
    ffn: FeedForward = DENSE
    scheme: str = "None"
    over_all_ranks: bool = False
    blocks_only: bool = False
    collectives: bool = False
    recompute: Recompute = Recompute.NONE
    copies: int = ADAM_COPIES
    model: CostModel = PAPER

    @property
    def factors(self) -> Factors:
        return as_factors(factors_of(self.sizes, schemes()[self.scheme]))


@dataclass(frozen=True)
class Measured:
    """A derived expression and what it is made of: (where, contribution) in order of execution."""

    value: Max
    parts: tuple[tuple[str, Form], ...]


@lru_cache(maxsize=256)
def _graph(sizes: Sizes, role: ModelRole, ffn: FeedForward, scheme: str, recompute: Recompute, backward: bool) -> Graph:
    graph = forward(sizes, role, ffn, loss=backward)
    return partition(training(graph, recompute=recompute) if backward else graph, schemes()[scheme])


def graph_of(q: Question, backward: bool = True) -> Graph:
    """The per-rank graph of the question: forward and backward, or forward alone."""
    graph = _graph(q.sizes, q.role, q.ffn, q.scheme, q.recompute, backward)
    return graph if q.model.gemm_only else expand_macros(graph)


def degrees(scheme: str) -> tuple[str, ...]:
    """Mesh dimensions of a scheme, sorted."""
    return tuple(sorted(schemes()[scheme].meshes))


def work(q: Question, phases: Iterable[str] = ("forward", "recompute", "backward")) -> Measured:
    """FLOPs of the named phases."""
    wanted = set(phases)
    graph = graph_of(q, backward=wanted != {"forward"})
    return gather(q, [t for t in work_terms(graph, q.model) if t.phase in wanted])


def memory(q: Question) -> Measured:
    """Elements held at the end of the forward pass of a training step: training state and saved activations."""
    graph = graph_of(replace(q, model=PAPER))  # what is kept does not depend on how operations are counted
    saved = [t for t in saved_terms(graph, q.model) if t.in_loop or not q.blocks_only]
    return gather(replace(q, blocks_only=False), [*parameter_terms(graph, q.copies), *saved])


def gather(q: Question, terms: list[Term]) -> Measured:
    terms = [t for t in terms if t.in_loop or not q.blocks_only]
    dims = degrees(q.scheme)
    if q.over_all_ranks:
        ranks = {t: _replicas(t, dims) for t in set(terms)}
        return Measured(
            Max.of(total(ranks[t] * t.amount for t in terms)), _parts((t.where, ranks[t] * t.amount) for t in terms)
        )
    stages = ("first", "last") if any(t.stage for t in terms) else (None,)
    per_stage = {s: total(t.amount for t in terms if t.stage in (None, s)) for s in stages}
    kept = [
        f
        for s, f in per_stage.items()
        if not below_any(f, [g for r, g in per_stage.items() if r != s and g != f], q.factors)
    ]
    return Measured(Max.of(*kept), _parts((t.where, t.amount) for t in terms))


def _replicas(term: Term, dims: tuple[str, ...]) -> Form:
    """Ranks that do a term's work; what is bound to one pipeline stage is done by the ranks of that stage."""
    out = Form.constant(1)
    for mesh in dims:
        if not (term.stage and mesh == PIPELINE):
            out = out * symbol(mesh)
    return out


PIPELINE = "P_p"


def _parts(pairs: Iterable[tuple[str, Form]]) -> tuple[tuple[str, Form], ...]:
    merged: dict[str, Form] = {}
    for where, amount in pairs:
        merged[where] = merged.get(where, ZERO) + amount
    return tuple((w, f) for w, f in merged.items() if f)


def training_depth(q: Question) -> Measured:
    """Longest path of forward and backward together."""
    graph = graph_of(q)
    return measured_path(depth(graph, depth_rule(q, graph)))


def forward_depth(q: Question) -> Measured:
    """Longest path of the forward pass alone."""
    graph = graph_of(q, backward=False)
    return measured_path(depth(graph, depth_rule(q, graph), ["out"]))


def backward_depth(q: Question) -> Measured:
    """Longest path of the backward pass alone: everything that the forward pass computes is at hand at time zero."""
    graph = graph_of(q)
    rule = depth_rule(q, graph)
    return measured_path(depth(graph, replace(rule, counted=lambda g, n: n.phase != "forward" and rule.counted(g, n))))


def outside_blocks(graph: Graph) -> Iterator[Node]:
    """The occurrences that are in no decoder block: those of the graph, and of a scan over whole passes."""
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            yield from outside_blocks(node.op.body)
        elif not isinstance(node.op, Repeat):
            yield node


def depth_rule(q: Question, graph: Graph) -> DepthRule:
    outside = {id(n) for n in outside_blocks(graph)}

    def counted(_where: Graph, node: Node) -> bool:
        return not q.blocks_only or id(node) not in outside

    return DepthRule(q.model, q.factors, q.collectives, counted, q.over_all_ranks)


def measured_path(found: tuple[Arrival, ...]) -> Measured:
    parts = (
        [(s.where, s.times * s.amount) for a in found for s in a.steps]
        if len(found) == 1
        else [(f"path {i + 1}: {s.where}", s.times * s.amount) for i, a in enumerate(found) for s in a.steps]
    )
    return Measured(as_max(found), _parts(parts))
