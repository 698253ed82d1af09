"""The status of an architecture says what is compared with `transformers`, and what that library does otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch.nn", reason="needs the extra 'hf'")
pytest.importorskip("transformers", reason="needs the extra 'hf'")

from graphs.architectures import Architecture, architectures
from tests.hf import test_decode, test_flops, test_outputs, test_saved
from tests.hf.cases import PUBLIC, TINY, TINY_BY_NAME, Case

OUTPUTS = [test_outputs.test_logits_loss_and_every_gradient_are_theirs]
COUNTS = [
    test_flops.test_flops_and_parameters_of_tiny_models_are_theirs,
    test_flops.test_flops_and_parameters_of_public_models_are_theirs,
]
TESTS: dict[str, list[Any]] = {
    "outputs": OUTPUTS,
    "gradients": OUTPUTS,
    "FLOPs": COUNTS,
    "saved elements": [test_saved.test_every_layer_keeps_our_saved_tensors_and_what_is_named],
    "decoding": [
        test_decode.test_every_step_costs_chooses_and_caches_what_theirs_does,
        test_decode.test_every_step_of_a_public_model_costs_and_caches_what_theirs_does,
    ],
    "parameters": COUNTS,
}


def covered(test: Any) -> set[str]:
    """The model types that a test runs for."""
    (cases,) = (list(mark.args[1]) for mark in test.pytestmark if mark.args[0] == "case")
    return {case.keys["model_type"] for case in cases}


def differences(case: Case) -> dict[str, int]:
    """By name, in elements or FLOPs."""
    return {
        **{name: n for layer in case.model.layers for name, n in test_saved.besides(case, layer).items()},
        "tables of angles": test_saved.tables(case),
        "pairs outside of windows": case.hidden_pairs(),
        "keys and values written out again in every step": test_decode.written_out_again(case, 1),
        "a key less in the cache of a window": test_decode.dropped_before_it_must(case),
    }


@pytest.mark.parametrize("architecture", architectures(), ids=lambda a: a.name)
def test_the_status_of_an_architecture_is_what_is_tested(architecture: Architecture) -> None:
    types = set(architecture.model_types)
    compared = [name for name, tests in TESTS.items() if all(types <= covered(test) for test in tests)]
    assert list(architecture.compared) == compared


def test_the_documentation_names_what_transformers_does_otherwise_and_nothing_else() -> None:
    text = Path(__file__).parents[2].joinpath("docs/pytorch.md").read_text(encoding="utf-8")
    table = text.split("| `transformers` has besides |")[1].split("\n\n")[0]
    named = {line.split("|")[1].strip() for line in table.splitlines()[2:]}
    assert named == {name for case in TINY_BY_NAME.values() for name, n in differences(case).items() if n}


def test_every_model_type_has_two_tiny_models_and_a_public_one() -> None:
    types = {t for a in architectures() for t in a.model_types}
    assert set(TINY) == types
    assert all(len(cases) == 2 for cases in TINY.values())
    assert {case.keys["model_type"] for case in PUBLIC.values()} == types
