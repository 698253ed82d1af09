"""The canonical decoder in PyTorch: same loss, gradients, FLOPs and saved tensors.  Skipped without torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

# Not "torch" alone: without the extra, this very folder may be found under that name.
pytest.importorskip("torch.nn", reason="needs the extra 'torch'")

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint as checkpointed
from torch.utils.flop_counter import FlopCounterMode

from derive.costs.model import PAPER, CostModel
from derive.forms import total
from derive.memory import saved_terms
from derive.work import work_terms
from graphs.execute import run
from graphs.models.roles import ROLES, forward
from graphs.ops.pointwise import EPSILON
from graphs.sizes import Sizes
from graphs.transforms.backward import Recompute, training
from tests.strategies import arrays_for

SIZES = Sizes.canonical()
N = {"B": 2, "m": 5, "L": 3, "d": 6, "h": 3, "d_ff": 10, "V": 11}
#: PyTorch's counter takes causal attention as full, and a dot product as 2k
DENSE_CAUSAL = CostModel("torch", causal="dense")
STACKED = ("gain_1", "W_q", "W_k", "W_v", "W_o", "gain_2", "W_1", "W_2")


def attention(x, w):
    B, m, d = x.shape
    q, k, v = ((x @ w[n].reshape(d, d)).view(B, m, -1, w[n].shape[-1]).transpose(1, 2) for n in ("W_q", "W_k", "W_v"))
    scores = (q @ k.transpose(2, 3)) / q.shape[-1] ** 0.5
    future = torch.ones(m, m, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
    return mixed.transpose(1, 2).reshape(B, m, d) @ w["W_o"].reshape(d, d)


def norm(x, gain):
    return functional.layer_norm(x, gain.shape, gain, eps=EPSILON)


def block(x, w):
    x = x + attention(norm(x, w["gain_1"]), w)
    return x + functional.gelu(norm(x, w["gain_2"]) @ w["W_1"], approximate="tanh") @ w["W_2"]


def loss_of(role, p, checkpoint=False):
    x = functional.embedding(p["ids"].long(), p["W_e"])
    for i in range(p["W_1"].shape[0]):
        w = {n: p[n][i] for n in STACKED}
        x = checkpointed(block, x, w, use_reentrant=False) if checkpoint else block(x, w)
    x = norm(x, p["gain_f"])
    if role == "policy":
        logits = x @ p["W_e"].T
        return functional.cross_entropy(logits.flatten(0, 1), p["targets"].long().flatten())
    out = x[:, -1] @ p["w_reward"] if role == "reward" else x @ p["w_value"]
    return functional.mse_loss(out, p["targets"])


def tensors(inputs):
    return {
        name: torch.tensor(
            np.asarray(a, dtype=float), dtype=torch.float64, requires_grad=name not in ("ids", "targets")
        )
        for name, a in inputs.items()
    }


@pytest.mark.parametrize("recompute", Recompute)
@pytest.mark.parametrize("role", ["policy", "reward", "value"])
def test_the_loss_and_every_gradient_are_pytorchs(role, recompute) -> None:
    graph = training(forward(SIZES, ROLES[role], loss=True), recompute=recompute)
    inputs = arrays_for(graph, N)
    ours, theirs = run(graph, inputs, N), tensors(inputs)
    loss = loss_of(role, theirs, checkpoint=recompute is Recompute.LAYER_BOUNDARY)
    loss.backward()
    np.testing.assert_allclose(ours["loss"], loss.item(), rtol=1e-10)
    for name, _ in graph.parameters():
        np.testing.assert_allclose(ours[f"grad:{name}"], theirs[name].grad.numpy(), rtol=1e-8, atol=1e-11, err_msg=name)


def flops(phase, graph, sizes) -> int:
    return int(total(t.amount for t in work_terms(graph, DENSE_CAUSAL) if t.phase == phase).evaluate(sizes))


@pytest.mark.parametrize("sizes", [N, {"B": 3, "m": 4, "L": 2, "d": 8, "h": 2, "d_ff": 7, "V": 5}])
def test_pytorchs_flop_counter_counts_our_work_forward_and_twice_that_backward(sizes) -> None:
    graph = training(forward(SIZES, loss=True))
    p = tensors(arrays_for(graph, sizes))
    with FlopCounterMode(display=False) as counter:
        loss = loss_of("policy", p)
    forward_flops = counter.get_total_flops()
    B, m, L, d, d_ff, V = (sizes[n] for n in ("B", "m", "L", "d", "d_ff", "V"))
    assert forward_flops == 2 * B * m * L * (4 * d**2 + 2 * d * d_ff + 2 * m * d) + 2 * B * m * V * d
    assert forward_flops == flops("forward", graph, sizes)
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    assert counter.get_total_flops() == 2 * forward_flops == flops("backward", graph, sizes)


def test_pytorchs_flop_counter_counts_our_recomputation() -> None:
    """Without re-entrance PyTorch, too, does not compute a layer's last product again."""
    graph = training(forward(SIZES, loss=True), recompute=Recompute.LAYER_BOUNDARY)
    loss = loss_of("policy", tensors(arrays_for(graph, N)), checkpoint=True)
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    assert counter.get_total_flops() == flops("recompute", graph, N) + flops("backward", graph, N)


@contextmanager
def elements_saved(parameters) -> Iterator[dict[int, int]]:
    """Elements kept for backward, each storage once, parameters and masks excepted."""
    known = {p.untyped_storage().data_ptr() for p in parameters}
    kept: dict[int, int] = {}
    alive = []

    def pack(tensor):
        storage = tensor.untyped_storage().data_ptr()
        if storage not in known and tensor.is_floating_point():
            kept[storage] = tensor.untyped_storage().nbytes() // tensor.element_size()
            alive.append(tensor)  # so that no other tensor takes its place in memory
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield kept


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.LAYER_BOUNDARY])
def test_pytorch_saves_our_saved_tensors_in_every_layer(recompute) -> None:
    """The difference between two layers and one is what a layer saves."""
    graph = training(forward(SIZES, loss=True), recompute=recompute)
    found = []
    for layers in (1, 2):
        p = tensors(arrays_for(graph, N | {"L": layers}))
        with elements_saved(p.values()) as kept:
            loss_of("policy", p, checkpoint=recompute is Recompute.LAYER_BOUNDARY)
        found.append(sum(kept.values()))
    per_layer = total(t.amount for t in saved_terms(graph, PAPER) if t.in_loop).evaluate(N | {"L": 1})
    assert found[1] - found[0] == per_layer
