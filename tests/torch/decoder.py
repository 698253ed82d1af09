"""The canonical decoder in PyTorch, on all of the weights or on one rank's part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from graphs.ops.pointwise import EPSILON
from graphs.transforms.recompute import Recompute

STACKED = ("gain_1", "W_q", "W_k", "W_v", "W_o", "gain_2", "W_1", "W_2")
#: the axis of each weight that tensor parallelism cuts: heads or feed-forward channels
CUT = {"W_q": 1, "W_k": 1, "W_v": 1, "W_o": 0, "W_1": 1, "W_2": 0}

again = partial(checkpoint, use_reentrant=False)


def products(x, weights):
    """The operand times each of the weights that read it."""
    return [x @ w for w in weights]


@dataclass(frozen=True)
class Style:
    """How a block is run: its projections of one operand, what completes its sums, and what is computed again."""

    project: Callable[..., Any] = products
    complete: Callable[..., Any] = lambda x: x
    attend: Callable[..., Any] = lambda f, *operands: f(*operands)
    whole: Callable[..., Any] = lambda f, *operands: f(*operands)


PLAIN = Style()
STYLES = {
    Recompute.NONE: PLAIN,
    Recompute.SELECTIVE: Style(attend=again),
    Recompute.LAYER_BOUNDARY: Style(whole=again),
}


def mix(q, k, v):
    """Between the projections: scores, probabilities, and values mixed by them."""
    m = q.shape[2]
    scores = (q @ k.transpose(2, 3)) / q.shape[-1] ** 0.5
    future = torch.ones(m, m, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v


def attention(x, w, style):
    k = w["W_q"].shape[-1]
    projected = style.project(x, [w[n].flatten(1) for n in ("W_q", "W_k", "W_v")])
    mixed = style.attend(mix, *(p.unflatten(-1, (-1, k)).transpose(1, 2) for p in projected))
    return mixed.transpose(1, 2).flatten(2) @ w["W_o"].flatten(0, 1)


def feedforward(x, w, style):
    (u,) = style.project(x, [w["W_1"]])
    return functional.gelu(u, approximate="tanh") @ w["W_2"]


def norm(x, gain):
    return functional.layer_norm(x, gain.shape, gain, eps=EPSILON)


def block(x, w, style=PLAIN):
    x = x + style.complete(attention(norm(x, w["gain_1"]), w, style))
    return x + style.complete(feedforward(norm(x, w["gain_2"]), w, style))


def blocks(x, p, style=PLAIN):
    for i in range(p["W_1"].shape[0]):
        x = style.whole(block, x, {n: p[n][i] for n in STACKED}, style)
    return x


def output_of(role, p, style=PLAIN):
    """Logits of every position, a number for each, or one for each sequence."""
    x = norm(blocks(functional.embedding(p["ids"].long(), p["W_e"]), p, style), p["gain_f"])
    if role == "policy":
        return x @ p["W_e"].T
    return x[:, -1] @ p["w_reward"] if role == "reward" else x @ p["w_value"]


def loss_of(role, out, targets):
    if role == "policy":
        return functional.cross_entropy(out.flatten(0, 1), targets.long().flatten())
    return functional.mse_loss(out, targets)


def step(role, p, style=PLAIN):
    return loss_of(role, output_of(role, p, style), p["targets"])


def tensors(inputs):
    return {
        name: torch.tensor(
            np.asarray(a, dtype=float), dtype=torch.float64, requires_grad=name not in ("ids", "targets")
        )
        for name, a in inputs.items()
    }


def random_blocks(sizes, seed=0):
    """An operand, the weights of some blocks, and a cotangent of the result."""
    draw = np.random.default_rng(seed)
    L, d, h, d_ff = (sizes[n] for n in ("L", "d", "h", "d_ff"))
    heads = (d, h, d // h)
    shapes = {"gain_1": (d,), "W_q": heads, "W_k": heads, "W_v": heads, "W_o": (h, d // h, d), "gain_2": (d,)}
    shapes |= {"W_1": (d, d_ff), "W_2": (d_ff, d)}
    x, dy = (draw.normal(size=(sizes["B"], sizes["m"], d)) for _ in range(2))
    weights = {name: draw.normal(size=(L, *shape)) for name, shape in shapes.items()}
    return tensors({"x": x}), tensors(weights), torch.tensor(dy)


def part(weights, rank, ranks):
    """One rank's weights under tensor parallelism, as leaves of their own."""
    return {
        name: (w.chunk(ranks, CUT[name] + 1)[rank] if name in CUT else w).detach().clone().requires_grad_()
        for name, w in weights.items()
    }


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
