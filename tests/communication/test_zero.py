"""What sharded data parallelism moves per step: the published volumes, in parameters and to the last digit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from derive.communication import items
from derive.forms import Form, symbol, total
from graphs.axes import Role
from graphs.schemes import Scheme
from graphs.transforms.accumulate import accumulate
from graphs.transforms.optimizer import with_optimizer
from graphs.transforms.partition import partition
from tests.communication.test_exchanges import PARAMETERS
from tests.graphs.test_partition import SCHEMES, model

STATE = (Role.PARAMETER, Role.PARAMETER_GRADIENT)
N, M = symbol("P_d"), symbol("n_mb")
RANKS, MICRO_BATCHES = 64, 4


def volume(scheme: Scheme, micro_batches: bool) -> Form:
    """Elements of parameters and gradients that a rank sends in one optimizer step."""
    graph = model("policy", "dense")
    graph = with_optimizer(accumulate(graph) if micro_batches else graph)
    found = items(partition(graph, scheme), scheme.meshes)
    return total(f for i in found if i.role in STATE for f in i.sent.amount.members)


def scheme(name: str, gathered: str = "again", accumulated: str = "shards") -> Scheme:
    return replace(SCHEMES[name], gathered=gathered, accumulated=accumulated)


ONE = Form.constant(1)
#: scheme, accumulating or not, volume in units of parameters * (N - 1)/N, the same at N = 64 and M = 4
PUBLISHED = {
    "replicated": (scheme("Data"), False, 2 * ONE, "1.96875"),
    "stage 1": (scheme("ZeRO-1"), False, 2 * ONE, "1.96875"),
    "stage 2": (scheme("ZeRO-2"), False, 2 * ONE, "1.96875"),
    "stage 3": (scheme("ZeRO-3"), False, 3 * ONE, "2.953125"),
    "stage 3, weights kept": (scheme("ZeRO-3", gathered="kept"), False, 2 * ONE, "1.96875"),
    "stage 1, accumulating": (scheme("ZeRO-1"), True, 2 * ONE, "1.96875"),
    "stage 2, accumulating": (scheme("ZeRO-2"), True, M + 1, "4.921875"),
    "stage 3, accumulating": (scheme("ZeRO-3"), True, 3 * M, "11.8125"),
    "stage 3, accumulating, reduced once": (scheme("ZeRO-3", accumulated="partial"), True, 2 * M + 1, "8.859375"),
}


@pytest.mark.parametrize("case", PUBLISHED)
def test_state_moves_as_often_as_published(case: str) -> None:
    asked, micro_batches, times, number = PUBLISHED[case]
    found = volume(asked, micro_batches)
    assert found == times * PARAMETERS * (N - 1) / N
    each = found.evaluate({"P_d": RANKS, "n_mb": MICRO_BATCHES, "V": 3, "L": 5, "d": 4, "d_ff": 7})
    assert each / PARAMETERS.evaluate({"V": 3, "L": 5, "d": 4, "d_ff": 7}) == Fraction(number)


def test_the_optimizer_state_itself_is_never_exchanged() -> None:
    """Stages 1 and 2 gather updated parameters of 2 bytes: 2 + 2 bytes per parameter, not 2 + 12."""
    for name in ("ZeRO-1", "ZeRO-2"):
        graph = partition(with_optimizer(model("policy", "dense")), SCHEMES[name])
        update = [i for i in items(graph, SCHEMES[name].meshes) if i.phase == "update"]
        assert {(i.action, i.role) for i in update} == {("all_gather", Role.PARAMETER)}
        sent = total(f for i in items(graph, ("P_d",)) if i.role in STATE for f in i.sent.amount.members)
        assert 2 * sent == 4 * PARAMETERS * (N - 1) / N
