"""What the benchmarks time gives what it gives with symbols."""

from __future__ import annotations

import sympy

from benchmarks.bench import derive_with, iteration_of
from derive.asymptotics.problem import as_max
from derive.building_blocks import EXPANSIONS, Blocks
from derive.forms import Form, Max
from derive.normal import to_form
from derive.placements import StageQuestion, stage_depth, stage_memory, stage_work
from derive.textform import parse_text
from graphs.sizes import Sizes


def test_a_number_of_layers_is_what_the_symbol_stands_for() -> None:
    def read(layers: sympy.Expr) -> list[Max]:
        return [as_max(to_form(parse_text(text))) for text in derive_with(layers).split(" | ")]

    assert read(sympy.Integer(3)) == [m.substitute({"L": Form.constant(3)}) for m in read(Sizes.canonical().L)]


def test_numbers_of_samples_are_what_the_symbols_stand_for() -> None:
    q = StageQuestion("PPO", blocks=Blocks(frozenset(EXPANSIONS)))
    numbers = {"B": Form.constant(2), "K": Form.constant(3)}
    whole = [measure(q).value.substitute(numbers) for measure in (stage_work, stage_depth, stage_memory)]
    assert [found.value for found in iteration_of(2, 3)] == whole
