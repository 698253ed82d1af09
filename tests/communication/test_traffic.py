"""The traffic rules count what the algorithms move when they are carried out chunk by chunk."""

from __future__ import annotations

import numpy as np
import pytest

from derive.costs.traffic import RULES, Traffic, exchange, traffic
from derive.forms import Form, symbol
from derive.units import BYTES, ELEMENTS, MESSAGES, Quantity
from graphs.errors import GraphError
from tests.communication.simulation import SIMULATED, Network, outcome

CHUNK = 3
CASES = [
    (*key, p)
    for key in sorted(SIMULATED)
    for p in range(1, 9)
    if (key[1] != "tree" or p & (p - 1) == 0) and (p > 1 or key[0] not in ("send", "permute"))
]


def numbers(action: str, algorithm: str, p: int, m: int) -> dict[str, int]:
    found = traffic(action, algorithm, Form.constant(p), Form.constant(m))
    values = {name: getattr(found, name).evaluate({}) for name in Traffic.__dataclass_fields__}
    assert all(v.denominator == 1 for v in values.values())
    return {name: int(v) for name, v in values.items()}


def simulated(action: str, algorithm: str, p: int, m: int) -> dict[str, int]:
    net, rng = Network(), np.random.default_rng(p)
    arrays = [rng.integers(0, 99, m // p if action == "all_gather" else m) for _ in range(p)]
    got = SIMULATED[action, algorithm](net, arrays)
    for mine, wanted in zip(got, outcome(action, arrays), strict=True):
        assert np.array_equal(mine.ravel(), wanted)
    port = {r: net.sent[r] + net.received[r] for r in range(p)}
    busiest = max(range(p), key=lambda r: (port[r], -r))
    return {
        "sent": net.sent[busiest],
        "received": 0 if action == "send" and busiest == 0 else net.received[busiest],
        "total": net.sent.total(),
        "messages": net.messages[busiest],
        "total_messages": net.messages.total(),
        "steps": len(net.rounds),
        "serial": net.serial,
    }


def test_every_rule_is_carried_out() -> None:
    assert set(SIMULATED) == set(RULES)


@pytest.mark.parametrize(("action", "algorithm", "p"), CASES)
def test_a_rule_counts_what_the_algorithm_moves(action: str, algorithm: str, p: int) -> None:
    got, wanted = numbers(action, algorithm, p, CHUNK * p), simulated(action, algorithm, p, CHUNK * p)
    if action == "send":  # its two ends are different ranks
        wanted["received"] = wanted["sent"]
    assert got == wanted


@pytest.mark.parametrize(("action", "algorithm"), [k for k in sorted(RULES) if k[0] not in ("send", "permute")])
def test_an_exchange_of_one_rank_moves_nothing(action: str, algorithm: str) -> None:
    assert not any(numbers(action, algorithm, 1, 5).values())


def test_ring_and_recursive_halving_move_as_much_in_unlike_numbers_of_messages() -> None:
    ring, tree = (traffic("all_reduce", a, symbol("P_t"), symbol("d")) for a in ("ring", "tree"))
    assert ring.total == tree.total == 2 * (symbol("P_t") - 1) * symbol("d")
    assert (ring.steps.text, tree.steps.text) == ("2*P_t - 2", "2*log(P_t)")


# Case A15 of the public cases.


def test_a_ring_all_reduce_of_256_bytes_on_8_ranks() -> None:
    found = numbers("all_reduce", "ring", 8, 256)
    assert (found["total"], found["total_messages"], found["sent"] + found["received"]) == (3584, 112, 896)


def test_gathering_at_rank_0_and_broadcasting_256_bytes_on_8_ranks() -> None:
    found = numbers("all_reduce", "central", 8, 256)
    assert (found["total"], found["total_messages"], found["sent"] + found["received"]) == (3584, 14, 3584)


def test_the_busiest_rank_of_a_central_all_reduce_carries_half_as_many_times_as_there_are_ranks() -> None:
    p, m = symbol("N"), symbol("d")
    ring, central = (traffic("all_reduce", a, p, m) for a in ("ring", "central"))
    assert (ring.sent + ring.received) * p / 2 == central.sent + central.received


@pytest.mark.parametrize("actions", [("all_reduce",), ("reduce_scatter", "all_gather")])
def test_eight_layers_on_8_ranks_move_as_much_with_and_without_sequence_parallelism(actions: tuple[str, ...]) -> None:
    found = [numbers(action, "ring", 8, 16_384) for action in actions for _ in range(8)]
    assert sum(f["total"] for f in found) == 1_835_008
    assert sum(f["total_messages"] for f in found) == 896


# Refusals and units.


def test_an_action_without_a_rule_is_named() -> None:
    with pytest.raises(GraphError, match="gossip has no ring rule; write one"):
        traffic("gossip", "ring", Form.constant(2), Form.constant(1))


def test_a_second_rule_for_an_action_is_refused() -> None:
    with pytest.raises(GraphError, match="all_gather already has a traffic rule for tree"):
        exchange("all_gather", algorithms=("tree",))(RULES["all_gather", "tree"])


def test_elements_and_bytes_cannot_be_added() -> None:
    volume = Quantity.of(symbol("d"), ELEMENTS)
    assert (volume + volume).in_bytes(2) == Quantity.of(4 * symbol("d"), BYTES)
    with pytest.raises(GraphError, match="cannot add bytes to elements"):
        volume + volume.in_bytes(2)
    with pytest.raises(GraphError, match="cannot add messages to elements"):
        Quantity.total([Quantity.of(symbol("d"), MESSAGES)], ELEMENTS)


@pytest.mark.parametrize("unit", [BYTES, MESSAGES])
def test_only_elements_become_bytes(unit: str) -> None:
    with pytest.raises(GraphError, match=f"only elements have a width in bytes, {unit} have none"):
        Quantity.of(symbol("d"), unit).in_bytes(2)
