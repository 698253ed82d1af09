"""Operation graphs and stage graphs are two views of one iteration: the same nodes, the same flow, the same work."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest

from derive.building_blocks import EXPANSIONS, Blocks
from derive.costs.model import FULL, PAPER
from derive.depth import DepthRule, as_max, depth
from derive.forms import Form, Max, symbol, total
from derive.generation import decode_work, generation_work, prefill_work
from derive.interchange import from_sympy
from derive.measure import Question
from derive.placements import StageQuestion, stage_depth, stage_work
from derive.work import Term, work_terms
from graphs.axes import Role
from graphs.errors import GraphError
from graphs.ir import Graph
from graphs.rl.advantages import token_advantages
from graphs.rl.links import LINKS, Operation, every_node_is_carried_out_once, operations
from graphs.rl.settings import Settings
from graphs.sizes import Sizes
from graphs.stages import Options, algorithms, stage_graph
from graphs.stages.stage import ASSESSMENT, TRAINING, Invocation, Pass
from graphs.symbols import size
from graphs.transforms.expand import expand_macros
from tests.oracle import expand_graph

SETTINGS = {
    "plain": Settings(),
    "own pass": Settings(options=Options(log_probabilities_own_pass=True)),
    "shared prefill": Settings(options=Options(share_prefill=True)),
    "joint update": Settings(options=Options(joint_update=True)),
    "epochs": Settings(options=Options(epochs=size("n_ep"), updates=size("n_up"))),
}
CASES = [(a, s) for a in sorted(LINKS) for s in SETTINGS]
#: what a node's work is called in its graph
GENERATED = {Pass.GENERATE: generation_work, Pass.PREFILL: prefill_work, Pass.DECODE: decode_work}
PHASES = {Pass.FORWARD: "forward", Pass.BACKWARD: "backward"}


def made_by(op: Operation) -> set[str]:
    """The data it gives; weights stay with their model."""
    weights = (Role.PARAMETER, Role.OPTIMIZER)
    return {op.gives.get(name, name) for name, v in op.graph.outputs.items() if op.graph.type(v).role not in weights}


def is_part(run: Pass, term: Term) -> bool:
    """Of a generation: the decode steps are one loop, what lies before it is the prefill."""
    return run is Pass.GENERATE or term.where.startswith("decode/") == (run is Pass.DECODE)


def test_every_algorithm_runs() -> None:
    assert LINKS.keys() == algorithms().keys()


@pytest.mark.parametrize(("algorithm", "settings"), CASES)
def test_values_flow_along_the_edges_of_the_stage_graph(algorithm: str, settings: str) -> None:
    """What one graph reads of another is an edge or a path there, and every edge between two graphs is read."""
    stage, ops = stage_graph(algorithm, SETTINGS[settings].options), operations(algorithm, SETTINGS[settings])
    read = set()
    for i, reader in enumerate(ops):
        for giver in ops[:i]:
            if made_by(giver) & set(reader.graph.inputs):
                read.add((giver.nodes, reader.nodes))
                assert any(nx.has_path(stage.digraph, a, b) for a in giver.nodes for b in reader.nodes)
    home = {name: op.nodes for op in ops for name in op.nodes}
    edges = {(home[a], home[b]) for a, b in stage.digraph.edges if home[a] != home[b]}
    assert edges <= read


@pytest.mark.parametrize(("algorithm", "settings"), CASES)
def test_the_work_of_every_invocation_is_that_of_its_operations(algorithm: str, settings: str) -> None:
    """At symbolic sizes, trips included; glue does no matrix product.  Passes of one kind in one graph are added."""
    stage = stage_graph(algorithm, SETTINGS[settings].options)
    blocks = Blocks(frozenset(EXPANSIONS))
    for op in operations(algorithm, SETTINGS[settings]):
        terms = list(work_terms(op.graph, PAPER))
        left = total(t.amount for t in terms)
        nodes = [n for n in (stage.by_name[name] for name in op.nodes) if isinstance(n, Invocation)]
        for run in sorted({n.run for n in nodes}, key=lambda run: run.value):
            mine = [n for n in nodes if n.run is run]
            if run in GENERATED:
                (per_sequence,) = GENERATED[run](Question(sizes=Sizes.of_model("pi"))).value.members
                wanted = total(from_sympy(n.sequences) * per_sequence for n in mine)
                found = total(t.amount for t in terms if is_part(run, t))
            else:
                wanted = total(blocks.work(n, stage.model(n.role)) for n in mine)
                found = total(t.amount for t in terms if t.phase == PHASES[run])
            assert from_sympy(op.trips) * found == wanted, run
            left = left - found
        assert left == Form.constant(0)


@pytest.mark.parametrize("stage", [ASSESSMENT, TRAINING])
@pytest.mark.parametrize(("algorithm", "settings"), CASES)
def test_a_stages_work_is_the_sum_of_what_its_graphs_do(algorithm: str, settings: str, stage: str) -> None:
    chosen = SETTINGS[settings]
    nodes = {n.name for n in stage_graph(algorithm, chosen.options).in_stage(stage)}
    inside = [op for op in operations(algorithm, chosen) if set(op.nodes) <= nodes]
    found = total(from_sympy(op.trips) * t.amount for op in inside for t in work_terms(op.graph, PAPER))
    asked = StageQuestion(algorithm, stage=stage, options=chosen.options, blocks=Blocks(frozenset(EXPANSIONS)))
    assert Max.of(found) == stage_work(asked).value


@pytest.mark.parametrize("algorithm", ["GRPO", "DPO"])
def test_training_is_as_deep_as_its_one_update(algorithm: str) -> None:
    """Glue adds nothing under the paper's conventions: the loss hangs between the forward and the backward pass."""
    asked = StageQuestion(algorithm, stage=TRAINING, blocks=Blocks(frozenset(EXPANSIONS)))
    update = operations(algorithm)[-1].graph
    assert as_max(depth(update, DepthRule(PAPER, asked.factors))) == stage_depth(asked).value


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (Options(sequential_reward=True), "no operations carry out score_reward; add a link"),
        (Options(shared=True), "operations are linked to backward_critic, which it has not"),
    ],
    ids=["reward that decodes", "shared actor and critic"],
)
def test_a_node_without_operations_is_named(options: Options, says: str) -> None:
    with pytest.raises(GraphError, match=f"^stages of PPO: {says}"):
        operations("PPO", Settings(options=options))


def test_a_link_to_a_node_that_is_not_there_is_named() -> None:
    with pytest.raises(GraphError, match="stages of DPO: operations are linked to advantages, which it has not"):
        every_node_is_carried_out_once(stage_graph("DPO", Options()), (*LINKS["DPO"], LINKS["PPO"][4]))


# -- advantages: a chain, or a triangle -------------------------------------------------------------------------------
def advantages(scan: bool) -> Graph:
    return token_advantages(Sizes.canonical(), Settings(scan=scan))


def full_depth(scan: bool) -> Max:
    return as_max(depth(expand_macros(advantages(scan)), DepthRule(FULL)))


def test_a_recursion_is_as_deep_as_the_response_is_long_and_a_product_as_its_log() -> None:
    """A recursion adds and fades once for each token; a product sums a row of T."""
    chain, product = full_depth(scan=True), full_depth(scan=False)
    steps = [chain.evaluate({"T": n}) for n in (8, 16, 32)]
    assert [b - a for a, b in pairwise(steps)] == [2 * 8, 2 * 16]
    levels = [product.evaluate({"T": n}) for n in (8, 16, 32)]
    assert [b - a for a, b in pairwise(levels)] == [1, 1]


TINY = {"B": 2, "K": 2, "S": 2, "m": 5, "T": 3, "V": 3, "B_pairs": 1} | {
    f"{name}_{model}": n for model in ("pi", "V", "R") for name, n in {"L": 2, "d": 2, "h": 1, "d_ff": 2}.items()
}


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("T", [2, 3, 4, 8])
def test_depth_of_advantages_is_the_longest_path_of_their_scalar_expansion(scan: bool, T: int) -> None:
    sizes = {"B": 1, "S": 2, "m": 2 + T, "T": T}
    assert full_depth(scan).evaluate(sizes) == expand_graph(advantages(scan), sizes).depth


@pytest.mark.parametrize("algorithm", sorted(LINKS))
def test_exact_work_of_every_graph_is_its_scalar_expansion(algorithm: str) -> None:
    """With every operation counted, glue, losses and the optimizer step included, and loops unrolled."""
    for op in operations(algorithm):
        graph = expand_macros(op.graph)
        derived = total(t.amount for t in work_terms(graph, FULL)).evaluate(TINY)
        assert derived == expand_graph(graph, TINY).work, op.nodes


def test_a_product_does_the_work_of_a_triangle_of_the_response() -> None:
    found = [total(t.amount for t in work_terms(advantages(scan), PAPER)) for scan in (True, False)]
    assert found == [Form.constant(0), symbol("B") * symbol("T") * symbol("T")]
