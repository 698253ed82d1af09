"""What the measure counts is what a partitioned graph exchanges when it runs, and what each scheme is known for."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphs.execute
from derive.communication import Communication, communication, items
from derive.costs.traffic import FREE
from derive.forms import Form, symbol
from derive.measure import Question
from derive.units import ELEMENTS, MESSAGES, STEPS
from graphs.axes import Role, Tensor
from graphs.errors import GraphError
from graphs.execute import Coordinate, Held, Machine, run
from graphs.ir import Builder, Node
from graphs.models.roles import ROLES
from graphs.ops.collective import Collective
from graphs.schemes import Mapping as Entry
from graphs.schemes import Scheme
from graphs.transforms.optimizer import with_optimizer
from graphs.transforms.partition import partition
from graphs.transforms.recompute import Recompute
from graphs.transforms.unroll import unroll
from tests.communication.simulation import SIMULATED, Network
from tests.graphs.test_optimizer import step
from tests.graphs.test_partition import EVEN, FFNS, MESHES, SCHEMES, arrays, degrees, divisible, model, split, zigzag

DENSE_ROUTING = EVEN | {"E_a": EVEN["E"]}  # the arrays that run hold every expert
d, m, L, B, V, d_ff = map(symbol, ("d", "m", "L", "B", "V", "d_ff"))
BLOCK = 4 * d * d + 2 * d * d_ff + 2 * d
PARAMETERS = V * d + L * BLOCK + d


@cache
def measured(name: str, ffn: str = "dense", role: str = "policy", algorithm: str = "ring") -> Communication:
    return communication(Question(scheme=name, ffn=FFNS[ffn], role=ROLES[role]), algorithm)


def sent(found: Communication) -> str:
    return found.per_rank(lambda i: i.sent, ELEMENTS).amount.text


def total(found: Communication) -> Form:
    (form,) = found.overall(lambda i: i.total, ELEMENTS).amount.members
    return form


def amounts(found: Communication) -> dict[str, Fraction]:
    """Everything there is to count, in numbers."""
    quantities = {
        "sent": found.per_rank(lambda i: i.sent, ELEMENTS),
        "messages": found.per_rank(lambda i: i.messages, MESSAGES),
        "steps": found.per_rank(lambda i: i.steps, STEPS),
        "total": found.overall(lambda i: i.total, ELEMENTS),
        "total_messages": found.overall(lambda i: i.total_messages, MESSAGES),
    }
    return {name: q.amount.evaluate({}) for name, q in quantities.items()}


# What runs.


class Wiretap:
    """Carries out every exchange of a run on the ranks' real arrays and counts by rank."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
        self.sent, self.messages = Counter[tuple[str, Coordinate]](), Counter[tuple[str, Coordinate]]()
        self.algorithm, self.phase = algorithm, ""
        for name in ("_collective", "_hand_on", "_repeat"):
            monkeypatch.setattr(graphs.execute, name, getattr(self, name)(getattr(graphs.execute, name)))

    def carry_out(self, action: str, group: list[Coordinate], held: Mapping[Coordinate, np.ndarray]) -> None:
        if len(set(group)) == 1:
            return
        net = Network()
        SIMULATED[action, self.algorithm](net, [held[rank] for rank in group])
        for i, rank in enumerate(group):
            self.sent[self.phase, rank] += net.sent[i]
            self.messages[self.phase, rank] += net.messages[i]

    def _repeat(self, original):
        def watched(op, *args):
            self.phase = "backward" if op.reverse else "forward"
            return original(op, *args)

        return watched

    def _hand_on(self, original):
        def watched(held: Held, mesh: str, here: list[Coordinate], previous: int, machine: Machine) -> Held:
            out = original(held, mesh, here, previous, machine)
            for rank in here:
                source = graphs.execute._peer(rank, mesh, previous, machine)
                self.carry_out("send", [source, rank], {source: held[source], rank: held[source]})
            return out

        return watched

    def _collective(self, original):
        def watched(node: Node, op: Collective, held: Held, machine: Machine) -> Held:
            out = original(node, op, held, machine)
            self.phase = node.phase
            if op.action == "send":
                for rank, source in zip(out, held, strict=True):
                    self.carry_out("send", [source, rank], {source: held[source], rank: out[rank]})
            elif op.action not in FREE and node.types[0].role is not Role.INDEX:
                inside = [machine.dimensions.index(mesh) for mesh in op.meshes]
                for rank in (r for r in held if not any(r[i] for i in inside)):
                    alike = [i for i in range(len(rank)) if i not in inside]
                    group = [r for r in held if all(r[i] == rank[i] for i in alike)]
                    self.carry_out(op.action, group, held)
            return out

        return watched


def overheard(monkeypatch: pytest.MonkeyPatch, algorithm: str, part, whole, sizes, mesh) -> Wiretap:
    tap = Wiretap(monkeypatch, algorithm)
    inputs = arrays(whole, sizes)
    run(part, {name: np.abs(a) if name.startswith("second:") else a for name, a in inputs.items()}, sizes, mesh)
    return tap


def agree(counted: Fraction, sent: int) -> bool:
    """Equal, but for the loss: one number, which has no even chunks, so that a rank sends a fraction of it or it."""
    return counted == sent if counted.denominator == 1 else abs(counted - sent) < 1


def by_rank(counts: Counter[tuple[str, Coordinate]], *phases: str) -> Counter[Coordinate]:
    """Counts of the named phases, or of all."""
    out = Counter[Coordinate]()
    for (phase, rank), n in counts.items():
        if not phases or phase in phases:
            out[rank] += n
    return out


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("name", SCHEMES)
def test_a_run_on_two_ranks_per_dimension_moves_what_is_counted(name, ffn, algorithm, monkeypatch) -> None:
    """By phase: on the busiest rank, and in all."""
    mesh = degrees(SCHEMES[name])
    tap = overheard(monkeypatch, algorithm, partition(step(ffn), SCHEMES[name]), step(ffn), DENSE_ROUTING, mesh)
    found = measured(name, ffn, algorithm=algorithm).at(DENSE_ROUTING | mesh)
    assert {p for (p, _), n in tap.sent.items() if n} == set(found.phases)
    for phase in found.phases:
        got, elements, messages = amounts(found.during(phase)), by_rank(tap.sent, phase), by_rank(tap.messages, phase)
        assert got["total"] == elements.total()
        assert got["total_messages"] == messages.total()
        assert agree(got["sent"], max(elements.values()))
        assert got["messages"] == max(messages.values())


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("Pipeline", {"P_p": 4}),
        ("Tensor", {"P_t": 4}),
        ("Sequence", {"P_t": 4}),
        ("Context", {"P_c": 4}),
        ("Data", {"P_d": 4}),
        ("3D", {"P_d": 1, "P_p": 4, "P_t": 2}),
        ("3D", {"P_d": 4, "P_p": 1, "P_t": 2}),
        ("5D", {"P_d": 2, "P_p": 2, "P_t": 1, "P_c": 4, "P_e": 1}),
    ],
)
def test_a_run_on_uneven_meshes_moves_what_is_counted(name, mesh, monkeypatch) -> None:
    tap = overheard(monkeypatch, "ring", partition(step("dense"), SCHEMES[name]), step("dense"), EVEN, mesh)
    got = amounts(measured(name).at(EVEN | mesh))
    ranks, messages = by_rank(tap.sent), by_rank(tap.messages)
    assert got["total"] == ranks.total()
    assert got["total_messages"] == messages.total()
    assert got["messages"] == max(messages.values())
    assert agree(got["sent"], max(ranks.values()))


def extra_schemes() -> dict[str, Scheme]:
    """Schemes that use what the declared ones do not: storage, all-to-all, nesting, zigzag."""
    return {
        "storage": Scheme("storage", (Entry("b", "P_d", 1), Entry("c", "P_d", 0, where="storage")), "test"),
        "experts on data ranks": Scheme("shared", (Entry("b", "P_e"), Entry("e", "P_e", priority=1)), "test"),
        "nested": Scheme(
            "nested", (*SCHEMES["Sequence"].entries, Entry("s", "P_c")), "test", nesting=(("s", ("P_c", "P_t")),)
        ),
        "zigzag": zigzag(SCHEMES["Context"]),
    }


@pytest.mark.parametrize("name", extra_schemes())
def test_a_run_of_an_undeclared_scheme_moves_what_is_counted(name, monkeypatch) -> None:
    scheme = extra_schemes()[name]
    sizes, mesh = DENSE_ROUTING | {"m": 16}, degrees(scheme)
    part = partition(model("policy", "experts"), scheme)
    tap = overheard(monkeypatch, "ring", part, model("policy", "experts"), sizes, mesh)
    values = {n: Form.constant(v) for n, v in (sizes | mesh).items()}
    found = [i.at(values) for i in items(part, scheme.meshes)]
    assert sum(i.total.amount.evaluate({}) for i in found) == tap.sent.total()
    assert sum(i.total_messages.amount.evaluate({}) for i in found) == tap.messages.total()


# What each scheme is known for.


def per_layer(name: str) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """(phase, action) -> what the loops exchange per layer: how often, and the elements of each on one rank."""
    out: dict[tuple[str, str], Counter[str]] = {}
    for item in (i for i in measured(name).items if i.in_loop):
        assert item.count == L
        out.setdefault((item.phase, item.action), Counter())[item.traffic.sent.text] += 1
    return {key: sorted((n, text) for text, n in counts.items()) for key, counts in out.items()}


def test_tensor_parallelism_all_reduces_two_activations_per_layer_each_way() -> None:
    whole = "2*B*d*m - 2*B*d*m/P_t"
    assert per_layer("Tensor") == {("forward", "all_reduce"): [(2, whole)], ("backward", "all_reduce"): [(2, whole)]}


def test_sequence_parallelism_gathers_and_scatters_and_gathers_again() -> None:
    half = "B*d*m - B*d*m/P_t"
    assert per_layer("Sequence") == {
        ("forward", "all_gather"): [(2, half)],
        ("forward", "reduce_scatter"): [(2, half)],
        ("backward", "all_gather"): [(4, half)],
        ("backward", "reduce_scatter"): [(2, half)],
    }


def test_sequence_parallelism_moves_forward_what_tensor_parallelism_moves() -> None:
    """Case A15: two exchanges of 16,384 bytes per layer, on 8 ranks and in 8 layers."""
    sizes = {"P_t": 8, "L": 8, "B": 1, "m": 16, "d": 512, "h": 8, "d_ff": 512, "V": 512}
    for name in ("Tensor", "Sequence"):
        found = measured(name).during("forward")
        blocks = replace(found, items=tuple(i for i in found.items if i.in_loop)).at(sizes)
        volume = blocks.overall(lambda i: i.total.in_bytes(2), "bytes")
        assert volume.amount.evaluate({}) == 2 * 1_835_008
        assert amounts(blocks)["total_messages"] == 2 * 896


def test_data_parallelism_all_reduces_every_parameter_once() -> None:
    gradients = measured("Data").during("backward")
    assert total(gradients) == 2 * (symbol("P_d") - 1) * PARAMETERS
    assert {i.role for i in gradients.items} == {Role.PARAMETER_GRADIENT}


def test_a_pipeline_hands_one_activation_over_each_boundary_each_way_and_ties_its_embedding() -> None:
    found = measured("Pipeline")
    assert [(i.where, i.phase, i.positions) for i in found.items] == [
        ("blocks/x.hand_on", "forward", ("first", "inner")),
        ("blocks'/d:x.hand_on", "backward", ("inner", "last")),
        ("unembedding.d1'.send.P_p", "backward", ("last",)),
        ("W_e.subtract.send.P_p", "update", ("first",)),
    ]
    assert sent(found.during("forward")) == "B*d*m"
    assert sent(found.during("backward")) == "B*d*m + V*d"
    assert sent(found.during("update")) == "V*d"
    assert total(found) == 2 * (symbol("P_p") - 1) * B * m * d + 2 * V * d


def test_the_busiest_stage_of_two_is_an_end_and_of_three_may_be_the_middle() -> None:
    """A value head has no embedding tied to it: the ends of a pipeline send once, the stages between them twice."""
    sizes = {"B": 1, "m": 2, "d": 4, "L": 12, "h": 1, "d_ff": 1, "V": 5}
    found = measured("Pipeline", role="value")
    assert [amounts(found.at(sizes | {"P_p": p}))["sent"] for p in (1, 2, 3, 4)] == [0, 8, 16, 16]


def test_routed_tokens_count_for_their_active_experts() -> None:
    (item,) = (i for i in measured("Expert", "experts").items if i.action == "all_gather")
    p = symbol("P_e")
    assert item.traffic.sent == (p - 1) / p * B * m * symbol("E_a")


def test_recomputed_exchanges_are_a_phase_of_their_own() -> None:
    found = communication(Question(scheme="Tensor", recompute=Recompute.LAYER_BOUNDARY))
    again, forward = found.during("recompute"), found.during("forward")
    assert again.items
    assert {i.traffic.sent for i in again.items} <= {i.traffic.sent for i in forward.items}


def test_index_data_and_shards_are_free() -> None:
    assert all(i.role is not Role.INDEX and i.action not in FREE for n in SCHEMES for i in measured(n).items)
    build = Builder("ids")
    ids = build.input("ids", split("Data", "policy", "dense").inputs["ids"])
    (cut,) = build.add(Collective("shard", "P_d", "b"), ids)
    build.output("ids", build.add(Collective("all_gather", "P_d", "b"), cut)[0])
    assert not list(items(build.graph(), ("P_d",)))


def test_an_action_that_no_rule_knows_is_named() -> None:
    build = Builder("gossip")
    x = build.input("x", Tensor(()))
    build.append(Node("y", Collective("send", "P_t"), (x,), (Tensor(()),)))
    graph = build.graph()
    bad = replace(graph.nodes[0], op=Gossip("gossip", "P_t"))
    with pytest.raises(GraphError, match="gossip has no ring rule"):
        list(items(replace(graph, nodes=(bad,)), ("P_t",)))


class Gossip(Collective):
    """A collective that somebody added without a traffic rule."""

    def infer(self, *operands: Tensor) -> tuple[Tensor, ...]:
        return operands


# Laws.


@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("name", SCHEMES)
def test_degrees_of_one_exchange_nothing(name: str, ffn: str) -> None:
    assert not any(amounts(measured(name, ffn).at(degrees(SCHEMES[name], 1))).values())


@pytest.mark.parametrize("name", ["Data", "Pipeline", "Tensor", "Context", "Expert-A2A"])
def test_a_combined_scheme_with_one_degree_above_one_is_that_scheme(name: str) -> None:
    (mesh,) = SCHEMES[name].meshes
    ones = dict.fromkeys(MESHES, 1) | {mesh: 2}
    combined = measured("5D", "dispatched").at(EVEN | ones)
    assert amounts(combined) == amounts(measured(name, "dispatched").at(EVEN | {mesh: 2}))


@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("name", [n for n in SCHEMES if "P_p" not in SCHEMES[n].meshes])
def test_without_a_pipeline_all_ranks_send_alike(name: str, ffn: str) -> None:
    found, ranks = measured(name, ffn), Form.constant(1)
    for mesh in SCHEMES[name].meshes:
        ranks = ranks * symbol(mesh)
    (each,) = found.per_rank(lambda i: i.sent, ELEMENTS).amount.members
    assert total(found) == ranks * each


@pytest.mark.parametrize("name", ["Pipeline", "3D", "5D"])
@given(data=st.data())
@settings(max_examples=25)
def test_what_the_stages_of_a_pipeline_send_adds_up_to_the_whole(name: str, data: st.DataObject) -> None:
    sizes, mesh = data.draw(divisible(SCHEMES[name].meshes))
    stages = data.draw(st.integers(2, 4))
    sizes, mesh = sizes | {"L": 12}, mesh | {"P_p": stages}
    found = measured(name, "experts").at(sizes | mesh)
    others = np.prod([p for n, p in mesh.items() if n != "P_p"])
    of = {s: sum(i.sent.amount.evaluate({}) for i in found.at_stage(s).items) for s in ("first", "inner", "last")}
    assert amounts(found)["total"] == int(others) * (of["first"] + (stages - 2) * of["inner"] + of["last"])
    assert amounts(found)["sent"] == max(v for s, v in of.items() if stages > 2 or s != "inner")


@pytest.mark.parametrize("name", SCHEMES)
@given(data=st.data())
@settings(max_examples=10)
def test_numbers_put_in_early_or_late_give_the_same(name: str, data: st.DataObject) -> None:
    sizes, mesh = data.draw(divisible(SCHEMES[name].meshes))
    found = measured(name, "experts")
    assert amounts(found.at(mesh).at(sizes)) == amounts(found.at(sizes | mesh))


#: schemes that treat the layers' bodies like the rest of the graph, so that unrolling changes no layout
ALIKE = [n for n, s in SCHEMES.items() if "P_p" not in s.meshes and all(e.where == "everywhere" for e in s.entries)]
#: what an all-to-all moved may be kept twice in an unrolled graph
KEPT_TWICE = {("Expert-A2A", "experts")}


@pytest.mark.parametrize(("name", "ffn"), sorted(set(itertools.product(ALIKE, FFNS)) - KEPT_TWICE))
def test_an_unrolled_graph_exchanges_as_many_elements(name: str, ffn: str) -> None:
    count = 3
    flat = partition(with_optimizer(unroll(model("policy", ffn), count)), SCHEMES[name])
    once = sum((f for i in items(flat, SCHEMES[name].meshes) for f in i.total.amount.members), Form.constant(0))
    layers = {"L": Form.constant(count)}
    assert once.substitute(layers) == total(measured(name, ffn)).substitute(layers)


# What a user may get wrong.


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"q": 2}, "no size is called 'q'"),
        ({"P_t": 0}, "P_t=0 is not positive"),
        ({"P_t": 3, "h": 4}, "P_t=3 does not divide axis 'h' of size 4"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        measured("Tensor").at(sizes)


def test_tree_algorithms_want_a_power_of_two() -> None:
    with pytest.raises(GraphError, match="tree algorithms need a power of two, P_t=6 is none"):
        measured("Tensor", algorithm="tree").at({"P_t": 6})


def test_a_scheme_needs_a_rule_for_each_of_its_actions() -> None:
    with pytest.raises(GraphError, match="reduce_scatter has no central rule"):
        communication(Question(scheme="Sequence"), "central")


def test_items_say_where_they_come_from() -> None:
    item = next(i for i in measured("Tensor").items if i.in_loop)
    assert item.where == "blocks/out_projection.all_reduce.P_t"
    assert (item.action, item.mesh, item.axes, item.role) == ("all_reduce", "P_t", ("b", "s", "c"), Role.ACTIVATION)
