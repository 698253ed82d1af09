"""One iteration of PPO, GRPO and DPO through the graphs is what plain numpy makes of the same numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from graphs.axes import Role
from graphs.blocks.decoder import EXPERTS
from graphs.errors import GraphError
from graphs.execute import Machine
from graphs.rl.iterate import iterate
from graphs.rl.links import Operation, operations
from graphs.rl.settings import Settings
from graphs.schemes import schemes
from graphs.stages.stage import Options
from graphs.symbols import size
from graphs.transforms.partition import partition
from tests.rl import direct

#: models of different sizes; few enough parameters that each can be moved by itself
N = {
    "B": 2, "K": 3, "S": 3, "T": 3, "m": 6, "V": 5, "B_pairs": 2, "n_ep": 2, "n_up": 2,
    "L_pi": 2, "d_pi": 4, "h_pi": 2, "d_ff_pi": 3,
    "L_V": 1, "d_V": 4, "h_V": 1, "d_ff_V": 2,
    "L_R": 1, "d_R": 2, "h_R": 1, "d_ff_R": 3,
}  # fmt: skip
RATE = 0.05
TRAINED = ("actor", "critic")
SEVERAL = Settings(options=Options(epochs=size("n_ep"), updates=size("n_up")))


@cache
def ops(algorithm: str, settings: Settings = Settings()) -> tuple[Operation, ...]:  # noqa: B008 - it is frozen
    return operations(algorithm, settings)


def weights(
    algorithm: str,
    sizes: dict[str, int] = N,
    settings: Settings = Settings(),  # noqa: B008
) -> dict[str, dict[str, np.ndarray]]:
    """Random parameters of every model, and random but possible states of the optimizer."""
    rng, machine, out = np.random.default_rng(7), Machine(sizes), dict[str, dict[str, np.ndarray]]()
    for op in ops(algorithm, settings):
        for name, tensor in op.graph.inputs.items():
            mine = out.setdefault(op.role, {})
            if tensor.role in (Role.PARAMETER, Role.OPTIMIZER) and name not in mine:
                drawn = rng.normal(size=[machine.count(a) for a in tensor.axes])
                scales = {"first": 0.05 * drawn, "second": 0.02 * drawn**2}
                mine[name] = scales.get(name.partition(":")[0], 0.6 * drawn + ("gain" in name))
    return out


def prompts(sizes: dict[str, int] = N) -> dict[str, np.ndarray]:
    rng, count = np.random.default_rng(3), sizes["B"] * sizes["K"]
    uniforms = rng.random((sizes["T"], count))
    ids = rng.integers(0, sizes["V"], (sizes["B"], sizes["S"]))
    return {"prompts": ids, "uniform": uniforms[0], "uniforms": uniforms[1:], "rate": np.array(RATE)}


def pairs(sizes: dict[str, int] = N) -> dict[str, np.ndarray]:
    """Prompts with two responses each, of 1 to T tokens."""
    rng, count = np.random.default_rng(4), 2 * sizes["B_pairs"]
    ids = rng.integers(0, sizes["V"], (count, sizes["m"]))
    response = np.zeros(ids.shape)
    for row, length in zip(response, rng.integers(1, sizes["T"] + 1, count), strict=True):
        row[sizes["S"] - 1 : sizes["S"] - 1 + length] = 1
    targets = np.concatenate([ids[:, 1:], ids[:, :1]], axis=1)
    return {"ids": ids, "targets": targets, "response": response, "rate": np.array(RATE)}


def parameters(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: a for name, a in arrays.items() if ":" not in name}


def trained(arrays: dict[str, np.ndarray]) -> direct.Trained:
    states = [{n.partition(":")[2]: a for n, a in arrays.items() if n.startswith(s)} for s in ("first:", "second:")]
    return direct.Trained(parameters(arrays), *states)


def by_hand(
    algorithm: str, updates: int = 1, epochs: int = 1
) -> tuple[dict[str, np.ndarray], dict[str, direct.Trained]]:
    models, given = weights(algorithm), prompts()
    moved = {role: trained(models[role]) for role in TRAINED if role in models}
    reference = parameters(models["reference"])
    if algorithm == "DPO":
        data = pairs()
        lengths = data["response"].sum(1).astype(int)
        return direct.dpo(moved["actor"], reference, data["ids"], N["S"], lengths, RATE), moved
    uniforms = np.concatenate([given["uniform"][None], given["uniforms"]])
    rest = (reference, parameters(models["reward"]), given["prompts"], N["K"], uniforms, RATE, updates, epochs)
    if algorithm == "GRPO":
        return direct.grpo(moved["actor"], *rest), moved
    return direct.ppo(moved["actor"], moved["critic"], *rest), moved


def of_response(array: np.ndarray) -> np.ndarray:
    return array[:, N["S"] - 1 : -1]


def check(algorithm: str, settings: Settings, updates: int = 1, epochs: int = 1) -> dict[str, np.ndarray]:
    data = pairs() if algorithm == "DPO" else prompts()
    got, after = iterate(ops(algorithm, settings), data, weights(algorithm), N)
    wanted, moved = by_hand(algorithm, updates, epochs)
    for name, array in wanted.items():
        found = got[name]
        if algorithm == "DPO" and name == "reference":
            found = (found * data["response"]).sum(1)
        elif np.ndim(array) == 2 and name != "ids":
            found = of_response(found)
        np.testing.assert_allclose(found, array, rtol=1e-6, atol=1e-8, err_msg=name)
    for role, model in moved.items():
        for name in model.w:
            for found, array in (
                (after[role][name], model.w[name]),
                (after[role][f"first:{name}"], model.first[name]),
                (after[role][f"second:{name}"], model.second[name]),
            ):
                np.testing.assert_allclose(found, array, rtol=1e-5, atol=1e-8, err_msg=f"{role}: {name}")
            assert not np.allclose(after[role][name], weights(algorithm)[role][name])
    return got


@pytest.mark.parametrize("algorithm", ["PPO", "GRPO", "DPO"])
def test_an_iteration_is_what_plain_numpy_says(algorithm: str) -> None:
    check(algorithm, Settings())


@pytest.mark.parametrize("algorithm", ["PPO", "GRPO"])
def test_epochs_of_mini_batches_go_over_the_rollouts_again(algorithm: str) -> None:
    got = check(algorithm, SEVERAL, N["n_up"], N["n_ep"])
    once = iterate(ops(algorithm), prompts(), weights(algorithm), N)[0]
    assert got["loss_actor"] != once["loss_actor"]


def test_a_later_epoch_runs_into_the_bounds_of_ratio_and_value() -> None:
    """So that the tests above would notice a bound that is missing."""
    models = weights("PPO")
    got, after = iterate(ops("PPO", SEVERAL), prompts(), models, N)
    ids = got["ids"].astype(int)
    ratio = np.exp(direct.log_p(parameters(after["actor"]), ids, N["S"]) - of_response(got["old"]))
    assert (np.abs(ratio - 1) > direct.CLIP).any()
    moved = direct.values_of(parameters(after["critic"]), ids, N["S"]) - of_response(got["values"])
    assert (np.abs(moved) > direct.VALUE_CLIP).any()


@pytest.mark.parametrize("algorithm", ["PPO", "GRPO"])
def test_log_probabilities_on_the_fly_are_those_of_a_pass_of_their_own(algorithm: str) -> None:
    own = Settings(options=Options(log_probabilities_own_pass=True))
    got, after = iterate(ops(algorithm, own), prompts(), weights(algorithm), N)
    np.testing.assert_allclose(of_response(got["old"]), of_response(got["old_on_the_fly"]), rtol=1e-9)
    fly, moved = iterate(ops(algorithm), prompts(), weights(algorithm), N)
    np.testing.assert_array_equal(of_response(fly["old"]), of_response(got["old_on_the_fly"]))
    for name, array in after["actor"].items():
        np.testing.assert_allclose(array, moved["actor"][name], rtol=1e-8, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("algorithm", ["PPO", "GRPO"])
def test_a_response_may_be_one_token_long(algorithm: str) -> None:
    sizes = N | {"T": 1, "m": N["S"] + 1}
    got, _ = iterate(ops(algorithm), prompts(sizes), weights(algorithm), sizes)
    assert got["old"].shape == (N["B"] * N["K"], N["S"] + 1)
    np.testing.assert_array_equal(got["response"].sum(1), 1)
    if algorithm == "PPO":
        earned = got["score"] - direct.KL * (got["old"] - got["reference"])[:, N["S"] - 1]
        np.testing.assert_allclose(got["returns"][:, N["S"] - 1], earned)


def test_a_mixture_of_experts_is_trained_too() -> None:
    """Over ranks of experts as on one device; there is no second implementation of it here."""
    sizes, settings = EVEN | {"E": 4, "E_a": 2, "d_e": 4}, Settings(ffn=EXPERTS)
    scheme = schemes()["Expert"]
    every = ops("GRPO", settings)
    alike = tuple(replace(op, graph=partition(op.graph, scheme)) for op in every)
    data, models = prompts(sizes), weights("GRPO", sizes, settings)
    wanted, after = iterate(every, data, models, sizes)
    got, moved = iterate(alike, data, models, sizes, dict.fromkeys(scheme.meshes, 2))
    np.testing.assert_allclose(got["loss_actor"], wanted["loss_actor"], rtol=1e-9)
    for name, array in after["actor"].items():
        np.testing.assert_allclose(moved["actor"][name], array, rtol=1e-7, atol=1e-10, err_msg=name)


def test_one_step_of_both_losses_together_is_a_step_of_each() -> None:
    joint = Settings(options=Options(joint_update=True))
    got, after = iterate(ops("PPO", joint), prompts(), weights("PPO"), N)
    wanted, moved = iterate(ops("PPO"), prompts(), weights("PPO"), N)
    np.testing.assert_allclose(got["loss"], wanted["loss_actor"] + wanted["loss_critic"], rtol=1e-12)
    for role in TRAINED:
        for name, array in moved[role].items():
            np.testing.assert_allclose(after[role][name], array, rtol=1e-12, err_msg=f"{role}: {name}")


@pytest.mark.parametrize("own", [False, True])
def test_rollouts_that_share_a_prefill_are_those_that_do_not(own: bool) -> None:
    shared = Settings(options=Options(share_prefill=True, log_probabilities_own_pass=own))
    got, after = iterate(ops("GRPO", shared), prompts(), weights("GRPO"), N)
    wanted, moved = iterate(ops("GRPO"), prompts(), weights("GRPO"), N)
    np.testing.assert_array_equal(got["ids"], wanted["ids"])
    np.testing.assert_allclose(of_response(got["old"]), of_response(wanted["old"]), rtol=1e-9)
    for name, array in after["actor"].items():
        np.testing.assert_allclose(array, moved["actor"][name], rtol=1e-8, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("algorithm", "role"), [("PPO", "critic"), ("GRPO", "actor"), ("DPO", "actor")])
def test_a_short_step_from_rest_lowers_the_loss(algorithm: str, role: str) -> None:
    data = (pairs() if algorithm == "DPO" else prompts()) | {"rate": np.array(1e-4)}
    models = weights(algorithm)
    models[role] |= {n: np.zeros_like(a) for n, a in models[role].items() if n.startswith("first:")}
    update = [op for op in ops(algorithm) if f"update_{role}" in op.nodes]
    values, after = iterate(ops(algorithm), data, models, N)
    again = iterate(update, values, after, N)[0]
    assert again[f"loss_{role}"] < values[f"loss_{role}"]


# -- over ranks -------------------------------------------------------------------------------------------------------
#: what two ranks of every mesh dimension divide
EVEN = N | {"B": 8, "K": 2, "S": 4, "T": 4, "m": 8, "V": 8, "B_pairs": 8} | {
    f"{name}_{model}": n for model in ("pi", "V", "R") for name, n in {"L": 2, "d": 8, "h": 4, "d_ff": 4}.items()
}  # fmt: skip
#: schemes under which the decode steps of a generation run too
WHOLE = ("Data", "ZeRO-1", "ZeRO-3", "Expert")


@cache
def alone(algorithm: str) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    data = pairs(EVEN) if algorithm == "DPO" else prompts(EVEN)
    return iterate(ops(algorithm), data, weights(algorithm, EVEN), EVEN)


@pytest.mark.parametrize("name", sorted(schemes()))
@pytest.mark.parametrize("algorithm", ["PPO", "GRPO", "DPO"])
def test_assessment_and_training_over_ranks_are_those_on_one_device(algorithm: str, name: str) -> None:
    scheme, mesh = schemes()[name], dict.fromkeys(schemes()[name].meshes, 2)
    data = pairs(EVEN) if algorithm == "DPO" else prompts(EVEN)
    wanted, after = alone(algorithm)
    values, models = dict(data), weights(algorithm, EVEN)
    for op in ops(algorithm):
        split = "generate" not in op.nodes or name in WHOLE
        placed = replace(op, graph=partition(op.graph, scheme)) if split else op
        values, models = iterate([placed], values, models, EVEN, mesh if split else None)
    for key, array in wanted.items():
        np.testing.assert_allclose(values[key], array, rtol=1e-7, atol=1e-10, err_msg=key)
    for role, arrays in after.items():
        for key, array in arrays.items():
            np.testing.assert_allclose(models[role][key], array, rtol=1e-7, atol=1e-10, err_msg=f"{role}: {key}")


def test_what_is_not_given_is_named() -> None:
    data = prompts()
    del data["uniform"]
    with pytest.raises(GraphError, match="generate: neither data nor an earlier operation gives 'uniform'"):
        iterate(ops("PPO"), data, weights("PPO"), N)


@pytest.mark.parametrize(("name", "shape"), [("prompts", (3, 3)), ("prompts", (2,)), ("uniforms", (2, 7))])
def test_data_of_another_shape_is_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(GraphError, match=f"input '{name}' has shape"):
        iterate(ops("PPO"), prompts() | {name: np.zeros(shape)}, weights("PPO"), N)
