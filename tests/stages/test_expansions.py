"""Building blocks of the stages from operation graphs: against sums by hand, a simulated memory and published steps."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import sympy
from click.testing import CliRunner
from hypothesis import given, settings

from derive import cli
from derive.building_blocks import EXPANSIONS, Blocks
from derive.costs.model import PAPER
from derive.forms import Max, total
from derive.liveness import inference_buffers, moments
from derive.measure import FORWARD, Question, graph_of, work
from derive.memory import elements
from derive.placements import StageQuestion, stage_depth, stage_memory, stage_work
from derive.stage_report import question
from graphs.axes import Role
from graphs.blocks.decoder import decoder
from graphs.errors import GraphError
from graphs.execute import run
from graphs.ir import Builder, Graph, Value
from graphs.models.roles import ROLES, forward
from graphs.ops.lookup import Lookup
from graphs.ops.pointwise import Pointwise
from graphs.ops.relabel import Relabel
from graphs.placements.presets import PRESETS
from graphs.sizes import Sizes
from graphs.stages import Options
from graphs.stages.stage import ASSESSMENT, GENERATION, STAGES
from graphs.symbols import size
from graphs.transforms.unroll import unroll
from tests.strategies import arrays_for, model_sizes

SIZES = Sizes.canonical()
EXPANDED = Blocks(frozenset(EXPANSIONS))
OPAQUE = re.compile(r"[CDM]_\w+\(|params\(|M_KV")


def derive(*words: str) -> str:
    done = CliRunner().invoke(cli.main, list(words))
    assert done.exit_code == 0, done.stderr
    return done.stdout


def largest(value: Max, sizes: dict[str, int]) -> Fraction:
    return max(f.evaluate(sizes) for f in value.members)


# -- generation --------------------------------------------------------------------------------------------------------
POLICY = {"L_pi": 2, "d_pi": 8, "d_ff_pi": 16, "h_pi": 4, "V": 32, "B": 3, "K": 2}


@pytest.mark.parametrize(("prompt", "response"), [(1, 1), (4, 1), (1, 3), (8, 8), (5, 6)])
def test_generation_costs_what_its_tokens_cost_one_by_one(prompt: int, response: int) -> None:
    n = POLICY | {"S": prompt, "T": response, "m": prompt + response}
    d, width, layers, vocabulary = n["d_pi"], n["d_ff_pi"], n["L_pi"], n["V"]
    products = layers * 2 * (4 * d * d + 2 * d * width)
    reads = Fraction(prompt**2, 2) + sum(prompt + t for t in range(1, response))  # half of a causal square
    once = products * (prompt + response - 1) + 4 * d * layers * reads + 2 * vocabulary * d * response
    q = StageQuestion("GRPO", stage=GENERATION, blocks=EXPANDED)
    assert largest(stage_work(q).value, n) == n["B"] * n["K"] * once
    cache = n["B"] * n["K"] * layers * 2 * d * (prompt + response - 1)
    weights = layers * (4 * d * d + 2 * d * width + 2 * d) + vocabulary * d + d
    assert largest(stage_memory(q).value, n) == weights + cache


@pytest.mark.parametrize("degree", [1, 2, 4])
def test_the_path_of_generation_goes_through_every_token(degree: int) -> None:
    """Logs of contracted lengths: width, head, context, head count times width, the two feed-forward widths; logits."""
    n = POLICY | {"S": 4, "T": 5, "m": 9, "P_t": degree}

    def one_pass(context: int) -> float:
        block = [n["d_pi"], n["d_pi"] // n["h_pi"], context, n["d_pi"] // degree, n["d_pi"], n["d_ff_pi"] // degree]
        return n["L_pi"] * sum(map(math.log2, block)) + math.log2(n["d_pi"])

    wanted = one_pass(n["S"]) + sum(one_pass(n["S"] + t) for t in range(1, n["T"]))
    placed = PRESETS["trl"].placement if degree > 1 else StageQuestion().placement
    (form,) = stage_depth(StageQuestion("GRPO", placed, GENERATION, blocks=EXPANDED)).value.members
    sums = {s: Fraction(sum(math.log2(n["S"] + t) for t in range(1, n["T"]))) for s in form.symbols if "(" in s}
    assert len(sums) == 1
    assert math.isclose(form.evaluate({**n, **sums}), wanted, rel_tol=1e-12)


def test_sharing_the_prefill_moves_it_from_the_rollouts_to_their_prompt() -> None:
    q = StageQuestion("GRPO", stage=GENERATION, blocks=EXPANDED)
    each, shared = (stage_work(replace(q, options=Options(share_prefill=x))).value for x in (False, True))
    for rollouts in (1, 4):
        n = POLICY | {"S": 4, "T": 5, "m": 9, "K": rollouts}
        prefill = EXPANSIONS["C_pf_roll"](replace(Question(), sizes=Sizes.of_model("pi")))
        assert largest(each, n) - largest(shared, n) == n["B"] * (rollouts - 1) * largest(prefill, n)


def test_a_model_without_a_vocabulary_has_no_derived_generation() -> None:
    q = StageQuestion("GRPO", stage=ASSESSMENT, options=Options(sequential_reward=True), blocks=EXPANDED)
    (form,) = stage_work(q).value.members
    assert [s for s in form.symbols if "(" in s] == ["C_gen_roll(R)"]


@pytest.mark.parametrize("name", PRESETS)
def test_an_expanded_preset_leaves_no_cost_unnamed(name: str) -> None:
    data = json.loads(derive("stage", "--preset", name, "--expand", "--json"))
    rows = [*data["stages"], data["iteration"]]
    shown = [row[measure] for row in rows for measure in ("work", "depth", "memory")]
    assert not [text for text in shown if OPAQUE.search(text)]


def test_an_expanded_split_needs_sizes_alone() -> None:
    names = [f"{n}_{model}" for n in ("L", "d", "h", "d_ff") for model in ("pi", "R")]
    given_sizes = [word for n in (*names, "V", "S", "T") for word in ("--set", f"{n}=4")]
    words = ["split", "--algorithm", "grpo", "--expand", "--budget", "100000000", *given_sizes]
    points = [line.split() for line in derive(*words).splitlines()[-6:]]
    assert [k for k, _ in points] == ["1", "2", "4", "8", "16", "32"]
    assert all(int(a[1]) >= int(b[1]) for a, b in pairwise(points))


# -- inference buffers -------------------------------------------------------------------------------------------------
def simulated_peak(graph: Graph, sizes: dict[str, int]) -> int:
    """Allocate results and free what has no reader left, in an unrolled graph; a view shares its operand's memory."""
    views = {Value(n.name): n.operands[0] for n in graph.nodes if isinstance(n.op, Relabel)}

    def owner(v: Value) -> Value:
        return owner(views[v]) if v in views else v

    readers = Counter(owner(v) for n in graph.nodes for v in n.operands)
    readers.update(owner(v) for v in graph.outputs.values())
    numbers = {size(name): value for name, value in sizes.items()}
    held: dict[Value, int] = {}
    peak = 0
    for node in graph.nodes:
        for i, tensor in enumerate(node.types):
            if Value(node.name, i) not in views and tensor.role not in (Role.PARAMETER, Role.INDEX):
                held[Value(node.name, i)] = math.prod(int(a.size.subs(numbers)) for a in tensor.axes)
        peak = max(peak, sum(held.values()))
        readers.subtract(owner(v) for v in node.operands)
        held = {v: size for v, size in held.items() if readers[v]}
    return peak


@settings(max_examples=15)
@given(sizes=model_sizes(largest=6))
@pytest.mark.parametrize("role", ROLES)
def test_inference_buffers_are_the_peak_of_a_simulated_memory(role: str, sizes: dict[str, int]) -> None:
    q = Question(role=ROLES[role])
    graph = unroll(forward(SIZES, ROLES[role]), {"layer": sizes["L"]})
    assert largest(inference_buffers(q).value, sizes) == simulated_peak(graph, sizes)


def test_a_value_that_is_read_after_a_loop_is_held_beside_what_the_loop_hands_on() -> None:
    build = Builder("skip")
    ids = build.input("ids", SIZES.tensor("b s", Role.INDEX))
    table = build.input("W_e", SIZES.tensor("v c", Role.PARAMETER))
    (x,) = build.add(Lookup("v"), table, ids)
    build.output("out", build.add(Pointwise("add"), x, decoder(build, x, SIZES))[0])
    graph = build.graph()
    sizes = {"B": 2, "m": 3, "d": 4, "h": 2, "d_ff": 5, "V": 3, "L": 2}
    found = max(total(alive.values()).evaluate(sizes) for _, alive in moments(graph))
    assert found == simulated_peak(unroll(graph, {"layer": sizes["L"]}), sizes)


def test_inside_the_blocks_no_logits_are_held() -> None:
    assert "V" in inference_buffers(Question()).value.symbols
    assert "V" not in inference_buffers(Question(blocks_only=True)).value.symbols


# -- rows of the head --------------------------------------------------------------------------------------------------
def test_a_head_with_some_rows_gives_the_last_rows_of_the_whole() -> None:
    n = {"B": 2, "m": 5, "L": 2, "d": 4, "h": 2, "d_ff": 6, "V": 7}
    inputs = arrays_for(forward(SIZES), n, 3)
    whole = run(forward(SIZES), inputs, n)["out"]
    for rows in range(1, n["m"] + 1):
        got = run(forward(SIZES, rows=sympy.Integer(rows)), inputs, n)["out"]
        np.testing.assert_allclose(got, whole[:, -rows:], rtol=1e-12)
    with pytest.raises(GraphError, match="axis 's' has 5 entries, so -1 to 5 are not within; change start or size"):
        run(forward(SIZES, rows=sympy.Integer(6)), inputs, n)


def test_logits_of_the_response_alone_save_those_of_the_prompt() -> None:
    def works(*options: str) -> list[dict[str, int]]:
        q = question("grpo", chosen=options, expand=True)
        return [{n: int(f.evaluate(TOY)) for n, f in stage_work(replace(q, stage=s)).parts} for s in STAGES]

    saved = 2 * TOY["B"] * TOY["K"] * (TOY["S"] - 1) * TOY["V"] * TOY["d"]
    (generation, assessment, training), fewer = works(), works("response-logits")
    assert fewer[0] == generation
    assert fewer[1] == assessment | {"score_reference": assessment["score_reference"] - saved}
    assert fewer[2] == {
        "forward_actor": training["forward_actor"] - saved,
        "backward_actor": training["backward_actor"] - 2 * saved,
    }
    with pytest.raises(GraphError, match="add --expand"):
        question("grpo", chosen=["response-logits"])


# -- published steps ---------------------------------------------------------------------------------------------------
def test_logits_of_a_response_alone() -> None:
    """huggingface/trl PR #2683: 8 sequences of 100 + 156 tokens, logits of the response and the position before it."""
    n = {"B": 8, "m": 256, "V": 151_936, "d": 896, "h": 14, "L": 24, "d_ff": 4864}
    found = {}
    for rows in (None, 157):
        q = Question(rows=None if rows is None else sympy.Integer(rows))
        graph = graph_of(q, FORWARD)
        logits = int(elements(graph.type(graph.outputs["out"]), PAPER).evaluate(n))
        found[rows] = logits, int(dict(work(q, ["forward"]).parts)["unembedding"].evaluate(n))
    assert found[None] == (311_164_928, 557_607_550_976)
    assert found[157] == (190_831_616, 341_970_255_872)


#: verl-omni issue #124: prompt 3, response 4, one sequence, causal pairs counted exactly
TOY = {"L": 1, "d": 4, "h": 2, "d_ff": 8, "V": 10, "B": 1, "K": 1, "S": 3, "T": 4, "m": 7}
TOY |= {f"{n}_{model}": TOY[n] for n in ("L", "d", "h", "d_ff") for model in ("pi", "R")}
EXACT = replace(PAPER, causal="exact")


def test_a_whole_step_of_rollout_two_scoring_passes_and_an_update() -> None:
    blocks = Blocks(frozenset(EXPANSIONS), Question(model=EXACT))
    q = StageQuestion("GRPO", options=Options(log_probabilities_own_pass=True), blocks=blocks)
    parts = {name: int(form.evaluate(TOY)) for name, form in stage_work(q).parts}
    update = parts["forward_actor"] + parts["backward_actor"]
    found = parts["generate"], parts["score_actor"], parts["score_reference"], update
    assert found == (2_192, 2_800, 2_800, 8_400)
    assert sum(found) == 16_192
    assert set(parts) == {
        "generate", "score_actor", "score_reference", "score_reward", "forward_actor", "backward_actor"
    }  # fmt: skip


def test_a_rollout_is_one_forward_pass_without_the_last_token_and_with_logits_of_the_response() -> None:
    prefill, decode = (
        int(EXPANSIONS[name](Question(model=EXACT)).members[0].evaluate(TOY)) for name in ("C_pf_roll", "C_dec_roll")
    )
    assert (prefill, decode) == (944, 1_248)
    scored = work(Question(model=EXACT, rows=size("T")), ["forward"]).value
    assert largest(scored, TOY) == 2_560
    assert largest(scored, TOY | {"m": TOY["m"] - 1}) == prefill + decode
