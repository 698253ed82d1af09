"""Advantages of tokens and of groups against their definitions."""

from __future__ import annotations

import numpy as np
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.execute import run
from graphs.ir import Graph
from graphs.rl.advantages import group_advantages, token_advantages
from graphs.rl.settings import Settings
from graphs.sizes import Sizes
from graphs.symbols import size
from tests.rl import direct

SIZES = Sizes.canonical()
ROLLOUTS = Sizes(**{**vars(SIZES), "B": size("B") * size("K")})
RATIONALS = st.sampled_from([sympy.Rational(n, 10) for n in (0, 3, 9, 10)])
LENGTHS = st.integers(1, 6)


def computed(graph: Graph, sizes: dict[str, int], seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    rng, shape = np.random.default_rng(seed), (sizes["B"], sizes["S"] + sizes["T"])
    data = {name: rng.normal(size=shape) for name in ("old", "reference", "values")} | {
        "score": rng.normal(size=shape[0])
    }
    return data, run(graph, data, sizes | {"m": shape[1]})


@given(S=LENGTHS, T=LENGTHS, seed=st.integers(0, 99), discount=RATIONALS, trace=RATIONALS, scan=st.booleans())
@settings(max_examples=25)
def test_an_advantage_is_the_faded_sum_of_all_later_errors(S, T, seed, discount, trace, scan) -> None:
    chosen = Settings(discount=discount, trace=trace, scan=scan)
    data, found = computed(token_advantages(SIZES, chosen), {"B": 2, "S": S, "T": T}, seed)
    kept = {name: a[:, S - 1 : -1] for name, a in data.items() if a.ndim == 2}
    rewards = -direct.KL * (kept["old"] - kept["reference"])
    rewards[:, -1] += data["score"]
    gamma, fade = float(discount), float(discount * trace)
    for t in range(T):
        wanted = sum(
            fade ** (l - t)
            * (rewards[:, l] + gamma * (kept["values"][:, l + 1] if l + 1 < T else 0) - kept["values"][:, l])
            for l in range(t, T)
        )
        np.testing.assert_allclose(found["advantages"][:, S - 1 + t], wanted, atol=1e-12)
        np.testing.assert_allclose(found["returns"][:, S - 1 + t], wanted + kept["values"][:, t], atol=1e-12)
    assert not found["advantages"][:, : S - 1].any()
    assert not found["advantages"][:, -1].any()


def test_with_full_trace_an_advantage_is_what_was_earned_less_what_was_expected() -> None:
    """A second way to the same: no errors of single steps at all (gamma = lambda = 1)."""
    sizes = {"B": 3, "S": 2, "T": 5}
    data, found = computed(token_advantages(SIZES, Settings(trace=sympy.Integer(1))), sizes, 5)
    earned = -direct.KL * (data["old"] - data["reference"])[:, 1:-1]
    earned[:, -1] += data["score"]
    later = earned[:, ::-1].cumsum(1)[:, ::-1]
    np.testing.assert_allclose(found["returns"][:, 1:-1], later, atol=1e-12)
    np.testing.assert_allclose(found["advantages"][:, 1:-1], later - data["values"][:, 1:-1], atol=1e-12)


@given(B=st.integers(1, 3), K=st.integers(2, 5), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_a_group_has_mean_zero_and_deviation_one_whatever_the_scale_of_its_scores(B, K, seed) -> None:
    graph, score = group_advantages(ROLLOUTS, Settings()), 40 * np.random.default_rng(seed).normal(size=B * K)
    found = run(graph, {"score": score}, {"B": B, "K": K})["advantages"]
    np.testing.assert_allclose(found, direct.group_normalised(score, K), atol=1e-10)
    np.testing.assert_allclose(found.reshape(B, K).mean(1), 0, atol=1e-10)
    np.testing.assert_allclose(found.reshape(B, K).std(1), 1, rtol=1e-3)


def test_equal_scores_in_a_group_give_no_advantage() -> None:
    found = run(group_advantages(ROLLOUTS, Settings()), {"score": np.array([2.0, 2, 2, 7, 7, 7])}, {"B": 2, "K": 3})
    assert not found["advantages"].any()


def test_recursion_and_product_agree_to_rounding_on_a_long_response() -> None:
    sizes = {"B": 1, "S": 1, "T": 300}
    chain, product = (computed(token_advantages(SIZES, Settings(scan=scan)), sizes, 1)[1] for scan in (True, False))
    np.testing.assert_allclose(chain["advantages"], product["advantages"], rtol=1e-9, atol=1e-12)
