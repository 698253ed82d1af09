"""What one model costs under one scheme: work, depth and memory, per rank or over all ranks.

A `Question` says which computation, under which conventions, seen from where; nothing here knows what anybody printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache

import sympy

from derive.costs.model import PAPER, CostModel
from derive.depth import Arrival, DepthRule, as_max, depth
from derive.domains import factors_of
from derive.dominance import Factors, as_factors, below_any
from derive.forms import Form, Max, symbol, total
from derive.interchange import from_sympy
from derive.memory import ADAM_COPIES, Widths, in_bytes, saved_terms, state_terms
from derive.work import Term, work_terms
from graphs.axes import Role
from graphs.blocks.decoder import DENSE, PLAIN, Attention, FeedForward
from graphs.blocks.dropout import NONE
from graphs.errors import GraphError
from graphs.ir import Graph, Node
from graphs.models.roles import POLICY, ModelRole, forward
from graphs.ops.repeat import Repeat
from graphs.ops.scan import Scan
from graphs.schemes import schemes
from graphs.sizes import Sizes
from graphs.transforms.accumulate import accumulate
from graphs.transforms.backward import training
from graphs.transforms.expand import expand_macros
from graphs.transforms.optimizer import with_optimizer
from graphs.transforms.partition import partition
from graphs.transforms.recompute import Recompute

ZERO = Form.constant(0)

#: how much of a training step is asked about
FORWARD, TRAINING, STEP = "forward", "training", "step"


@dataclass(frozen=True)
class Question:
    """One computation under one set of conventions.

    ``blocks_only`` leaves out what happens outside the loop over decoder blocks (parameters always count).
    ``collectives`` charges reducing collectives to the depth; ``over_all_ranks`` is the global view.
    ``dropout`` is the rate in the blocks; with ``micro_batches`` gradients are accumulated over n_mb batches of size B;
    ``copies`` counts the values that a step keeps of a parameter: itself, its gradient and optimizer state.  A forward
    pass has a head of so many ``rows``, those of the last positions; of all where there is no number.
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
    dropout: Fraction = NONE
    micro_batches: bool = False
    rows: sympy.Expr | None = None
    model: CostModel = PAPER
    attention: Attention = PLAIN

    @property
    def factors(self) -> Factors:
        return as_factors(factors_of(self.sizes, schemes()[self.scheme]))


@dataclass(frozen=True)
class Measured:
    """A derived expression and what it is made of: (where, contribution) in order of execution."""

    value: Max
    parts: tuple[tuple[str, Form], ...]


@lru_cache(maxsize=256)
def _graph(
    sizes: Sizes,
    role: ModelRole,
    ffn: FeedForward,
    attention: Attention,
    scheme: str,
    recompute: Recompute,
    dropout: Fraction,
    micro_batches: bool,
    rows: sympy.Expr | None,
    part: str,
) -> Graph:
    graph = forward(sizes, role, ffn, loss=part != FORWARD, attention=attention, dropout=dropout, rows=rows)
    if part != FORWARD:
        graph = training(graph, recompute=recompute)
        graph = accumulate(graph) if micro_batches else graph
    return partition(with_optimizer(graph) if part == STEP else graph, schemes()[scheme])


def graph_of(q: Question, part: str = TRAINING) -> Graph:
    """The per-rank graph of the question: forward alone, forward and backward, or these and the optimizer step."""
    graph = _graph(q.sizes, q.role, q.ffn, q.attention, q.scheme, q.recompute, q.dropout, q.micro_batches, q.rows, part)
    return graph if q.model.gemm_only else expand_macros(graph)


def degrees(scheme: str) -> tuple[str, ...]:
    """Mesh dimensions of a scheme, sorted."""
    return tuple(sorted(schemes()[scheme].meshes))


def work(q: Question, phases: Iterable[str] = ("forward", "recompute", "backward")) -> Measured:
    """FLOPs of the named phases."""
    wanted = set(phases)
    graph = graph_of(q, FORWARD if wanted == {"forward"} else TRAINING)
    return gather(q, [t for t in work_terms(graph, _seen(q)) if t.phase in wanted])


def _seen(q: Question) -> CostModel:
    """Over all ranks it does not matter which rank does more than its share: they are counted at the mean."""
    return replace(q.model, balanced_causal=True, balanced_routing=True) if q.over_all_ranks else q.model


def held(q: Question) -> list[Term]:
    """Elements of one rank at the end of the forward pass of a training step: training state and saved values."""
    graph = graph_of(replace(q, model=PAPER))  # what is kept does not depend on how operations are counted
    saved = [t for t in saved_terms(graph, _seen(q)) if t.in_loop or t.role is Role.PARAMETER or not q.blocks_only]
    return [*state_terms(graph, schemes()[q.scheme], q.copies), *saved]


def layers_of(q: Question) -> Form:
    """How many layers a rank has."""
    extents = {n.op.axis.extent for n in graph_of(q).nodes if isinstance(n.op, Repeat)}
    if len(extents) != 1:
        raise GraphError("a layer's share needs all loops of the model to run equally often; ask for the terms instead")
    return from_sympy(extents.pop())


def memory(q: Question, widths: Widths | None = None) -> Measured:
    """What is held, in elements or, where widths are given, in bytes."""
    terms = held(q)
    return gather(replace(q, blocks_only=False), terms if widths is None else [in_bytes(t, widths) for t in terms])


def gather(q: Question, terms: Iterable[Term]) -> Measured:
    """The sum of the terms as the question wants it: on the rank that has most, or over all ranks."""
    terms = [t for t in terms if t.in_loop or not q.blocks_only]
    dims = degrees(q.scheme)
    if q.over_all_ranks:
        pipeline = schemes()[q.scheme].pipeline
        ranks = {t: _replicas(t, dims, pipeline) for t in set(terms)}
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


def _replicas(term: Term, dims: tuple[str, ...], pipeline: str | None) -> Form:
    """Ranks that do a term's work; what is bound to one pipeline stage is done by the ranks of that stage."""
    out = Form.constant(1)
    for mesh in dims:
        if not (term.stage and mesh == pipeline):
            out = out * symbol(mesh)
    return out


def _parts(pairs: Iterable[tuple[str, Form]]) -> tuple[tuple[str, Form], ...]:
    merged: dict[str, Form] = {}
    for where, amount in pairs:
        merged[where] = merged.get(where, ZERO) + amount
    return tuple((w, f) for w, f in merged.items() if f)


def training_depth(q: Question) -> Measured:
    """Longest path of forward and backward together."""
    graph = graph_of(q)
    return longest(depth(graph, depth_rule(q, graph)))


def forward_depth(q: Question) -> Measured:
    """Longest path of the forward pass alone."""
    graph = graph_of(q, FORWARD)
    return longest(depth(graph, depth_rule(q, graph), ["out"]))


def backward_depth(q: Question) -> Measured:
    """Longest path of the backward pass alone: everything that the forward pass computes is at hand at time zero."""
    graph = graph_of(q)
    rule = depth_rule(q, graph)
    return longest(depth(graph, replace(rule, counted=lambda g, n: n.phase != "forward" and rule.counted(g, n))))


def outside_blocks(graph: Graph) -> Iterator[Node]:
    """The occurrences that are in no decoder block: those of the graph, and of a scan over whole passes."""
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            yield from outside_blocks(node.op.body)
        elif not isinstance(node.op, Repeat):
            yield node


def depth_rule(q: Question, graph: Graph) -> DepthRule:
    """What the question charges to the depth of its graph."""
    outside = {id(n) for n in outside_blocks(graph)}

    def counted(_where: Graph, node: Node) -> bool:
        return not q.blocks_only or id(node) not in outside

    return DepthRule(q.model, q.factors, q.collectives, counted, q.over_all_ranks)


def longest(found: tuple[Arrival, ...]) -> Measured:
    """The maximum of the latest arrivals and what their paths are made of."""
    parts = (
        [(s.where, s.times * s.amount) for a in found for s in a.steps]
        if len(found) == 1
        else [(f"path {i + 1}: {s.where}", s.times * s.amount) for i, a in enumerate(found) for s in a.steps]
    )
    return Measured(as_max(found), _parts(parts))
