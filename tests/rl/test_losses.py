"""The losses on given numbers: their values case by case, and gradients by formula and by differences."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.axes import Role
from graphs.execute import run
from graphs.ir import Builder, Graph
from graphs.ops.pointwise import Pointwise
from graphs.ops.reduction import Reduction
from graphs.rl import losses
from graphs.rl.passes import log_probabilities
from graphs.rl.settings import Settings
from graphs.sizes import Sizes
from graphs.transforms.backward import training
from tests.rl import direct

SIZES = Sizes.canonical()
N = {"B": 4, "S": 2, "T": 3, "m": 5, "V": 6}
TOKENS = slice(N["S"] - 1, N["m"] - 1)
LOSSES = {
    "PPO policy": losses.ppo_policy,
    "PPO value": losses.ppo_value,
    "GRPO policy": losses.grpo_policy,
    "DPO policy": losses.dpo_policy,
}


@cache
def trained(name: str) -> Graph:
    """The loss as a function of what the model says, which is a parameter here."""
    build = Builder(name)
    new = build.input("new", SIZES.tensor("b s", Role.PARAMETER))
    build.output("loss", LOSSES[name](build, new, SIZES, Settings()))
    return training(build.graph())


def drawn(seed: int) -> dict[str, np.ndarray]:
    """Log-probabilities and values far enough apart that every bound is met."""
    rng, shape = np.random.default_rng(seed), (N["B"], N["m"])
    response = np.zeros(shape)
    response[:, TOKENS] = 1
    data = {name: rng.normal(size=shape) * 0.3 for name in ("new", "old", "reference", "values", "returns")}
    return data | {"response": response, "advantages": rng.normal(size=shape)}


def given_to(name: str, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    mine = dict(data)
    if name == "GRPO policy":
        mine["advantages"] = data["advantages"][:, 0]
    return {n: mine[n] for n in trained(name).inputs}


def written(name: str, data: dict[str, np.ndarray], new: np.ndarray) -> float:
    old, ref, values, returns, adv = (
        data[n][:, TOKENS] for n in ("old", "reference", "values", "returns", "advantages")
    )
    new = new[:, TOKENS]
    if name == "PPO policy":
        return direct.ppo_policy_loss(new, old, adv)
    if name == "PPO value":
        return direct.ppo_value_loss(new, values, returns)
    if name == "GRPO policy":
        return direct.grpo_loss(new, old, data["advantages"][:, 0], ref)
    return direct.dpo_loss(new.sum(1), ref.sum(1))


@pytest.mark.parametrize("name", LOSSES)
@given(seed=st.integers(0, 999))
@settings(max_examples=10)
def test_a_loss_and_its_slopes_are_those_of_its_definition(name: str, seed: int) -> None:
    data = drawn(seed)
    got = run(trained(name), given_to(name, data), N)
    np.testing.assert_allclose(got["loss"], written(name, data, data["new"]), rtol=1e-10)
    slopes = direct.gradients(lambda w: written(name, data, w["new"]), {"new": data["new"]})["new"]
    np.testing.assert_allclose(got["grad:new"], slopes, rtol=1e-5, atol=1e-8)


def slope(name: str, data: dict[str, np.ndarray]) -> np.ndarray:
    return run(trained(name), given_to(name, data), N)["grad:new"][:, TOKENS]


@given(seed=st.integers(0, 999))
@settings(max_examples=10)
def test_beyond_its_bound_a_ratio_that_would_gain_pulls_no_further(seed: int) -> None:
    data = drawn(seed)
    ratio = np.exp(data["new"] - data["old"])[:, TOKENS]
    up = data["advantages"][:, TOKENS] > 0
    stopped = (up & (ratio > 1 + direct.CLIP)) | (~up & (ratio < 1 - direct.CLIP))
    assert stopped.any()
    np.testing.assert_array_equal(slope("PPO policy", data) == 0, stopped)


def test_at_the_first_step_the_surrogate_pulls_by_the_advantage_alone() -> None:
    """All ratios are one, where both sides of the bound agree: the plain policy gradient."""
    data = drawn(1)
    data["new"] = data["old"]
    share = N["B"] * N["T"]
    np.testing.assert_allclose(slope("PPO policy", data), -data["advantages"][:, TOKENS] / share, rtol=1e-12)


def test_the_divergence_of_grpo_pulls_towards_the_reference() -> None:
    """Its slope is 1 - q, q the reference's probability over the policy's."""
    data = drawn(2)
    data["advantages"] = np.zeros((N["B"], N["m"]))
    q = np.exp(data["reference"] - data["new"])[:, TOKENS]
    np.testing.assert_allclose(slope("GRPO policy", data), direct.KL * (1 - q) / (N["B"] * N["T"]), rtol=1e-10)


def test_a_pair_pulls_its_two_responses_apart_by_how_likely_the_wrong_order_is() -> None:
    data = drawn(3)
    gain = (data["new"] - data["reference"])[:, TOKENS].sum(1)
    wrong = 1 / (1 + np.exp(direct.BETA * (gain[0::2] - gain[1::2])))
    pull = direct.BETA * wrong / (N["B"] // 2)
    wanted = np.repeat(np.stack([-pull, pull], 1).ravel()[:, None], N["T"], 1)
    np.testing.assert_allclose(slope("DPO policy", data), wanted, rtol=1e-10)


def test_the_loss_of_a_pair_is_finite_however_wrong_its_order() -> None:
    data = drawn(4)
    data["new"] = np.where(np.arange(N["B"])[:, None] % 2 == 0, -1e5, 1e5) * np.ones((1, N["m"]))
    got = run(trained("DPO policy"), given_to("DPO policy", data), N)
    assert np.isfinite(got["loss"])
    assert got["loss"] > 1e4
    assert np.isfinite(got["grad:new"]).all()


def test_the_slope_of_a_log_probability_is_the_chosen_token_less_what_was_expected() -> None:
    rng = np.random.default_rng(5)
    build = Builder("log-probabilities")
    logits = build.input("logits", SIZES.tensor("b s v", Role.PARAMETER))
    found = log_probabilities(build, logits, SIZES)
    weight = build.input("weight", SIZES.tensor("b s", Role.INPUT))
    (weighted,) = build.add(Pointwise("multiply"), found, weight)
    build.output("loss", build.add(Reduction("sum", ("b", "s")), weighted)[0])
    build.output("log_probabilities", found)
    shape = (N["B"], N["m"])
    inputs = {"logits": rng.normal(size=(*shape, N["V"])), "targets": rng.integers(0, N["V"], shape)}
    inputs["weight"] = rng.normal(size=shape)
    got = run(training(build.graph()), inputs, N)
    p = np.exp(inputs["logits"]) / np.exp(inputs["logits"]).sum(-1, keepdims=True)
    hot = np.eye(N["V"])[inputs["targets"]]
    np.testing.assert_allclose(got["log_probabilities"], np.log((p * hot).sum(-1)), rtol=1e-12)
    np.testing.assert_allclose(got["grad:logits"], inputs["weight"][..., None] * (hot - p), rtol=1e-10, atol=1e-13)
