"""What it costs to generate a response: prefill, decode, depth, and the key-value cache.

Work is per rollout, one prompt and its response; the cache is counted for the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from derive.costs.model import PAPER
from derive.depth import depth
from derive.expr import Expr, Sum, Sym, add, num
from derive.forms import Form, Max, symbol, total
from derive.measure import Measured, Question, depth_rule, gather, longest
from derive.memory import elements
from derive.work import Term, over_iterations, work_terms
from graphs.axes import Role
from graphs.blocks.decoder import DENSE, FeedForward
from graphs.errors import GraphError
from graphs.ir import Graph
from graphs.models.generation import DECODE, POSITIONS, RESPONSE, STEP, generation
from graphs.ops.scan import Scan
from graphs.schemes import schemes
from graphs.sizes import Sizes
from graphs.transforms.expand import expand_macros
from graphs.transforms.partition import partition


@lru_cache(maxsize=64)
def _graph(sizes: Sizes, ffn: FeedForward, scheme: str = "None") -> Graph:
    return partition(generation(sizes, ffn), schemes()[scheme])


def generation_graph(q: Question) -> Graph:
    """One rank's graph of the question, with greedy choice; GraphError for a model or scheme that cannot generate."""
    if not q.role.generates:
        raise GraphError(f"a {q.role.name} model generates nothing; ask for the policy")
    if any(e.axis == "s" for e in schemes()[q.scheme].entries):
        raise GraphError(f"scheme {q.scheme}: a decode step has one position, which cannot be cut; leave s whole")
    graph = _graph(q.sizes, q.ffn, q.scheme)
    return graph if q.model.gemm_only else expand_macros(graph)


# -- work -------------------------------------------------------------------------------------------------------------
def prefill_work(q: Question) -> Measured:
    """The prompt's forward pass, with logits for its last token alone."""
    return _per_rollout(q, [t for t in _terms(q) if not _is_step(t)])


def decode_work(q: Question) -> Measured:
    """All T - 1 decode steps."""
    return _per_rollout(q, [t for t in _terms(q) if _is_step(t)])


def generation_work(q: Question) -> Measured:
    return _per_rollout(q, list(_terms(q)))


def prefill_remainder(q: Question) -> Measured:
    """What the prompt's forward pass does besides matrix products."""
    return _per_rollout(q, [t for t in _other_terms(q) if not _is_step(t)])


def decode_remainder(q: Question) -> Measured:
    """What all decode steps do besides matrix products."""
    return _per_rollout(q, [t for t in _other_terms(q) if _is_step(t)])


def step_work(q: Question) -> Measured:
    """Decode step t alone, as a function of t."""
    return _per_rollout(q, list(_step_terms(q)))


def step_remainder(q: Question) -> Measured:
    """What decode step t does besides matrix products, as a function of t."""
    full, products = (list(_step_terms(x)) for x in _with_and_without(q))
    return _per_rollout(q, _besides(full, products))


def _terms(q: Question) -> Iterator[Term]:
    return work_terms(generation_graph(q), q.model)


def _step_terms(q: Question) -> Iterator[Term]:
    return work_terms(_scan(generation_graph(q)).body, q.model)


def _other_terms(q: Question) -> list[Term]:
    full, products = (list(_terms(x)) for x in _with_and_without(q))
    return _besides(full, products)


def _with_and_without(q: Question) -> tuple[Question, Question]:
    """The same question with every operation counted, and with matrix products alone."""
    every, products = (replace(q, model=replace(q.model, gemm_only=only)) for only in (False, True))
    return every, products


def _besides(full: list[Term], products: list[Term]) -> list[Term]:
    counted = {t.where for t in products}
    return [t for t in full if t.where not in counted]


def _is_step(term: Term) -> bool:
    return term.where.startswith(f"{DECODE}/")


def over_steps(step: Form) -> Form:
    """What all decode steps cost, from the cost of step t."""
    return over_iterations(step, _scan(_graph(Sizes.canonical(), DENSE)))


def sum_of_steps(step: Expr) -> Expr:
    """The same, written as a sum."""
    return Sum(step, STEP.name, num(1), add(Sym(RESPONSE.name), num(-1)))


def _scan(graph: Graph) -> Scan:
    op = graph.by_name[DECODE].op
    assert isinstance(op, Scan)
    return op


def _per_rollout(q: Question, terms: list[Term]) -> Measured:
    batch = symbol("B")
    return gather(q, [replace(t, amount=t.amount / batch) for t in terms])


# -- depth ------------------------------------------------------------------------------------------------------------
def generation_depth(q: Question) -> Measured:
    """Longest path from the prompt to the last token: a chain through all T tokens."""
    graph = generation_graph(q)
    return longest(depth(graph, depth_rule(q, graph)))


# -- memory -----------------------------------------------------------------------------------------------------------
def cache_memory(q: Question) -> Measured:
    """Elements of the key-value cache when the last token is chosen: S + T - 1 positions, as its own are not needed.

    The paper's M_KV is that of one rollout, B = 1.
    """
    graph = generation_graph(replace(q, model=PAPER))
    kept = {n: graph.type(v) for n, v in graph.outputs.items() if graph.type(v).role is Role.CACHE}
    parts = tuple((name, elements(tensor, PAPER)) for name, tensor in kept.items())
    return Measured(Max.of(total(amount for _, amount in parts)), parts)


def cache_per_token(q: Question) -> Form:
    """Elements of the cache for one position of one sequence."""
    graph = generation_graph(replace(q, model=PAPER))
    one = [graph.type(v).without("b", POSITIONS.name) for v in graph.outputs.values()]
    return total(elements(t, PAPER) for t in one if t.role is Role.CACHE)
