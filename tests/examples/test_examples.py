"""The example schemes are short, complete, and give what the sequential graph gives."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from derive.simulate import simulate
from graphs.blocks.decoder import FEED_FORWARDS
from graphs.errors import GraphError
from graphs.schemes import Declaration
from tests.loading import EXAMPLES, HYBRID, TENSOR_2D, named

FILES = sorted(EXAMPLES.glob("*.py"))


@pytest.fixture(scope="module")
def example(request: pytest.FixtureRequest) -> Iterator[Declaration]:
    with named(request.param) as one:
        yield one


every_example = pytest.mark.parametrize("example", [TENSOR_2D, HYBRID], indirect=True, ids=["2d", "hybrid"])


def test_the_tested_examples_are_all_there_are() -> None:
    assert [str(f) for f in FILES] == sorted((TENSOR_2D, HYBRID))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_an_example_has_fewer_than_40_lines_and_a_docstring(file: Path) -> None:
    text = file.read_text()
    assert len(text.splitlines()) < 40
    assert text.startswith('"""')


@pytest.mark.parametrize("model", ["policy", "value", "reward"])
@every_example
def test_an_example_gives_the_sequential_loss_and_gradients_at_all_degrees_up_to_2(example, model) -> None:
    meshes = example.scheme.meshes
    for degrees in itertools.product((1, 2), repeat=len(meshes)):
        for ffn in FEED_FORWARDS:
            found = simulate(example, model, ffn, dict(zip(meshes, degrees, strict=True)), {"L": 2}, seed=3)
            assert found.agrees
            assert {"loss", "grad:W_q", "grad:W_e"} <= set(found.differences)


@pytest.mark.parametrize("degrees", [{"P_x": 3, "P_y": 2}, {"P_x": 1, "P_y": 4}])
@pytest.mark.parametrize("example", [TENSOR_2D], indirect=True)
def test_a_grid_need_not_be_square(example, degrees) -> None:
    found = simulate(example, "policy", "dense", degrees, {})
    assert found.agrees
    assert found.ranks == degrees["P_x"] * degrees["P_y"]


@pytest.mark.parametrize("example", [HYBRID], indirect=True)
def test_experts_on_data_ranks_exchange_copies_and_answers_all_to_all_in_both_passes(example) -> None:
    found = simulate(example, "policy", example.ffn, {"P_e": 2}, {"L": 3})
    counts = {(phase, action): n for (phase, action, _), n in found.collectives.items()}
    assert [counts[phase, "all_to_all"] for phase in ("forward", "backward")] == [2 * 3, 2 * 3]
    assert {action for _, action in counts} == {"all_to_all", "all_reduce"}


@pytest.mark.parametrize("example", [TENSOR_2D], indirect=True)
def test_a_degree_that_divides_not_is_refused_in_one_sentence(example) -> None:
    with pytest.raises(GraphError, match=r"P_x=3 does not divide axis '\w' of size \d+; change one"):
        simulate(example, "policy", "dense", {"P_x": 3}, {"h": 4})
