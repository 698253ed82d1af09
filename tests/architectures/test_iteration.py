"""An iteration of post-training at numbers: against counts token by token."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from derive.cli import main
from derive.evaluate import Setting
from derive.iteration import Iteration
from graphs.architectures import Config, architectures, model_of
from graphs.errors import GraphError

LLAMA = next(a for a in architectures() if a.name == "llama")
MODEL = model_of(Config(LLAMA.tiny, "llama"))
S, T, B, K = 4, 3, 2, 5


def by_hand(tokens: int, before: int = 0, logits: int | None = None) -> int:
    """Products of tiny Llama over so many tokens behind others, token by token."""
    keys: dict[str, Any] = dict(LLAMA.tiny)
    d, h, f, v, layers = (keys[k] for k in (
        "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size", "num_hidden_layers"
    ))  # fmt: skip
    kv = keys.get("num_key_value_heads", h)
    products = 2 * d * d + 2 * d * (d // h) * kv + 3 * d * f
    work = sum(2 * layers * (products + 2 * d * (before + i + 1)) for i in range(tokens))
    return work + 2 * d * v * (tokens if logits is None else logits)


def test_work_of_an_iteration_is_that_of_its_passes_token_by_token() -> None:
    rollout = by_hand(S, logits=1) + sum(by_hand(1, S + t - 1) for t in range(1, T))
    forward = by_hand(S + T)
    grpo = Iteration(Setting(MODEL, B=B, S=S, T=T), "grpo", K).work()
    assert grpo["generation"] == B * K * rollout
    assert grpo["assessment"] == B * K * 2 * forward
    assert grpo["training"] == B * K * 3 * forward
    assert grpo["iteration"] == B * K * (rollout + 5 * forward)
    ppo = Iteration(Setting(MODEL, B=B, S=S, T=T), "ppo", K).work()
    assert ppo["iteration"] == B * K * (rollout + 9 * forward)
    dpo = Iteration(Setting(MODEL, B=B, S=S, T=T), "dpo").work()
    assert dpo == {"assessment": 2 * B * forward, "training": 6 * B * forward, "iteration": 8 * B * forward}


def test_an_iteration_is_as_deep_as_its_passes_one_after_the_other() -> None:
    setting = Setting(MODEL, B=B, S=S, T=T)
    found = {name: amount.world for name, amount in setting.depth().items()}
    depth = Iteration(setting, "ppo", K).depth()
    assert depth["generation"] == found["generation"]
    assert depth["assessment"] == 3 * found["forward"]
    assert depth["training"] == 2 * found["training_step"]
    assert depth["iteration"] == sum(depth[stage] for stage in ("generation", "assessment", "training"))


def test_ranks_together_do_the_same_work() -> None:
    alone, split = (Iteration(Setting(MODEL, B=B, S=S, T=T, degrees=d), "grpo", K).work() for d in ({}, {"P_d": 2}))
    assert alone == split


def test_the_command_prints_it_and_refuses_what_means_nothing() -> None:
    def run(*words: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(main, ["evaluate", "--config", "llama-3-8b", *words])
        return done.exit_code, done.stdout, done.stderr

    data = json.loads(run("--algorithm", "grpo", "--set", "K=8", "--json")[1])
    assert data["iteration"]["work"]["training"] == 8 * data["work"]["training_step"]
    assert "iteration" in data["conventions"]
    assert "an iteration of grpo, K=8" in run("--algorithm", "grpo", "--set", "K=8")[1]
    assert "iteration" not in json.loads(run("--json")[1])
    for words, says in ((["--set", "K=8"], "give B, S, T"), (["--algorithm", "sft"], "no algorithm is called 'sft'")):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert says in err
    deepseek = next(a for a in architectures() if a.name == "deepseek").example()
    with pytest.raises(GraphError, match="leave --multi-token out"):
        Iteration(Setting(deepseek.predicting(), B=B, S=S, T=T), "grpo")
    with pytest.raises(GraphError, match="leave P_c out"):
        Iteration(Setting(MODEL, B=B, S=S, T=4, degrees={"P_c": 2}), "grpo", K)
