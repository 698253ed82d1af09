"""`derive evaluate`: numbers against counts by hand, laws over degrees, published parameter counts, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.architecture_table import table
from derive.cli import main
from derive.config import SHIPPED, load, shipped
from derive.costs.model import PAPER
from derive.evaluate import Setting
from derive.generation import generation_work
from derive.measure import Question
from derive.memory import Widths
from derive.options import parse_amount
from derive.rank import alike
from graphs.architectures import Config, architectures, model_of
from graphs.models.transformer import Transformer
from graphs.transforms.recompute import Recompute

KNOWN = {a.name: a for a in architectures()}


def tiny(name: str, **changes: object) -> Transformer:
    return model_of(Config({**KNOWN[name].tiny, **changes}, name))


def asked(*words: str) -> Any:
    result = CliRunner().invoke(main, ["evaluate", *words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


# -- counts by hand ---------------------------------------------------------------------------------------------------
PUBLISHED = {
    "deepseek-v3": 671_026_419_200,  # 58 x 256 of them the biases that balance the choice of experts
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "gpt2": 124_439_808,
    "llama-2-7b": 6_738_415_616,
    "llama-3-70b": 70_553_706_496,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "phi-3-mini-4k": 3_821_079_552,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-4b": 4_022_468_096,
    "starcoder2-3b": 3_030_371_328,
}


@pytest.mark.parametrize("name", shipped())
def test_a_public_model_has_as_many_parameters_as_its_files_hold(name: str) -> None:
    assert Setting(model_of(load(name)), S=4, T=4).parameters()["total"].rank == PUBLISHED[name]


def generated_by_hand(keys: dict[str, Any], S: int, T: int, B: int) -> int:
    """Token by token: 2 FLOPs per parameter that it meets, 4 per pair, head and channel; T rows of logits."""
    d, h, h_kv, w = keys["hidden_size"], keys["num_attention_heads"], keys["num_key_value_heads"], keys["head_dim"]
    layer = d * w * (2 * h + 2 * h_kv) + 3 * d * keys["intermediate_size"]
    out = 0
    for position in range(S + T - 1):
        seen = min(position + 1, keys["sliding_window"] or position + 1)
        out += keys["num_hidden_layers"] * (2 * layer + 4 * h * w * seen)
    return B * (out + T * 2 * d * keys["vocab_size"])


@settings(max_examples=20)
@given(S=st.integers(1, 9), T=st.integers(1, 9), B=st.integers(1, 3), window=st.none() | st.integers(1, 12))
def test_generating_is_what_its_tokens_do_one_after_the_other(S: int, T: int, B: int, window: int | None) -> None:
    keys = {**KNOWN["mistral"].tiny, "head_dim": 6, "sliding_window": window}
    found = Setting(model_of(Config(keys, "tiny")), B=B, S=S, T=T).work()["generation"]
    assert found.rank == found.world == generated_by_hand(keys, S, T, B)


@pytest.mark.parametrize("name", KNOWN)
def test_generating_nothing_but_the_first_token_is_a_forward_pass_with_one_row_of_logits(name: str) -> None:
    model = tiny(name)
    for causal in ("exact", "half", "dense"):
        one = Setting(model, B=2, S=4, T=1, causal=causal)
        before = Setting(model, B=2, S=3, T=1, causal=causal)  # a forward pass over the same 4 tokens
        head = 2 * 2 * int(model.shape.d) * int(model.shape.V)
        assert one.work()["generation"].rank == before.work()["forward"].rank - 3 * head


def test_absorbed_decoding_matches_and_mixes_latents() -> None:
    """By hand, for one layer: a step projects one token, and meets each of the latents before it in every head."""
    model = tiny("deepseek", num_hidden_layers=1, first_k_dense_replace=1)
    S, T, d, h, k, r, v, latent, q, f = 3, 4, 8, 2, 3, 2, 4, 6, 5, 6
    token = d * q + q * h * (k + r) + d * (latent + r) + h * v * d + 3 * d * f
    both = 2 * h * k * latent + 2 * h * latent * v  # the queries into the latent, what is mixed out of it
    prefill = S * (2 * token + both) + S * (S + 1) // 2 * 2 * h * (k + r + v)
    steps = sum(2 * token + both + (S + t) * 2 * h * (latent + r + latent) for t in range(1, T))
    logits = T * 2 * d * 7
    assert Setting(model, S=S, T=T).work()["generation"].rank == prefill + steps + logits


def test_the_cache_holds_no_more_than_a_window_in_a_windowed_layer() -> None:
    model = tiny("gpt-oss")  # 4 layers, every other one with a window of 2; 2 heads of 4 channels, keys and values
    found = Setting(model, B=3, S=5, T=4).cache()
    assert found["per_token"].rank == 4 * 2 * 2 * 4
    assert found["all"].rank == 3 * (2 * 2 + 2 * 8) * 2 * 2 * 4
    latent = Setting(tiny("deepseek"), S=5, T=4).cache()
    assert latent["per_token"].rank == 3 * (6 + 2)


def test_memory_is_that_of_the_parameters_and_of_what_the_backward_pass_reads() -> None:
    setting = Setting(tiny("llama"), B=2, S=2, T=3)
    n = setting.parameters()["total"].rank
    found, in_bytes = setting.memory(), setting.memory(Widths(weights=2, gradients=4, optimizer=4))
    assert [found[g].rank for g in ("weights", "gradients", "optimizer")] == [n, n, 2 * n]
    assert [in_bytes[g].rank for g in ("weights", "gradients", "optimizer")] == [2 * n, 4 * n, 12 * n]
    b, m, d, h, h_kv, k, f, v, layers = 2, 5, 8, 4, 2, 2, 6, 7, 2
    layer = b * m * (2 * (2 * d + 1) + 2 * h * k + 2 * h_kv * k + 4 * f) + b * h * m * m  # x, norm, r; q, mix; k, v
    assert found["activations"].rank == layers * layer + b * m * (2 * d + 1 + v)


def test_parameters_at_work_for_a_token_are_those_of_its_experts_and_the_products_leave_norms_and_tables_out() -> None:
    d, h, h_kv, width, f, v, layers, experts, chosen = 8, 4, 2, 2, 6, 7, 2, 4, 2
    attention, router, expert = d * width * (2 * h + 2 * h_kv), d * experts, 3 * d * f
    norms, ends = layers * 2 * d + d, 2 * v * d
    found = {name: n.rank for name, n in Setting(tiny("mixtral"), S=2, T=2).parameters().items()}
    assert found["total"] == layers * (attention + router + experts * expert) + norms + ends == 1752
    assert found["active"] == layers * (attention + router + chosen * expert) + norms + ends == 1176
    assert found["matmul"] == layers * (attention + router + chosen * expert) + v * d == 1080


def test_modules_that_predict_further_tokens_take_no_part_in_generation() -> None:
    model = tiny("deepseek")
    plain, ahead = (Setting(m, B=2, S=4, T=3) for m in (model, model.predicting()))
    assert ahead.work()["generation"] == plain.work()["generation"]
    assert ahead.depth()["generation"] == plain.depth()["generation"]
    assert ahead.cache() == plain.cache()
    assert ahead.work()["forward"].rank > plain.work()["forward"].rank
    assert ahead.parameters()["total"].rank > plain.parameters()["total"].rank


@pytest.mark.parametrize("B", [1, 3])
def test_computing_a_layer_again_is_its_forward_pass_without_the_last_product(B: int) -> None:
    """By hand: what is done again of a dense layer are 2 B m d d_ff FLOPs less than what its forward pass does."""
    m, d, h, h_kv, width, f, layers = 6, 8, 4, 2, 2, 6, 2
    projections, gate_up_down = 2 * B * m * d * width * (2 * h + 2 * h_kv), 3 * 2 * B * m * d * f
    layer = projections + gate_up_down + B * m * (m + 1) // 2 * 4 * h * width
    plain, again = (
        Setting(tiny("llama"), B=B, S=4, T=2, recompute=r).work() for r in (Recompute.NONE, Recompute.LAYER_BOUNDARY)
    )
    assert plain["forward"].rank == again["forward"].rank == layers * layer + 2 * B * m * d * 7
    assert again["backward"].rank - plain["backward"].rank == layers * (layer - 2 * B * m * d * f)


@pytest.mark.parametrize(("name", "spared"), [("mixtral", 0), ("deepseek", 8 * 6 + 2 * 8 * 4)])
def test_routed_experts_are_computed_again_as_a_whole_and_shared_ones_without_the_last_product(
    name: str, spared: int
) -> None:
    """The gates read what routed experts give; DeepSeek has a dense layer of 6 channels, and two shared ones of 4."""
    B, m, d = 2, 6, 8
    plain, again = (
        Setting(tiny(name), B=B, S=4, T=2, recompute=r).work() for r in (Recompute.NONE, Recompute.LAYER_BOUNDARY)
    )
    layers = plain["forward"].rank - 2 * B * m * d * 7
    assert again["backward"].rank - plain["backward"].rank == layers - 2 * B * m * spared


# -- degrees ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_ranks_that_share_sequences_share_the_work_and_keep_all_parameters(name: str) -> None:
    alone, shared = (Setting(tiny(name), B=4, S=3, T=3, degrees=d) for d in ({}, {"P_d": 2}))
    for key, amount in alone.work().items():
        assert (2 * shared.work()[key].rank, shared.work()[key].world) == (amount.rank, amount.rank)
    assert shared.parameters() == alone.parameters()
    assert shared.memory()["weights"].world == 2 * alone.memory()["weights"].world
    assert shared.cache()["per_token"] == alone.cache()["per_token"]


def test_ranks_that_share_heads_and_channels_share_products_and_their_parameters() -> None:
    model = tiny("llama", vocab_size=8)
    alone, shared = (Setting(model, B=1, S=3, T=3, degrees=d) for d in ({}, {"P_t": 2}))
    for key, amount in alone.work().items():
        assert (2 * shared.work()[key].rank, shared.work()[key].world) == (amount.rank, amount.rank)
    assert 2 * shared.parameters()["matmul"].rank == alone.parameters()["matmul"].rank
    assert 2 * shared.cache()["per_token"].rank == shared.cache()["per_token"].world
    assert shared.depth()["forward"].rank < shared.depth()["forward"].world == alone.depth()["forward"].rank


def test_stages_share_layers_and_the_last_one_reads_the_logits() -> None:
    alone, shared = (Setting(tiny("llama"), S=3, T=3, degrees=d) for d in ({}, {"P_p": 2}))
    work, split = alone.work()["forward"].rank, shared.work()["forward"]
    head = 2 * 6 * 8 * 7
    assert (split.rank, split.world) == ((work - head) // 2 + head, work)


def test_a_step_that_computes_again_does_more_and_keeps_less() -> None:
    plain, again = (Setting(tiny("llama"), S=3, T=3, recompute=r) for r in (Recompute.NONE, Recompute.LAYER_BOUNDARY))
    assert again.work()["backward"].rank > plain.work()["backward"].rank
    assert again.memory()["activations"].rank < plain.memory()["activations"].rank


# -- the command ------------------------------------------------------------------------------------------------------
def test_the_command_prints_the_keys_of_the_contract_with_whole_numbers() -> None:
    data = asked("--config", "llama-3-8b", "--set", "S=128", "--set", "T=64", "--degree", "P_t=8")
    keys = {
        "parameters": ["total", "active", "matmul", "trained"],
        "work": ["forward", "backward", "training_step", "generation"],
        "depth": ["forward", "training_step", "generation"],
        "memory": ["weights", "gradients", "optimizer", "activations"],
        "memory_bytes": ["weights", "gradients", "optimizer", "activations"],
        "kv_cache": ["elements_per_token", "bytes_per_token", "elements", "bytes"],
    }
    for view in (data, data["per_rank"], data["global"]):
        assert {name: list(view[name]) for name in keys} == keys
        assert all(type(n) is int for name in keys for n in view[name].values())
    assert data["parameters"] == data["global"]["parameters"]
    assert (data["conventions"]["causal"], data["conventions"]["dot_product"]) == ("exact", "2k")
    assert data["work"]["training_step"] == data["work"]["forward"] + data["work"]["backward"]


def test_whether_a_step_fits_is_said_of_the_bytes_of_a_rank() -> None:
    words = ("--config", "gpt2", "--set", "S=64", "--set", "T=64")
    need = asked(*words, "--device-memory", "1GiB")["device_memory"]["needed"]
    for limit, fits in ((need, True), (need - 1, False)):
        found = asked(*words, "--device-memory", str(limit))["device_memory"]
        assert found == {"bytes": limit, "needed": need, "fits": fits}
    assert (parse_amount("80GiB"), parse_amount("80GB"), parse_amount("7")) == (80 * 2**30, 80 * 10**9, 7)


def test_bytes_are_those_of_the_widths_of_each_role() -> None:
    words = ("--config", "gpt2", "--set", "S=8", "--set", "T=8", "--dtype-bytes", "4", "--width", "gradients=2")
    data = asked(*words, "--cache-bytes", "1")
    n = data["parameters"]["total"]
    assert [data["memory_bytes"][g] for g in ("weights", "gradients", "optimizer")] == [4 * n, 2 * n, 3 * 4 * n]
    assert data["kv_cache"]["bytes_per_token"] == data["kv_cache"]["elements_per_token"]
    assert asked(*words)["kv_cache"]["bytes_per_token"] == 4 * data["kv_cache"]["elements_per_token"]


def test_generation_is_left_out_where_positions_are_cut() -> None:
    """So is the whole cache: a rank would hold keys of positions that nothing says how decoding shares out."""
    data = asked("--config", "llama-3-8b", "--degree", "P_c=4")
    for view in (data, data["per_rank"], data["global"]):
        assert "generation" not in view["work"] | view["depth"]
        assert list(view["kv_cache"]) == ["elements_per_token", "bytes_per_token"]
    text = CliRunner().invoke(main, ["evaluate", "--config", "llama-3-8b", "--degree", "P_c=4"])
    assert text.exit_code == 0


def test_the_table_shows_the_numbers_of_the_object() -> None:
    words = ["evaluate", "--config", "mixtral-8x7b", "--degree", "P_e=4"]
    text = CliRunner().invoke(main, words).output
    for name, group in asked(*words[1:])["per_rank"].items():
        assert all(f"{n:,}" in text for n in group.values()), name


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("llama-3-8b", "--degree", "P_t=16"),
            "P_t=16 does not divide 8, the number of heads (of keys and ",
        ),
        (
            ("llama-3-8b", "--degree", "P_d=3"),
            "P_d=3 does not divide 1, the number of sequences of the batch (B",
        ),
        (("llama-3-8b", "--degree", "P_p=3"), "P_p=3 does not divide 32, the number of layers of llama; change one"),
        (("mixtral-8x7b", "--degree", "P_e=3"), "P_e=3 does not divide 8, the number of experts; change one"),
        (("llama-3-8b", "--degree", "P_e=2"), "llama has nothing that is cut over P_e; leave that degree out"),
        (
            ("gpt-oss-20b", "--degree", "P_c=2"),
            "gpt_oss has sliding windows, of which the rank with most pairs is ",
        ),
        (
            ("llama-3-8b", "--set", f"S={'9' * 5000}"),
            "'99999999999999999999999999999999999999999999999999999999...: a num",
        ),
        (("",), "the name of the configuration is empty; name a config.json"),
        (("llama-3-8b", "--set", "m=2"), "m follows from the rest here; give B, S, T alone"),
        (("gpt2",), "gpt2 has learned positions for 1024 tokens, not for S+T = 2048; make S or T smaller"),
        (("llama-3-8b", "--device-memory", "80G"), "'80G': an amount of memory is a whole number of bytes, or of kB, "),
        (("nowhere.json",), "nowhere.json: No such file or directory"),
    ],
)
def test_what_cannot_be_evaluated_says_why(words: tuple[str, ...], sentence: str) -> None:
    result = CliRunner().invoke(main, ["evaluate", "--config", *words])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"derive: {sentence}")


def test_every_architecture_and_public_configuration_is_listed() -> None:
    data = json.loads(CliRunner().invoke(main, ["architectures", "--json"]).output)
    assert [a["name"] for a in data["architectures"]] == list(KNOWN)
    assert data["configurations"] == sorted(p.stem for p in SHIPPED.iterdir())
    text = CliRunner().invoke(main, ["architectures"]).output
    assert all(t in text for a in KNOWN.values() for t in a.model_types)


def test_the_documentation_shows_the_status_of_every_architecture() -> None:
    text = Path(__file__).parents[2].joinpath("docs/architectures.md").read_text(encoding="utf-8")
    assert table() in text, "write the table of derive.architecture_table into docs/architectures.md"


@settings(max_examples=10)
@given(S=st.integers(1, 7), T=st.integers(2, 7), B=st.integers(1, 3), h=st.integers(1, 3))
def test_generating_costs_what_the_graph_of_every_step_costs(S: int, T: int, B: int, h: int) -> None:
    """A GPT-2 does the products of the canonical decoder, whose generation is a scan over its steps."""
    keys = {"n_embd": 2 * h, "n_head": h, "n_inner": 5, "n_layer": 3, "n_positions": 20, "vocab_size": 11}
    found = Setting(tiny("gpt2", **keys), B=B, S=S, T=T).work()["generation"].rank
    steps = generation_work(Question(model=replace(PAPER, causal="exact"))).value
    assert found == B * steps.evaluate({"S": S, "T": T, "d": 2 * h, "h": h, "d_ff": 5, "L": 3, "V": 11})


@settings(max_examples=5, deadline=None)
@given(S=st.integers(1, 6), T=st.integers(1, 6))
def test_generating_takes_as_long_as_its_steps_one_after_the_other(S: int, T: int) -> None:
    """By hand, for one layer of latent attention: prefill writes keys out, steps are absorbed."""
    model = tiny("deepseek", num_hidden_layers=1, first_k_dense_replace=1)

    def tree(n: int) -> int:
        return (n - 1).bit_length()

    # d 8, q 5 after a norm, head of 3 + 2 channels, latent 6, value 4 in 2 heads, f 6; norms are free
    queries = tree(8) + tree(5)  # as deep as latent and key: 3 + 3
    after = tree(2 * 4) + tree(8) + tree(6) + tree(8)  # out, gate or up, down, logits
    prefill = max(queries, tree(8) + tree(6)) + tree(3) + tree(S) + after
    steps = sum(queries + tree(3) + tree(6) + tree(S + t) + tree(6) + after for t in range(1, T))
    assert Setting(model, S=S, T=T).depth()["generation"].rank == prefill + steps


def test_lengths_of_one_height_of_a_tree_are_counted_together() -> None:
    for first, end in ((1, 1), (1, 2), (2, 20), (3, 9), (4, 6), (5, 9), (9, 40)):
        groups = list(alike(first, end))
        heights = [(m - 1).bit_length() for m, times in groups for _ in range(times)]
        assert heights == [(m - 1).bit_length() for m in range(first, end)]
        assert len(groups) == len(set(heights))


@pytest.mark.parametrize("name", ["mistral", "deepseek"])
def test_decode_steps_count_the_pairs_that_they_see_whatever_prefill_counts(name: str) -> None:
    found = {c: Setting(tiny(name), S=6, T=5, causal=c).work()["generation"].rank for c in ("exact", "half", "dense")}
    prefill = {c: Setting(tiny(name), S=5, T=1, causal=c).work()["forward"].rank for c in found}
    assert found["half"] - found["exact"] == prefill["half"] - prefill["exact"] < 0
    assert found["dense"] - found["exact"] == prefill["dense"] - prefill["exact"] > 0


@pytest.mark.parametrize("name", KNOWN)
def test_fused_attention_keeps_nothing_for_each_pair_of_positions(name: str) -> None:
    """What is kept grows linearly with the sequence under selective recomputation, and not without it."""
    model = tiny(name) if name != "gpt2" else tiny(name, n_positions=20)

    def bend(recompute: Recompute) -> int:
        kept = [Setting(model, S=m, T=2, recompute=recompute).memory()["activations"].rank for m in (4, 6, 8)]
        return kept[0] - 2 * kept[1] + kept[2]

    assert bend(Recompute.SELECTIVE) == 0 < bend(Recompute.NONE)
