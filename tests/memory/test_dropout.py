"""Dropout: what it computes, that every rank draws the same mask, and that its gradient is the slope of the loss."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.axes import Axis, Role, Tensor
from graphs.errors import GraphError
from graphs.execute import run
from graphs.ir import Builder, Graph
from graphs.models.roles import ROLES, forward
from graphs.ops.dropout import Dropout
from graphs.ops.repeat import Repeat
from graphs.schemes import Mapping, Scheme
from graphs.sizes import Sizes
from graphs.symbols import size
from graphs.transforms.backward import training
from graphs.transforms.partition import partition
from graphs.transforms.recompute import Recompute
from tests.graphs.test_backward import check_gradients
from tests.graphs.test_partition import EVEN, FFNS, SCHEMES, degrees, divisible, same, zigzag
from tests.memory.cases import RATE, inputs_of, trained

SIZES = Sizes.canonical()
SEED = Tensor((), Role.INDEX)
ROWS, COLUMNS = 60, 50


@cache
def lone(rate: Fraction = RATE, stream: str = "x") -> Graph:
    """Dropout of x[s,c] with its mask."""
    build = Builder("lone")
    y, mask = build.add(Dropout(rate, stream), build.input("x", SIZES.tensor("s c")), build.input("seed", SEED))
    build.output("y", y)
    build.output("mask", mask)
    return build.graph()


def drop(x: np.ndarray, seed: int = 0, rate: Fraction = RATE, stream: str = "x") -> tuple[np.ndarray, np.ndarray]:
    out = run(lone(rate, stream), {"x": x, "seed": np.asarray(seed)}, {"m": x.shape[0], "d": x.shape[1]})
    return out["y"], out["mask"]


def mask(
    seed: int = 0, rate: Fraction = RATE, stream: str = "x", shape: tuple[int, int] = (ROWS, COLUMNS)
) -> np.ndarray:
    return drop(np.ones(shape), seed, rate, stream)[1]


# -- what it computes -------------------------------------------------------------------------------------------------
def test_entries_are_dropped_or_scaled_up() -> None:
    x = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
    y, kept = drop(x)
    assert set(np.unique(kept)) == {0.0, 1.0}
    np.testing.assert_allclose(y, np.where(kept == 1, x / (1 - 1 / 3), 0), rtol=1e-14)


@pytest.mark.parametrize("rate", [Fraction(1, 10), Fraction(1, 3), Fraction(9, 10)])
@given(seed=st.integers(0, 2**53))
@settings(max_examples=10)
def test_the_share_of_zeros_is_the_rate(rate: Fraction, seed: int) -> None:
    """Within five standard deviations, over all, in the mean of rows and in the mean of columns."""
    kept = mask(seed, rate)
    deviation = float(rate * (1 - rate)) ** 0.5
    for sample, n in ((kept.mean(), kept.size), (kept.mean(0), ROWS), (kept.mean(1), COLUMNS)):
        assert np.all(np.abs(sample - (1 - float(rate))) < 6 * deviation / n**0.5)


def test_the_mean_over_seeds_is_the_operand() -> None:
    x = np.random.default_rng(1).normal(size=(4, 5))
    found = [drop(x, seed)[0] for seed in range(500)]
    spread = np.abs(x) * (float(RATE) / (1 - float(RATE)) / len(found)) ** 0.5
    assert np.all(np.abs(np.mean(found, axis=0) - x) < 5 * spread)


def test_the_same_seed_draws_the_same_mask_and_another_seed_or_stream_or_axis_another() -> None:
    square = (COLUMNS, COLUMNS)
    assert np.array_equal(mask(), mask())
    for other in (mask(shape=square).T, mask(1, shape=square), mask(stream="y", shape=square)):
        agreement = (mask(shape=square) == other).mean()
        assert abs(agreement - 5 / 9) < 0.06  # two independent masks agree with probability (2/3)^2 + (1/3)^2


def test_layers_and_places_have_masks_of_their_own() -> None:
    graph = trained()
    loop = next(n for n in graph.nodes if n.name == "blocks")
    assert isinstance(loop.op, Repeat)
    streams = [n.op.stream for n in loop.op.body.nodes if isinstance(n.op, Dropout)]
    assert len(set(streams)) == len(streams) == 3
    inputs = inputs_of(graph, EVEN)
    alike = run(graph, inputs | {"seed": np.zeros(EVEN["L"])}, EVEN)
    assert not np.array_equal(alike["out"], run(graph, inputs, EVEN)["out"])


def test_a_decoder_without_dropout_is_the_canonical_one() -> None:
    plain, named = forward(SIZES), forward(SIZES, dropout=Fraction(0))
    assert [n.name for n in plain.nodes] == [n.name for n in named.nodes]
    assert plain.inputs == named.inputs
    assert "seed" not in plain.inputs


# -- gradients --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("recompute", Recompute)
@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("role", ["policy", "reward", "value"])
def test_gradients_through_dropout_are_the_slopes_of_the_loss(role: str, ffn: str, recompute: Recompute) -> None:
    graph = forward(SIZES, ROLES[role], FFNS[ffn], loss=True, dropout=RATE)
    check_gradients(graph, training(graph, recompute=recompute))


# -- partition --------------------------------------------------------------------------------------------------------
ENTRIES = {
    "rows": (Mapping("s", "P_c"),),
    "rows in zigzag": (Mapping("s", "P_c", layout="zigzag"),),
    "columns": (Mapping("c", "P_t"),),
    "both": (Mapping("s", "P_c"), Mapping("c", "P_t")),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_every_rank_draws_its_part_of_the_mask(name: str) -> None:
    scheme = Scheme("cut", ENTRIES[name], "test")
    sizes, mesh = {"m": 12, "d": 8}, degrees(scheme)
    inputs = {"x": np.random.default_rng(2).normal(size=(12, 8)), "seed": np.asarray(7)}
    part = partition(lone(), scheme)
    assert any(a.splits for t in part.by_name["dropout"].types for a in t.axes)
    got, wanted = run(part, inputs, sizes, mesh), run(lone(), inputs, sizes)
    assert all(np.array_equal(got[k], wanted[k]) for k in wanted)


@pytest.mark.parametrize("name", SCHEMES)
@given(data=st.data())
@settings(max_examples=5)
def test_every_scheme_gives_the_sequential_results_with_dropout(name: str, data: st.DataObject) -> None:
    role, ffn = data.draw(st.sampled_from(["policy", "value", "reward"])), data.draw(st.sampled_from(sorted(FFNS)))
    recompute = data.draw(st.sampled_from(list(Recompute)))
    sizes, mesh = data.draw(divisible(SCHEMES[name].meshes))
    graph = trained(ffn, RATE, recompute, role)
    inputs = inputs_of(graph, sizes, data.draw(st.integers(0, 99)))
    assert same(run(partition(graph, SCHEMES[name]), inputs, sizes, mesh), run(graph, inputs, sizes))


@pytest.mark.parametrize("name", ["Context", "Sequence", "Ulysses"])
def test_zigzag_positions_draw_the_same_masks(name: str) -> None:
    scheme, graph = zigzag(SCHEMES[name]), trained()
    inputs = inputs_of(graph, EVEN)
    assert same(run(partition(graph, scheme), inputs, EVEN, degrees(scheme)), run(graph, inputs, EVEN))


# -- what is refused --------------------------------------------------------------------------------------------------
X = Tensor((Axis("c", size("d")),))


@pytest.mark.parametrize(
    ("op", "seed", "sentence"),
    [
        (Dropout(Fraction(1), "x"), SEED, "dropout of 1 keeps nothing or more than all"),
        (Dropout(Fraction(-1, 2), "x"), SEED, "dropout of -1/2 keeps nothing or more than all"),
        (Dropout(RATE, "x"), replace(SEED, role=Role.ACTIVATION), "dropout needs one seed, a scalar of role INDEX"),
        (Dropout(RATE, "x"), X.with_role(Role.INDEX), "dropout needs one seed, a scalar of role INDEX"),
    ],
)
def test_a_bad_rate_or_seed_is_one_sentence(op: Dropout, seed: Tensor, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        op.infer(X, seed)


def test_a_mask_has_no_gradient() -> None:
    build = Builder("masked")
    x, seed = build.input("x", Tensor((), Role.PARAMETER)), build.input("seed", SEED)
    build.output("loss", build.add(Dropout(RATE, "x"), x, seed, name="here")[1])
    with pytest.raises(GraphError, match="here: only the result may be differentiated, not the mask"):
        training(build.graph())
