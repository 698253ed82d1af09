"""Stage graphs, and the cells of Tables IV and IX: what the algorithms run, and what the verdicts rest on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from derive import cells, cli
from derive.asymptotics.checker import check_cell
from derive.budget import iso_compute, split
from derive.building_blocks import EXPANSIONS, Blocks
from derive.check import check
from derive.claims import load
from derive.forms import Max
from derive.measure import Question, training_depth
from derive.normal import named_costs, single_form, to_form
from derive.period import period
from derive.placements import StageQuestion, stage_depth, stage_memory, stage_work
from derive.render.typeset import with_m
from derive.report import safe as as_json
from derive.textform import parse_text
from graphs.errors import GraphError
from graphs.placements import placement, placements
from graphs.placements.presets import PRESETS
from graphs.stages import Options, StageGraph, algorithms, stage_graph
from graphs.stages.compose import PROMPTS, TOKENS, Composer
from graphs.stages.stage import ASSESSMENT, GENERATION, STAGES, TRAINING, Glue, Invocation, Pass
from graphs.symbols import size

OWN = [c for c in cells.cell_ids() if c.split("/")[0] in ("IV", "IX")]
PRINTED = [c for c in OWN if c in load().claims]


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.main, list(words))
    return done.exit_code, done.stdout, done.stderr


def work(algorithm: str, stage: str | None = None, **options: object) -> Max:
    return stage_work(StageQuestion(algorithm, stage=stage, options=Options(**options))).value  # type: ignore[arg-type]


def written(text: str) -> Max:
    """A formula in named costs, by hand."""
    return Max.of(single_form(named_costs(with_m(parse_text(text)))))


# -- graphs ------------------------------------------------------------------------------------------------------------
RUNS = {
    "PPO": {"actor": "generate forward backward", "reference": "forward", "reward": "forward",
            "critic": "forward forward backward"},
    "GRPO": {"actor": "generate forward backward", "reference": "forward", "reward": "forward"},
    "DPO": {"actor": "forward backward", "reference": "forward"},
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_an_algorithm_runs_each_model_as_often_as_its_method_says(name) -> None:
    found: dict[str, list[str]] = {}
    for node in stage_graph(name, Options()).invocations:
        found.setdefault(node.role, []).append(node.run.value)
    assert {role: " ".join(runs) for role, runs in found.items()} == RUNS[name]
    assert set(RUNS) == set(algorithms())


def test_glue_stands_between_the_passes() -> None:
    graph = stage_graph("GRPO", Options())
    assert graph.by_name["group_normalisation"].inputs == ("score_reward",)
    assert graph.by_name["kl"].inputs == ("forward_actor", "reference_log_probabilities")
    assert set(graph.by_name["loss_actor"].inputs) >= {"kl", "group_normalisation", "log_probabilities"}
    assert stage_graph("PPO", Options()).by_name["kl"].stage == ASSESSMENT


@pytest.mark.parametrize(
    ("options", "stage", "expected"),
    [
        ({}, GENERATION, "B*K*C_gen_roll(pi)"),
        ({"share_prefill": True}, GENERATION, "B*C_pf_roll(pi) + B*K*C_dec_roll(pi)"),
        ({}, ASSESSMENT, "B*K*(S + T)*(C_f_tok(ref) + C_f_tok(R) + C_f_tok(V))"),
        ({"log_probabilities_own_pass": True}, ASSESSMENT,
         "B*K*(S + T)*(C_f_tok(pi) + C_f_tok(ref) + C_f_tok(R) + C_f_tok(V))"),
        ({"sequential_reward": True}, ASSESSMENT, "B*K*((S + T)*(C_f_tok(ref) + C_f_tok(V)) + C_gen_roll(R))"),
        ({"epochs": size("n_ep"), "updates": size("n_up")}, TRAINING,
         "n_ep*B*K*(S + T)*(C_f_tok(pi) + C_b_tok(pi) + C_f_tok(V) + C_b_tok(V))"),
    ],
)  # fmt: skip
def test_options_change_the_work_of_their_stage(options, stage, expected) -> None:
    assert work("PPO", stage, **options) == written(expected)


def test_updates_deepen_training_by_their_product_and_lighten_its_memory() -> None:
    q = StageQuestion("GRPO", stage=TRAINING, options=Options(epochs=size("n_ep"), updates=size("n_up")))
    assert stage_depth(q).value == written("n_ep*n_up*(D_f(pi) + D_b(pi))")
    assert stage_memory(q).value == written("4*params(pi) + B*K*(S + T)*M_Act(pi)/n_up")


def test_algorithms_differ_and_a_shared_critic_is_read_off_on_the_way() -> None:
    assert len({work(name) for name in RUNS}) == 3
    assert work("DPO", GENERATION) == written("0")
    assert work("DPO", ASSESSMENT) == written("2*B_pairs*(S + T)*C_f_tok(ref)")
    shared = StageQuestion("PPO", placement("shared-actor-critic"), ASSESSMENT, Options(values_own_pass=False))
    assert stage_work(shared).value == written("B*K*(S + T)*(C_f_tok(ref) + C_f_tok(R))")


def test_advantages_are_a_chain_over_the_response_where_glue_counts() -> None:
    q = StageQuestion("PPO", stage=ASSESSMENT, glue=True)
    assert stage_depth(q).value == written("D_f(ref) + D_f(R) + D_f(V) + T")
    assert stage_depth(replace(q, algorithm="GRPO")).value == written("D_f(ref) + D_f(R)")


def node(name: str, stage: str = ASSESSMENT, role: str = "actor", run: Pass = Pass.FORWARD, *inputs: str) -> Invocation:
    return Invocation(name, stage, role, run, (PROMPTS,), TOKENS, inputs)


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ((node("a"), node("a")), "two nodes are called 'a'"),
        ((node("a", ASSESSMENT, "actor", Pass.FORWARD, "b"), node("b")), "which no earlier node computes"),
        ((node("a", "Sleep"),), "unknown stage 'Sleep'"),
        ((node("a", role="judge"),), "unknown role 'judge'"),
        ((node("a", TRAINING), Glue("b", ASSESSMENT, ("a",))), "of a later stage"),
        ((node("a"), node("b", TRAINING, "critic", Pass.BACKWARD, "a")), "reads no forward pass of the critic"),
    ],
)  # fmt: skip
def test_a_graph_without_meaning_is_refused(nodes, says) -> None:
    with pytest.raises(GraphError, match=says):
        StageGraph("bad", nodes)


def test_other_refusals() -> None:
    with pytest.raises(GraphError, match="the reward is frozen"):
        Composer("bad", (PROMPTS,), Options()).update({"reward": ()})
    with pytest.raises(GraphError, match="no algorithm is called 'SFT'"):
        stage_graph("SFT", Options())
    with pytest.raises(GraphError, match="is not derived from an operation graph"):
        Blocks(frozenset({"C_magic"}))
    with pytest.raises(GraphError, match="no residency"):
        StageQuestion(residency="never")


# -- cells -------------------------------------------------------------------------------------------------------------
def test_every_cell_of_both_tables_is_there() -> None:
    measures = ("Work", "Depth", "Memory")
    four = [f"IV/{a}/{m}/{s}" for a in ("PPO", "GRPO", "DPO") for m in measures for s in STAGES]
    nine = [f"IX/{p}/{s}/{m}" for p in cells.PLACEMENTS for s in STAGES for m in measures]
    assert [*four, *nine] == OWN
    assert {p.heading for p in placements().values()} == set(cells.PLACEMENTS)
    assert len(PRINTED) == 28


def test_verdicts_of_the_printed_cells() -> None:
    found = {c: check(c).verdict for c in PRINTED}
    odd = {c: v for c, v in found.items() if v not in ("EQUAL", "TIGHT")}
    assert odd == {
        "IX/Baseline/Training/Memory": "CONDITIONAL",
        "IX/AC shared/Training/Memory": "CONDITIONAL",
    }


def test_a_pass_that_the_stage_does_not_run_is_named() -> None:
    cell = check("IV/DPO/Work/Assessment")
    assert cell.verdict == "TIGHT"  # a reference is built like the policy, so counting both changes a constant
    assert "counts C_f_tok(pi), which no invocation of this stage has" in cell.detail
    assert "forward_actor" in cell.detail


def test_a_sum_of_activations_needs_a_joint_update_which_sequential_execution_rules_out() -> None:
    cell = check("IX/Baseline/Training/Memory")
    assert cell.regime == "layer-boundary and joint-update"
    assert "Max" in cell.derived
    assert {"joint-update", "layer-boundary", "stage-resident"} <= set(cell.implied)
    assert check("IX/Baseline/Training/Memory", ["joint-update"]).verdict == "REFUTED"


@pytest.mark.parametrize("cell", OWN)
def test_what_a_cell_carries_is_checked(cell) -> None:
    check_cell(as_json(check(cell).json()))


@pytest.mark.parametrize(
    ("dropped", "cell", "verdict"),
    [
        ("sequential-execution", "IX/Baseline/Assessment/Depth", "REFUTED"),
        ("sequential-execution", "IX/Baseline/Assessment/Memory", "REFUTED"),
        ("stage-resident", "IX/Baseline/Generation/Memory", "REFUTED"),
        ("log-probabilities-on-the-fly", "IX/Baseline/Assessment/Work", "REFUTED"),
        ("values-own-pass", "IX/AC shared/Assessment/Work", "REFUTED"),
        ("glue-free", "IX/Baseline/Assessment/Depth", "REFUTED"),
        ("reference-as-policy", "IV/DPO/Work/Assessment", "UPPER"),
        ("one-epoch", "IV/GRPO/Work/Training", "REFUTED"),
        ("outcome-reward", "IV/GRPO/Work/Assessment", "CONDITIONAL"),
        ("prefill-per-rollout", "IX/Baseline/Generation/Work", "REFUTED"),
        ("prefill-per-rollout", "IX/Baseline/Generation/Depth", "EQUAL"),
        ("no-checkpointing", "IX/AC shared/Training/Memory", "EQUAL"),
    ],
)
def test_what_rests_on_an_assumption(dropped, cell, verdict) -> None:
    found = check(cell, [dropped])
    check_cell(as_json(found.json()))
    assert found.verdict == verdict


INFERENCE = "params({0}) + B*K*(S + T)*M_Inf({0})"
UPDATE = "4*params({0}) + B*K*(S + T)*{1}"
KEPT = {m: f"L_{m}*(8*d_{m} + 2*d_ff_{m} + 4 + (S + T)*h_{m})" for m in ("pi", "V")}
ASSESSED, TRAINED_TOGETHER = "params(ref) + params(R) + params(V)", "4*(params(pi) + params(V))"
#: depth and memory of rows that our copy does not print, written down by hand: alternatives of a maximum
BY_HAND: dict[str, list[str]] = {
    "Disaggregated/Assessment/Depth": ["D_f(ref)", "D_f(R)", "D_f(V)"],
    "Disaggregated/Training/Depth": ["D_f(pi) + D_b(pi)", "D_f(V) + D_b(V)"],
    "Disaggregated/Assessment/Memory": [INFERENCE.format(m) for m in ("ref", "R", "V")],
    "Disaggregated/Training/Memory": [UPDATE.format(m, KEPT[m]) for m in KEPT],
    "Hybrid/Generation/Depth": ["D_gen_TP(pi)"],
    "Hybrid/Assessment/Depth": ["D_f_TP(ref) + D_f_TP(R) + D_f_TP(V)"],
    "Hybrid/Training/Depth": ["D_f(pi) + D_b(pi) + D_f(V) + D_b(V)"],
    "Hybrid/Assessment/Memory": [f"{ASSESSED} + B*K*(S + T)*M_Inf({m})" for m in ("ref", "R", "V")],
    "Stage fusion/Assessment/Depth": ["D_f(ref)", "D_f(R)", "D_f(V)"],
    "Stage fusion/Generation/Memory": [
        f"params(pi) + {ASSESSED} + B*K*M_KV",
        f"params(pi) + {ASSESSED} + B*K*(S + T)*(M_Inf(ref) + M_Inf(R) + M_Inf(V))",
    ],
    "Stage fusion/Training/Memory": [f"{TRAINED_TOGETHER} + B*K*(S + T)*({KEPT['pi']} + {KEPT['V']})"],
    "Asynchronous/Generation/Memory": ["M_sh(pi) + M_sh(V) + B*K*M_KV"],
    "Asynchronous/Assessment/Depth": ["D_f(ref) + D_f(R) + D_f(V)"],
    "Hybrid/Training/Memory": [f"{TRAINED_TOGETHER} + B*K*(S + T)*{KEPT[m]}" for m in KEPT],
    "Asynchronous/Training/Memory": [f"{TRAINED_TOGETHER} + B*K*(S + T)*{KEPT[m]}" for m in KEPT],
    "Combined/Generation/Memory": ["M_sh(pi) + B*K*M_KV"],
    "Combined/Assessment/Depth": ["D_f_TP(ref)", "D_f_TP(R)", "D_f_TP(V)"],
    "Combined/Assessment/Memory": [
        *(INFERENCE.format(m) for m in ("ref", "R")), "M_sh(V) + B*K*(S + T)*M_Inf(V)"
    ],
    "Combined/Training/Memory": [UPDATE.format(m, KEPT[m]) for m in KEPT],
}  # fmt: skip


#: memory of PPO over all groups, each model on its own
PPO_MEMORY = {
    "Generation": "params(pi) + B*K*M_KV",
    "Assessment": " + ".join(INFERENCE.format(m) for m in ("ref", "R", "V")),
    "Training": " + ".join(UPDATE.format(m, f"M_Act({m})") for m in ("pi", "V")),
}


@pytest.mark.parametrize("stage", PPO_MEMORY)
def test_memory_of_ppo_is_what_its_models_hold(stage) -> None:
    assert check(f"IV/PPO/Memory/{stage}").value == written(PPO_MEMORY[stage])


@pytest.mark.parametrize("cell", BY_HAND)
def test_rows_that_are_not_printed_follow_from_their_declaration(cell) -> None:
    found = check(f"IX/{cell}")
    assert found.verdict == "NOT_PRINTED"
    assert found.value == Max.of(*map(written, BY_HAND[cell]))


@pytest.mark.parametrize("scheme", ["Data", "Pipeline"])
def test_schemes_without_a_superscript_leave_the_global_depth_whole(scheme) -> None:
    alone = training_depth(Question(blocks_only=True, collectives=True))
    assert training_depth(Question(scheme=scheme, blocks_only=True, collectives=True, over_all_ranks=True)).value == (
        alone.value
    )


# -- expanded, presets, budgets ----------------------------------------------------------------------------------------
def test_expanded_costs_are_those_of_the_operation_graph() -> None:
    blocks = Blocks(frozenset(EXPANSIONS))
    q = StageQuestion("GRPO", stage=TRAINING, blocks=blocks)
    per_token = "2*L_pi*(4*d_pi**2 + 2*d_pi*d_ff_pi + m*d_pi) + 2*V*d_pi"
    assert stage_work(q).value == written(f"3*B*K*m*({per_token})")
    assert "log(K)" in stage_depth(q).value.text  # gradients are summed over all rollouts
    assert not any("(pi)" in s for f in stage_memory(q).value.members for s in f.symbols)


def test_a_cell_carries_its_cost_in_derived_building_blocks_too() -> None:
    expanded = check("IV/DPO/Work/Assessment").expanded
    assert expanded is not None
    per_token = "2*L_pi*(4*d_pi**2 + 2*d_pi*d_ff_pi + m*d_pi) + 2*V*d_pi"
    assert written(expanded) == written(f"2*B_pairs*m*({per_token})")
    model = "2*L_{0}*(4*d_{0}**2 + 2*d_{0}*d_ff_{0} + m*d_{0})"
    assessed = " + ".join(model.format(m) for m in ("pi", "R", "SH"))
    heads = "2*V*d_pi + 2*d_R/m + 2*V*d_SH + 2*d_SH"  # the shared model has a head for tokens and one for values
    shared = check("IX/AC shared/Assessment/Work").expanded
    assert shared is not None
    assert written(shared) == written(f"B*K*m*({assessed} + {heads})")
    assert check("III/C_b").expanded is None


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_prints_its_row(name) -> None:
    code, out, _ = run("stage", "--preset", name, "--json")
    data = json.loads(out)
    assert code == 0
    assert data["placement"] == name
    assert data["source"]
    assert [row["stage"] for row in data["stages"]] == list(STAGES)


def test_presets_differ_where_their_frameworks_do() -> None:
    found = {}
    for p in PRESETS.values():
        q = StageQuestion("PPO", p.placement, options=p.options)
        found[p.name] = (stage_work(q).value, period(q).value, stage_memory(q).value)
    assert found["deepspeed-chat"] == found["verl"]  # the same to this model of costs: both reshard one device group
    assert len(set(found.values())) == len(found) - 1


def test_the_command_line_shows_stages_and_placements() -> None:
    listed = json.loads(run("placements", "--json")[1])["placements"]
    assert {p["name"] for p in listed} == set(placements())
    assert all(p["mapping"][TRAINING]["actor"] for p in listed)
    text = run("placements")[1]
    assert all(name in text for name in (*placements(), *PRESETS))
    _, out, _ = run("stage", "--placement", "stage-fusion", "--waves", "3", "--expand", "--option", "epochs")
    assert "In 3 waves" in out
    assert "n_ep" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["stage", "--placement", "nowhere"], "no placement is called 'nowhere'"),
        (["stage", "--preset", "nobody"], "no preset is called 'nobody'"),
        (["stage", "--placement", "baseline", "--preset", "trl"], "give one"),
        (["stage", "--staleness", "1"], "does not overlap iterations"),
        (["stage", "--option", "luck"], "no option is called 'luck'"),
        (["split", "--algorithm", "dpo"], "samples no rollouts"),
        (["split", "--budget", "10"], "no value for C_b_tok(V)"),
        (
            ["split", "--budget", "10", "--set", "S"],
            "a size is a positive integer; write a whole number from 1, such as S=8",
        ),
        (["split", "--budget", "10", "--set", "S=-1"], "a size is a positive integer"),
        (["split", "--budget", "10", "--set", "m=5"], "m is S+T here; give S and T"),
        (["split", "--budget", "10", "--over", "T=1,2", "--set", "T=3"], "T is set, and varied or solved for"),
        (["split", "--budget", "ten"], "'ten' is no positive whole number"),
        (["stage", "--algorithm", "sft"], "no algorithm is called 'sft'"),
        (["stage", "--algorithm", "dpo", "--option", "shared-prefill"], "changes nothing of dpo here; leave it out"),
        (["stage", "--algorithm", "grpo", "--placement", "shared-actor-critic"], "grpo has no critic"),
        (["stage", "--algorithm", "dpo", "--waves", "2"], "DPO generates nothing"),
        (["stage", "--placement", "combined", "--waves", "2"], "trains while it samples"),
        (["split", "--budget", "10", "--set", "luck=1"], "no size is called 'luck'"),
        (["split", "--budget", "10", "--set", "S=1,2"], "one value is needed"),
    ],
)
def test_bad_input_is_one_sentence(words, says) -> None:
    code, out, err = run(*words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert says in err


def test_cost_is_linear_in_prompts_and_rollouts_unless_they_share_the_prefill() -> None:
    for options, prompt in ((Options(), "0"), (Options(share_prefill=True), "C_pf_roll(pi)")):
        found = split(StageQuestion("GRPO", options=options))
        assert Max.of(found.per_prompt) == written(prompt)
        assert not {"B", "K"} & (found.per_prompt.symbols | found.per_rollout.symbols)
        whole = single_form(parse_text("B")) * (found.per_prompt + single_form(parse_text("K")) * found.per_rollout)
        assert found.total == whole


def of_a_rollout(prompt: int, response: int) -> int:
    """GRPO by hand; every size is 4, the vocabulary 9. Prompts and passes are counted half, steps one by one."""
    token, logits, whole = 4 * 2 * (4 * 16 + 2 * 16), 2 * 9 * 4, prompt + response

    def half(m: int) -> int:
        return m * token + 4 * 2 * m * m * 4

    steps = sum(token + 4 * 4 * (prompt + t) * 4 + logits for t in range(1, response))
    generated, scored = half(prompt) + logits + steps, half(whole) + whole * logits
    rewarded = half(whole) + 2 * 4
    return generated + scored + rewarded + 3 * scored


def test_a_size_that_varies_has_everywhere_the_value_of_its_row() -> None:
    """A response's length is in the work per token, in attention and in the number of decode steps."""
    sizes = [f"--set={n}_{m}=4" for n in ("L", "d", "h", "d_ff") for m in ("pi", "R")]
    words = ["split", "--algorithm", "grpo", "--expand", "--budget", "1e15", "--json", "--set=V=9", "--set=S=3", *sizes]
    varied = json.loads(run(*words, "--over", "T=2,5", "--set=K=8")[1])["points"]
    fixed = [json.loads(run(*words, "--over", "K=8", f"--set=T={t}")[1])["points"][0] for t in (2, 5)]
    assert [p["B"] for p in varied] == [p["B"] for p in fixed] == [10**15 // (8 * of_a_rollout(3, t)) for t in (2, 5)]


def test_an_iteration_in_waves_ends_with_its_training() -> None:
    found = json.loads(run("stage", "--placement", "stage-fusion", "--algorithm", "grpo", "--waves=3", "--json")[1])
    ends = [f"{a}*D_gen(pi) + {b}*D_f({m})" for a, b in ((3, 1), (1, 3)) for m in ("ref", "R")]
    whole = [written(f"{end} + D_f(pi) + D_b(pi)") for end in ends]
    assert to_form(named_costs(parse_text(found["waves"]["iteration"]))) == Max.of(*whole)


def test_points_of_equal_compute_use_the_budget_up() -> None:
    cost = split(StageQuestion("GRPO", options=Options(share_prefill=True, epochs=size("n_ep")))).total
    given = {s: 3 for s in cost.symbols if "(" in s} | {"m": 7}
    for over, target, rest in (("K", "B", {"n_ep": 2}), ("n_ep", "K", {"B": 4}), ("B", "n_ep", {"K": 2})):
        points = iso_compute(cost, 100_000, (over, (1, 2, 5)), target, {**given, **rest})
        assert len(points) == 3
        for point in points:
            assert cost.evaluate({**given, **rest, **point}) <= 100_000
            assert cost.evaluate({**given, **rest, **point, target: point[target] + 1}) > 100_000
    assert iso_compute(cost, 1, ("K", (1,)), "B", {**given, "n_ep": 1}) == []
