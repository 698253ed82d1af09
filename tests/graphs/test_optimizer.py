"""The optimizer step is Adam, wherever its state is stored, and ZeRO exchanges what it is known to exchange."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from graphs.axes import Role
from graphs.execute import run
from graphs.ir import Graph
from graphs.transforms.optimizer import with_optimizer
from graphs.transforms.partition import partition
from tests.graphs.test_partition import EVEN, FFNS, SCHEMES, arrays, collectives, degrees, model, same

AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


@cache
def step(ffn: str) -> Graph:
    return with_optimizer(model("policy", ffn))


@cache
def case(ffn: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    drawn = arrays(step(ffn), EVEN)
    inputs = {name: np.abs(a) if name.startswith("second:") else a for name, a in drawn.items()}
    return inputs, run(step(ffn), inputs, EVEN)


def test_the_step_is_adam_with_the_bias_correction_folded_into_the_rate() -> None:
    inputs, got = case("dense")
    gradients = run(model("policy", "dense"), inputs, EVEN)
    for name, _ in model("policy", "dense").parameters():
        g = gradients[f"grad:{name}"]
        first = 0.9 * inputs[f"first:{name}"] + 0.1 * g
        second = 0.999 * inputs[f"second:{name}"] + 0.001 * g**2
        np.testing.assert_allclose(got[f"first:{name}"], first)
        np.testing.assert_allclose(got[f"second:{name}"], second)
        new = inputs[name] - inputs["rate"] * first / np.sqrt(second + 1e-5)
        np.testing.assert_allclose(got[f"new:{name}"], new)


@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_takes_the_sequential_step(name: str, ffn: str) -> None:
    inputs, wanted = case(ffn)
    got = run(partition(step(ffn), SCHEMES[name]), inputs, EVEN, degrees(SCHEMES[name]))
    assert same({k: a for k, a in got.items() if "@" not in k}, wanted)
    assert all(np.array_equal(a, got[k.partition("@")[0]]) for k, a in got.items())


def exchanged(name: str) -> dict[tuple[str, str], int]:
    found = {("backward", AR): 0, ("backward", RS): 0, ("update", AG): 0}
    for (_, phase, action), n in collectives(partition(step("dense"), SCHEMES[name])).items():
        if (phase, action) in found:
            found[phase, action] += n
    return found


@pytest.mark.parametrize(
    ("name", "reduced", "scattered", "gathered"),
    [("Data", 1, 0, 0), ("ZeRO-1", 0, 1, 1), ("ZeRO-2", 0, 1, 1), ("ZeRO-3", 0, 1, 0)],
)
def test_each_parameter_is_exchanged_as_its_stage_of_zero_says(
    name: str, reduced: int, scattered: int, gathered: int
) -> None:
    n = len(list(model("policy", "dense").parameters()))
    wanted = {("backward", AR): reduced * n, ("backward", RS): scattered * n, ("update", AG): gathered * n}
    assert exchanged(name) == wanted


def test_a_tied_table_goes_back_to_the_last_stage_of_a_pipeline() -> None:
    split = partition(step("dense"), SCHEMES["Pipeline"])
    assert [name for name in split.outputs if "@" in name] == ["new:W_e@last"]
    assert collectives(split)["top", "update", "send"] == 1


@pytest.mark.parametrize("name", ["ZeRO-1", "ZeRO-2", "ZeRO-3"])
def test_the_optimizer_state_is_stored_in_shards(name: str) -> None:
    split = partition(step("dense"), SCHEMES[name])
    states = [t for t in split.inputs.values() if t.role is Role.OPTIMIZER]
    assert states
    assert all([s.mesh for a in t.axes for s in a.splits] == ["P_d"] for t in states)
