"""What the benchmarks time gives what it gives with symbols."""

from __future__ import annotations

import sympy

from benchmarks.bench import derive_with, iteration_of
from derive.building_blocks import EXPANSIONS, Blocks
from derive.forms import Form
from derive.placements import StageQuestion, stage_depth, stage_memory, stage_work
from graphs.sizes import Sizes


def test_a_number_of_layers_is_what_the_symbol_stands_for() -> None:
    found = derive_with(sympy.Integer(3))
    assert "L" not in found
    assert found.replace(" ", "") != derive_with(sympy.Integer(4)).replace(" ", "")
    assert "L" in derive_with(Sizes.canonical().L)


def test_numbers_of_samples_are_what_the_symbols_stand_for() -> None:
    q = StageQuestion("PPO", blocks=Blocks(frozenset(EXPANSIONS)))
    numbers = {"B": Form.constant(2), "K": Form.constant(3)}
    whole = [measure(q).value.substitute(numbers) for measure in (stage_work, stage_depth, stage_memory)]
    assert [found.value for found in iteration_of(2, 3)] == whole
