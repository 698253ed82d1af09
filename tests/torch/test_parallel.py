"""PyTorch's parallel training exchanges in a layer what a partitioned graph says, and gives the same numbers."""

from __future__ import annotations

import multiprocessing
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from multiprocessing.connection import wait

import pytest

pytest.importorskip("torch.nn", reason="needs the extra 'torch'")

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

from derive.communication import Item, items
from derive.costs.model import CostModel
from derive.forms import Form, total
from derive.work import work_terms
from graphs.axes import Role
from graphs.ir import Graph
from graphs.models.roles import VALUE, forward
from graphs.schemes import schemes
from graphs.sizes import Sizes
from graphs.transforms.backward import training
from graphs.transforms.partition import partition
from tests.torch.decoder import PLAIN, blocks, part, random_blocks
from tests.torch.layers import DecoderLayer
from tests.torch.parallel import (
    AGAIN,
    EACH_PREPARED,
    KEPT,
    POSITIONS,
    TENSOR,
    Exchange,
    Record,
    fake_ranks,
    real_rank,
    reduced,
)

#: what 64 ranks divide
WIDE = {"B": 2, "m": 64, "d": 128, "h": 64, "d_ff": 192, "V": 64}
SMALL = {"B": 2, "m": 4, "L": 2, "d": 8, "h": 2, "d_ff": 6}
RANKS = (2, 8, 64)
LAYER_PARAMETERS = 4 * WIDE["d"] ** 2 + 2 * WIDE["d"] * WIDE["d_ff"] + 2 * WIDE["d"]
MESH = {"Tensor": "P_t", "Sequence": "P_t", "ZeRO-3": "P_d", "Data": "P_d"}


@cache
def partitioned(name: str, gathered: str = "again") -> Graph:
    scheme = replace(schemes()[name], gathered=gathered)
    return partition(training(forward(Sizes.canonical(), VALUE, loss=True)), scheme)


@cache
def exchanges(name: str, gathered: str = "again") -> tuple[Item, ...]:
    return tuple(items(partitioned(name, gathered), (MESH[name],)))


def per_layer(
    name: str, ranks: int, *, gradients: bool, gathered: str = "again"
) -> dict[tuple[str, str], list[Fraction]]:
    """(phase, action) -> elements sent by each of the exchanges that a further layer adds.

    ``gradients``: those of parameters and their gradients, else those of activations.
    """
    out: dict[tuple[str, str], list[Fraction]] = {}
    for item in exchanges(name, gathered):
        sizes = WIDE | {MESH[name]: ranks}
        one, two = _sent(item, sizes | {"L": 1}), _sent(item, sizes | {"L": 2})
        if two != one and gradients == (item.role in (Role.PARAMETER, Role.PARAMETER_GRADIENT)):
            out.setdefault((item.phase, item.action), []).append(two - one)
    return {key: sorted(sent) for key, sent in out.items()}


def _sent(item: Item, sizes: Mapping[str, int]) -> Fraction:
    return item.at({name: Form.constant(value) for name, value in sizes.items()}).sent.amount.evaluate({})


def recorded(run) -> dict[tuple[str, str], list[int]]:
    """The same of what is recorded in a forward and a backward pass of two layers and not of one.

    ``run`` takes a number of layers and returns the function that is the forward pass.
    """
    found = [_passes(run(layers)) for layers in (1, 2)]
    out: dict[tuple[str, str], list[int]] = {}
    for phase, *both in zip(("forward", "backward"), *found, strict=True):
        one, two = (Counter[Exchange](exchanges) for exchanges in both)
        assert one <= two
        for exchange in (two - one).elements():
            out.setdefault((phase, exchange.action), []).append(exchange.sent)
    return {key: sorted(sent) for key, sent in out.items()}


def _passes(step) -> tuple[list[Exchange], list[Exchange]]:
    with Record() as there:
        out = step()
    with Record() as back:
        out.sum().backward()
    return there.exchanges, back.exchanges


def tensor_parallel(style, ranks: int):
    """Some layers on the first of several ranks; in sequence parallelism it has its share of the positions."""

    def run(layers: int):
        x, weights, _ = random_blocks(WIDE | {"L": layers})
        own = part(weights, 0, ranks)
        given = x["x"].chunk(ranks, POSITIONS)[0] if style in (KEPT, AGAIN) else x["x"]
        return lambda: blocks(given.detach().requires_grad_(), own, style)

    return run


# Tensor and sequence parallelism.


@pytest.mark.parametrize("ranks", RANKS)
def test_tensor_parallelism_exchanges_what_is_derived(ranks: int) -> None:
    with fake_ranks(ranks):
        found = recorded(tensor_parallel(TENSOR, ranks))
    assert found == per_layer("Tensor", ranks, gradients=False)
    assert {key: len(sent) for key, sent in found.items()} == {
        ("forward", "all_reduce"): 2,
        ("backward", "all_reduce"): 2,
    }


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("style", "gathered", "again"), [(KEPT, "kept", 2), (AGAIN, "again", 4)])
def test_sequence_parallelism_exchanges_what_is_derived(style, gathered: str, again: int, ranks: int) -> None:
    with fake_ranks(ranks):
        found = recorded(tensor_parallel(style, ranks))
    assert found == per_layer("Sequence", ranks, gradients=False, gathered=gathered)
    assert {key: len(sent) for key, sent in found.items()} == {
        ("forward", "all_gather"): 2,
        ("forward", "reduce_scatter"): 2,
        ("backward", "all_gather"): again,
        ("backward", "reduce_scatter"): 2,
    }


@pytest.mark.parametrize("ranks", RANKS)
def test_sequence_parallelism_leaves_the_gradients_of_two_gains_to_be_added(ranks: int) -> None:
    """Which these are, the comparison of numbers below knows: without adding them it fails."""
    once = Fraction(2 * (ranks - 1) * WIDE["d"], ranks)
    assert per_layer("Sequence", ranks, gradients=True) == {("backward", "all_reduce"): [once, once]}


def test_projections_that_prepare_their_operand_each_for_itself_exchange_more_than_is_derived() -> None:
    """The comparison notices: two all-reduces more, of the cotangents of three operands instead of their sum."""
    with fake_ranks(8):
        found = recorded(tensor_parallel(EACH_PREPARED, 8))
    derived = per_layer("Tensor", 8, gradients=False)
    each = derived["backward", "all_reduce"][0]
    assert found["forward", "all_reduce"] == derived["forward", "all_reduce"]
    assert found["backward", "all_reduce"] == [*derived["backward", "all_reduce"], each, each]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("name", "style"), [("Tensor", TENSOR), ("Sequence", KEPT)])
def test_a_rank_computes_what_is_derived_for_one(name: str, style, ranks: int) -> None:
    """The counter stands outside of the exchanges, and layers are told apart by their number."""
    found = []
    for layers in (1, 2):
        with fake_ranks(ranks), FlopCounterMode(display=False) as counter:
            tensor_parallel(style, ranks)(layers)().sum().backward()
        found.append(counter.get_total_flops())
    terms = work_terms(partitioned(name, "kept"), CostModel("torch", causal="dense"))
    per_layer = total(t.amount for t in terms if t.in_loop).evaluate(WIDE | {"L": 1, "P_t": ranks})
    assert found[1] - found[0] == per_layer


# Sharded and replicated data parallelism.


def fully_sharded(ranks: int, *, reshard: bool):
    mesh = init_device_mesh("cpu", (ranks,))

    def run(layers: int):
        stack = nn.Sequential(*(DecoderLayer(WIDE["d"], WIDE["d_ff"], heads=WIDE["h"]) for _ in range(layers)))
        for layer in stack:
            fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
        fully_shard(stack, mesh=mesh)
        return lambda: stack(torch.randn(WIDE["B"], WIDE["m"], WIDE["d"]))

    return run


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("reshard", "gathered"), [(True, "again"), (False, "kept")])
def test_fully_sharded_layers_exchange_what_is_derived(reshard: bool, gathered: str, ranks: int) -> None:
    """In elements: PyTorch exchanges the parameters of a layer together, here they are listed one by one."""
    with fake_ranks(ranks):
        found = recorded(fully_sharded(ranks, reshard=reshard))
    derived = per_layer("ZeRO-3", ranks, gradients=True, gathered=gathered)
    assert {key: sum(sent) for key, sent in found.items()} == {key: sum(sent) for key, sent in derived.items()}
    assert sum(found["forward", "all_gather"]) * ranks == (ranks - 1) * LAYER_PARAMETERS
    assert (("backward", "all_gather") in found) == reshard


@pytest.mark.parametrize("ranks", RANKS)
def test_replicated_layers_all_reduce_what_is_derived(ranks: int) -> None:
    def run(layers: int):
        stack = nn.Sequential(*(DecoderLayer(WIDE["d"], WIDE["d_ff"], heads=WIDE["h"]) for _ in range(layers)))
        replicated = DistributedDataParallel(stack)
        replicated.register_comm_hook(None, reduced)
        return lambda: replicated(torch.randn(WIDE["B"], WIDE["m"], WIDE["d"]))

    with fake_ranks(ranks):
        sent = [[sum(x.sent for x in passed) for passed in _passes(run(layers))] for layers in (1, 2)]
    derived = per_layer("Data", ranks, gradients=True)
    assert [two - one for one, two in zip(*sent, strict=True)] == [0, sum(derived["backward", "all_reduce"])]
    assert sent[0][1] * ranks == 2 * (ranks - 1) * LAYER_PARAMETERS


# Numbers, from two processes that do exchange.


def compare(rank: int, ranks: int, file: str) -> None:
    """Every style gives this rank its part of the result, and of every gradient, of the layers on one rank."""
    torch.set_num_threads(1)  # a forked process has none of the threads of its parent
    x, weights, dy = random_blocks(SMALL)
    whole = blocks(x["x"], weights, PLAIN)
    whole.backward(dy)
    with real_rank(rank, ranks, file):
        for style in (TENSOR, EACH_PREPARED, KEPT, AGAIN):
            cut = style in (KEPT, AGAIN)

            def mine(t, cut=cut):
                return t.chunk(ranks, POSITIONS)[rank] if cut else t

            given, own = mine(x["x"]).detach().clone().requires_grad_(), part(weights, rank, ranks)
            out = blocks(given, own, style)
            out.backward(mine(dy))
            torch.testing.assert_close(out, mine(whole), rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(given.grad, mine(x["x"].grad), rtol=1e-9, atol=1e-9)
            gradients = part({n: w.grad for n, w in weights.items()}, rank, ranks)
            for name, wanted in gradients.items():
                found = own[name].grad
                if cut and name.startswith("gain"):  # sums over one's own positions
                    assert not torch.allclose(found, wanted)
                    torch.distributed.all_reduce(found)
                torch.testing.assert_close(found, wanted.detach(), rtol=1e-9, atol=1e-9)


def reported(queue, rank: int, *arguments) -> None:
    try:
        compare(rank, *arguments)
        queue.put((rank, ""))
    except Exception:
        queue.put((rank, traceback.format_exc()))
        raise


def test_two_processes_give_the_outputs_and_gradients_of_one(tmp_path) -> None:
    context = multiprocessing.get_context("spawn")  # autograd does not survive a fork
    queue = context.SimpleQueue()
    arguments = (2, str(tmp_path / "meeting"))
    ranks = [context.Process(target=reported, args=(queue, rank, *arguments), daemon=True) for rank in range(2)]
    for process in ranks:
        process.start()
    for _ in wait([process.sentinel for process in ranks], timeout=240):
        pass
    for process in ranks:
        process.join(timeout=120)
    late = [process for process in ranks if process.is_alive()]
    for process in late:
        process.kill()
    said = sorted(queue.get() for _ in ranks if not queue.empty())
    assert said == [(0, ""), (1, "")], f"{len(late)} of the processes did not end in time"
