"""Recomputation of regions: the same gradients, less kept, and only what lies inside computed again."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from derive.forms import symbol, total
from derive.measure import Question, memory, work
from graphs.execute import run
from graphs.ir import ATTENTION
from graphs.ops.repeat import Repeat
from graphs.transforms.backward import saved_values
from graphs.transforms.partition import partition
from graphs.transforms.recompute import Recompute
from tests.graphs.test_partition import EVEN, FFNS, SCHEMES, degrees, same
from tests.memory.cases import RATE, inputs_of, trained

NO_DROPOUT = Fraction(0)


def backward_loop(recompute: Recompute, rate: Fraction = RATE) -> Repeat:
    loop = trained(rate=rate, recompute=recompute).by_name["blocks'"].op
    assert isinstance(loop, Repeat)
    return loop


@pytest.mark.parametrize("rate", [NO_DROPOUT, RATE], ids=["plain", "dropout"])
@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("recompute", Recompute)
def test_gradients_are_the_same_to_the_last_bit(recompute: Recompute, ffn: str, rate: Fraction) -> None:
    kept, again = trained(ffn, rate), trained(ffn, rate, recompute)
    inputs = inputs_of(kept, EVEN)
    wanted, got = run(kept, inputs, EVEN), run(again, inputs, EVEN)
    assert wanted.keys() == got.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(array, got[name], err_msg=name)


@pytest.mark.parametrize("name", SCHEMES)
def test_selective_recomputation_gives_the_same_gradients_on_every_mesh(name: str) -> None:
    graph = trained(recompute=Recompute.SELECTIVE)
    inputs = inputs_of(graph, EVEN)
    got = run(partition(graph, SCHEMES[name]), inputs, EVEN, degrees(SCHEMES[name]))
    assert same(got, run(trained(), inputs, EVEN))


def test_selective_recomputation_repeats_attention_up_to_the_product_that_is_kept() -> None:
    again = {n.name for n in backward_loop(Recompute.SELECTIVE).body.nodes if n.phase == "recompute"}
    region = {"key.positions", "value.positions", "scores", "scale", "probabilities", "probabilities.dropout"}
    assert again == region
    assert all(n.region == ATTENTION for n in backward_loop(Recompute.SELECTIVE).body.nodes if n.phase == "recompute")


def test_selective_recomputation_keeps_what_flows_into_attention_and_what_leaves_it() -> None:
    graph = trained(recompute=Recompute.SELECTIVE)
    loop = graph.by_name["blocks"]
    assert isinstance(loop.op, Repeat)
    names = list(loop.op.body.outputs)
    kept = {names[v.index].removeprefix("saved:") for v in saved_values(graph) if v.node == "blocks" and v.index}
    assert kept == {
        "x[0]", "norm_1[0]", "norm_1[1]", "norm_1[2]", "query[0]", "key[0]", "value[0]", "mix[0]",
        "attention.dropout[1]", "residual_1[0]", "norm_2[0]", "norm_2[1]", "norm_2[2]", "ffn_up[0]", "gelu[0]",
        "ffn.dropout[1]",
    }  # fmt: skip


def test_nothing_is_computed_again_where_all_is_kept() -> None:
    assert not [n for n in backward_loop(Recompute.NONE).body.nodes if n.phase == "recompute"]


def test_selective_recomputation_costs_the_scores_once_more() -> None:
    """Half of the m^2 pairs, 2 d_h a pair and head; the product with the values is kept and not repeated."""
    B, m, L, d = (symbol(n) for n in ("B", "m", "L", "d"))
    q = Question(recompute=Recompute.SELECTIVE)
    assert work(q, ["recompute"]).value.members == (B * m**2 * L * d,)
    assert work(q, ["forward", "backward"]).value == work(Question(), ["forward", "backward"]).value


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_more_is_computed_again_the_less_is_kept(scheme: str) -> None:
    sizes = dict.fromkeys(("B", "m", "L", "d", "h", "d_ff", "V", "P_d", "P_p", "P_t", "P_c", "P_e", "P_s"), 8)
    kept = [
        memory(Question(scheme=scheme, recompute=r, dropout=RATE)).value.evaluate(sizes)
        for r in (Recompute.LAYER_BOUNDARY, Recompute.SELECTIVE, Recompute.NONE)
    ]
    assert kept[0] < kept[1] < kept[2]
    again = [
        total(f for _, f in work(Question(scheme=scheme, recompute=r), ["recompute"]).parts).evaluate(sizes)
        for r in (Recompute.LAYER_BOUNDARY, Recompute.SELECTIVE, Recompute.NONE)
    ]
    assert again[0] > again[1] > again[2] == 0
