"""Conservation laws of every scheme: work, memory and depth are shared out or repeated, never made or lost.

Replication is declared by omission: over a mesh dimension to which none of its axes is mapped, an occurrence is
repeated on every rank.  `copies_of` says so from the entries alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from itertools import product as product_of

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.costs.model import PAPER, CostModel
from derive.dominance import below_any
from derive.forms import Form, symbol
from derive.ledger import LITERAL
from derive.measure import Measured, Question, graph_of, memory, training_depth, work
from derive.render.dot import listing
from derive.simulate import sizes_for
from graphs.axes import Role, Tensor
from graphs.blocks.decoder import ATTENTIONS, FEED_FORWARDS
from graphs.execute import Machine
from graphs.gallery import step
from graphs.ir import Graph, Node
from graphs.ops.collective import REDUCING, Collective
from graphs.ops.repeat import Repeat
from graphs.schemes import Scheme, schemes
from graphs.schemes.scheme import STORED
from graphs.transforms.partition import partition
from graphs.transforms.partition.forms import resplit
from graphs.transforms.partition.layouts import Layouts
from graphs.transforms.recompute import Recompute
from tests.loading import HYBRID, TENSOR_2D, named

WORDS = (*sorted(schemes()), TENSOR_2D, HYBRID)
FFNS = sorted(FEED_FORWARDS)
ONE = Form.constant(1)
BASE_FACTORS = Question().factors
CONVENTIONS = [f.name for f in fields(CostModel) if getattr(PAPER, f.name) != getattr(LITERAL, f.name)]
every_scheme = pytest.mark.parametrize("scheme", WORDS, indirect=True, ids=lambda w: w.rpartition("/")[2])
every_ffn = pytest.mark.parametrize("ffn", FFNS)


@pytest.fixture(scope="module")
def scheme(request: pytest.FixtureRequest) -> Iterator[Scheme]:
    with named(request.param) as one:
        yield one.scheme


def asked(scheme: str, ffn: str, over_all_ranks: bool, model: CostModel = PAPER) -> Question:
    return Question(
        ffn=FEED_FORWARDS[ffn], scheme=scheme, over_all_ranks=over_all_ranks, collectives=over_all_ranks,
        blocks_only=True, model=model,
    )  # fmt: skip


@cache
def answer(measure, question: Question) -> Measured:
    return measure(question)


def product(degrees) -> Form:
    return math.prod((symbol(p) for p in degrees), start=ONE)


# Which occurrences are repeated.


def occurrences(graph: Graph, prefix: str = "") -> Iterator[tuple[str, Graph, Node]]:
    for node in graph.nodes:
        if isinstance(node.op, Repeat):
            yield from occurrences(node.op.body, f"{prefix}{node.name}/")
        else:
            yield prefix + node.name, graph, node


def shared_by(scheme: Scheme, graph: Graph, node: Node, looped: bool) -> dict[str, str]:
    """Mesh dimension -> the axis by which the ranks share the occurrence."""
    names = {n for t in (*(graph.type(v) for v in node.operands), *node.types) for n in t.names}
    places = {"everywhere", node.region, *(["blocks"] if looped else [])}
    held = [e for e in scheme.entries if e.where in places and (e.axis in names or e.axis == "layer")]
    return {e.mesh: e.axis for e in sorted(held, key=lambda e: e.priority)}


def copies_of(scheme: Scheme, graph: Graph, node: Node, looped: bool) -> list[str]:
    """The mesh dimensions over which every rank does the whole of what the occurrence does."""
    return [mesh for mesh in scheme.meshes if mesh not in shared_by(scheme, graph, node, looped)]


@cache
def products(ffn: str) -> dict[str, tuple[Graph, Node]]:
    found = occurrences(step("policy", FEED_FORWARDS[ffn]))
    return {where: (graph, node) for where, graph, node in found if node.op.kind == "contraction"}


@every_ffn
@every_scheme
def test_contraction_work_over_all_ranks_is_the_sequential_work_times_the_declared_copies(scheme, ffn) -> None:
    base = dict(work(replace(asked("None", ffn, True), blocks_only=False)).parts)
    split = dict(work(replace(asked(scheme.name, ffn, True), blocks_only=False)).parts)
    places = products(ffn)
    assert set(split) == set(base) == set(places)
    for where, (graph, node) in places.items():
        assert split[where] == base[where] * product(copies_of(scheme, graph, node, "/" in where)), where


def index_points(graph: Graph, node: Node, machine: Machine, ranks: list[tuple[int, ...]]) -> int:
    """Index points that the ranks visit together, each counted position by position."""
    axes = {a.name: a for t in (*(graph.type(v) for v in node.operands), *node.types) for a in t.axes}
    return sum(math.prod(len(machine.positions(a, machine.at(rank))) for a in axes.values()) for rank in ranks)


def points(graph: Graph, machine: Machine) -> dict[str, int]:
    """Where -> index points of a contraction over all ranks and all iterations of its loop."""
    out, loops = {}, {n.name: n.op.axis for n in graph.nodes if isinstance(n.op, Repeat)}
    for where, inner, node in occurrences(graph):
        if node.op.kind == "contraction":
            loop = loops.get(where.partition("/")[0])
            ranks = [r for r in machine.coordinates if node.stage is None or at_stage(graph, node, machine, r)]
            trips = int(machine.number(loop.extent)) if loop else 1
            out[where] = trips * index_points(inner, node, machine, ranks)
    return out


def at_stage(graph: Graph, node: Node, machine: Machine, rank: tuple[int, ...]) -> bool:
    (mesh,) = {s.mesh for n in graph.nodes if isinstance(n.op, Repeat) for s in n.op.axis.splits}
    return machine.at(rank)[mesh] == (0 if node.stage == "first" else machine.mesh[mesh] - 1)


@every_scheme
@given(data=st.data())
@settings(max_examples=4)
def test_ranks_visit_the_index_points_of_the_sequential_graph_as_often_as_declared(scheme, data) -> None:
    """The same law on numbers, from positions and loops alone: no cost rule, no algebra."""
    ffn = data.draw(st.sampled_from(FFNS))
    mesh = {name: data.draw(st.integers(1, 3)) for name in scheme.meshes}
    sizes, graph = sizes_for(scheme, mesh, {}), step("policy", FEED_FORWARDS[ffn])
    whole, places = points(graph, Machine(sizes)), products(ffn)
    part = points(partition(graph, scheme), Machine(sizes, mesh))
    for where, (inner, node) in places.items():
        times = math.prod(mesh[p] for p in copies_of(scheme, inner, node, "/" in where))
        assert part[where] == whole[where] * times, where


# Degree 1 is no parallelism.


@pytest.mark.parametrize(("ffn", "model"), [(f, PAPER) for f in FFNS] + [("dense", LITERAL)])
@pytest.mark.parametrize("over_all_ranks", [False, True])
@every_scheme
def test_degree_one_in_every_dimension_gives_back_the_base_row(scheme, ffn, over_all_ranks, model) -> None:
    """But for the tied table: a pipeline's first and last stage hold one each, also where they are one rank.

    A path of a rank that is the longest only beside other degrees may stay in the maximum, below the base.
    """
    ones = dict.fromkeys(scheme.meshes, ONE)
    second_table = 4 * symbol("V") * symbol("d") if scheme.pipeline and over_all_ranks else ONE - 1
    for measure in (work, training_depth, memory):
        base = answer(measure, asked("None", ffn, over_all_ranks, model)).value.members
        split = answer(measure, asked(scheme.name, ffn, over_all_ranks, model)).value.substitute(ones)
        boundary = second_table if measure is memory else ONE - 1
        found = {f - boundary for f in split.members}
        assert found >= set(base), measure.__name__
        assert all(below_any(f, base, BASE_FACTORS) for f in found - set(base)), measure.__name__


# A rank's share, times the ranks, is the whole.


@every_ffn
@every_scheme
def test_work_per_rank_times_the_ranks_is_the_work_of_all(scheme, ffn) -> None:
    own, whole = (work(asked(scheme.name, ffn, view)).value for view in (False, True))
    assert own.scale(product(scheme.meshes)) == whole


@every_ffn
@every_scheme
def test_memory_per_rank_times_the_ranks_is_the_memory_of_all_but_for_the_tables_of_inner_stages(scheme, ffn) -> None:
    """A rank at a boundary counts for the pipeline; the stages between hold neither table nor final gain."""
    (own,), (whole,) = (memory(asked(scheme.name, ffn, view)).value.members for view in (False, True))
    over = own * product(scheme.meshes) - whole
    if not scheme.pipeline:
        assert not over
        return
    stages = symbol(scheme.pipeline)
    held = dict(memory(asked(scheme.name, ffn, True)).parts)
    table, gain = held["W_e"] / 2, held["gain_f"]  # two stages have the table, one the gain
    assert over == (stages - 2) * table + (stages - 1) * gain


@every_ffn
@every_scheme
def test_parameters_of_all_ranks_are_those_that_the_ranks_hold_array_by_array(scheme, ffn) -> None:
    mesh = {name: 2 + i % 2 for i, name in enumerate(scheme.meshes)}
    sizes = sizes_for(scheme, mesh, {})
    machine, graph = Machine(sizes, mesh), partition(step("policy", FEED_FORWARDS[ffn]), scheme)
    parts = dict(memory(asked(scheme.name, ffn, True)).parts)
    for name, tensor in graph.parameters():
        ranks = [machine.at(rank) for rank in machine.coordinates]
        if scheme.pipeline and "layer" not in tensor.names:
            last = mesh[scheme.pipeline] - 1
            holders = {0, last} if name == "W_e" else {last}  # the first stage embeds, the last one has the head
            ranks = [rank for rank in ranks if rank[scheme.pipeline] in holders]
        stored = [_stored(scheme, tensor, role) for role in STORED]
        state = [sum(math.prod(len(machine.positions(a, rank)) for a in t.axes) for rank in ranks) for t in stored]
        assert parts[name].evaluate({**sizes, **mesh}) == state[0] + state[1] + 2 * state[2], name


def _stored(scheme: Scheme, tensor: Tensor, role: Role) -> Tensor:
    """A parameter as its gradient or its optimizer state is stored."""
    return resplit(tensor, Layouts(scheme).splits(tensor.names, "a test", role))


# Every word of a declaration and every flag of a question matters.


def seen_of(scheme: Scheme) -> list[object]:
    """The graphs of a rank, and where the state of the optimizer lies."""
    out: list[object] = []
    for ffn, attention in product_of(FEED_FORWARDS.values(), ATTENTIONS.values()):
        graph = step("policy", ffn, attention)
        out.append(listing(partition(graph, scheme)))
        out += [Layouts(scheme).splits(t.names, name, Role.OPTIMIZER) for name, t in graph.parameters()]
    return out


@every_scheme
def test_every_entry_of_a_scheme_changes_something(scheme) -> None:
    for entry in scheme.entries:
        entries = tuple(e for e in scheme.entries if e is not entry)
        cut = {(e.axis, e.mesh) for e in entries}
        nesting = tuple((axis, meshes) for axis, meshes in scheme.nesting if {(axis, m) for m in meshes} <= cut)
        assert seen_of(replace(scheme, entries=entries, nesting=nesting)) != seen_of(scheme), entry


def measured(q: Question, *measures) -> list[object]:
    return [answer(measure, q).value for measure in measures or (work, memory)]


def with_flag(question, flag: str):
    return replace(question, **{flag: LOOSE[flag]})


LOOSE = {"blocks_only": False, "copies": 2, "recompute": Recompute.LAYER_BOUNDARY}


@pytest.mark.parametrize("flag", LOOSE)
@every_scheme
def test_every_convention_changes_something_under_every_scheme(scheme, flag) -> None:
    for view in (False, True):
        question = asked(scheme.name, "dense", view)
        assert measured(with_flag(question, flag)) != measured(question)


@every_scheme
def test_the_global_view_changes_something_exactly_where_there_are_ranks(scheme) -> None:
    question = replace(asked(scheme.name, "experts", True), collectives=True)
    views = [measured(replace(question, over_all_ranks=view), training_depth, memory) for view in (False, True)]
    assert (views[0] != views[1]) == bool(scheme.entries)


@every_ffn
@every_scheme
def test_charging_collectives_changes_the_depth_exactly_where_one_reduces(scheme, ffn) -> None:
    question = replace(asked(scheme.name, ffn, True), blocks_only=False)
    exchanges = [n.op for _, _, n in occurrences(graph_of(question)) if isinstance(n.op, Collective)]
    reduces = any(op.action in REDUCING for op in exchanges)
    charged, free = (measured(replace(question, collectives=c), training_depth) for c in (True, False))
    assert (charged != free) == reduces


@pytest.mark.parametrize("flag", [name for name in CONVENTIONS if name != "name"])
@every_scheme
def test_every_flag_of_the_cost_model_changes_something_where_it_can(scheme, flag) -> None:
    """The balance of causal products matters where they are shared by position, that of routing where by expert."""
    where, axis = {"balanced_causal": ("blocks/scores", "s"), "balanced_routing": ("blocks/expert_up", "e")}.get(
        flag, (None, None)
    )
    matters = where is None or axis in shared_by(scheme, *products("experts")[where], looped=True).values()
    question = asked(scheme.name, "experts", False, LITERAL)
    other = replace(LITERAL, **{flag: getattr(PAPER, flag)})
    assert (measured(replace(question, model=other)) != measured(question)) == matters


# Attention.


def quadratic(form: Form) -> Form:
    """The part in m^2."""
    return Form({k: c for k, c in form.terms.items() if dict(k).get("m") == 2})


@every_ffn
@every_scheme
def test_the_quadratic_term_of_attention_is_present_and_repeated_as_declared(scheme, ffn) -> None:
    places = products(ffn)
    graph, node = places["blocks/scores"]
    copies = product(copies_of(scheme, graph, node, looped=True))
    size = symbol("B") * symbol("L") * symbol("m") ** 2
    (done,) = work(asked(scheme.name, ffn, True)).value.members
    assert quadratic(done) == 6 * size * symbol("d") * copies
    (held,) = memory(asked(scheme.name, ffn, True)).value.members
    assert quadratic(held) == size * symbol("h") * copies
