"""Layers that the tests import by name, each with an example of its inputs and, mostly, names for its sizes."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

SIZES = {"B": 3, "m": 5, "d": 14, "d_ff": 11}
HEADS = 7


class DecoderLayer(nn.Module):  # type: ignore[misc]
    """The canonical block, without biases, with its number of heads as a plain number."""

    def __init__(self, d: int, d_ff: int, heads: int = HEADS, fused: bool = False) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm_1, self.norm_2 = nn.LayerNorm(d, bias=False), nn.LayerNorm(d, bias=False)
        self.query, self.key, self.value, self.out = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(d, d_ff, bias=False), nn.Linear(d_ff, d, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))

    def attention(self, x):
        B, m, d = x.shape
        q, k, v = (
            p(x).view(B, m, self.heads, d // self.heads).transpose(1, 2) for p in (self.query, self.key, self.value)
        )
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            future = torch.ones(m, m, dtype=torch.bool).triu(1)
            mixed = (q @ k.transpose(2, 3) * 0.5).masked_fill(future, float("-inf")).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(B, m, d))


class Packed(nn.Module):  # type: ignore[misc]
    """Attention whose three projections are one weight, and whose width is never compared with anything by hand."""

    def __init__(self, d: int, heads: int = HEADS) -> None:
        super().__init__()
        self.heads, self.packed, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.packed(x).chunk(3, -1))
        p = (q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])).softmax(-1)
        return self.out((p @ v).transpose(1, 2).flatten(2))


class Einsum(nn.Module):  # type: ignore[misc]
    """Attention over named letters; the sizes come from the weights, so that heads are a symbol too."""

    def __init__(self, d: int, h: int, k: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(d, h, k) for _ in range(3))
        self.out = nn.Parameter(torch.randn(h, k, d))

    def forward(self, x):
        q, k, v = (torch.einsum("bsc,chk->bhsk", x, w) for w in self.weights)
        p = torch.einsum("bhsk,bhtk->bhst", q, k).softmax(-1)
        return torch.einsum("bhst,bhtk,hkc->bsc", p, v, self.out)


class Checkpointed(nn.Module):  # type: ignore[misc]
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


class Calling(nn.Module):  # type: ignore[misc]
    """A function as a module."""

    def __init__(self, function, **parameters) -> None:
        super().__init__()
        self.function = function
        self.w = nn.Parameter(torch.randn(5, 7))

    def forward(self, *inputs):
        return self.function(self.w, *inputs)


def residual(sizes, **options):
    return DecoderLayer(sizes["d"], sizes["d_ff"], **options), (torch.randn(sizes["B"], sizes["m"], sizes["d"]),), sizes


def decoder():
    return residual(SIZES)


def fused():
    return residual(SIZES, fused=True)


def checkpointed():
    layer, inputs, sizes = decoder()
    return Checkpointed(layer), inputs, sizes


def mlp():
    sizes = {"n": 3, "a": 5, "b": 7, "c": 11}
    layers = nn.Sequential(nn.Linear(5, 7), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(7, 11), nn.Tanh())
    return layers, (torch.randn(3, 5),), sizes


def packed():
    return Packed(14), (torch.randn(5, 11, 14),), {"B": 5, "m": 11, "d": 14}


def builtin():
    return nn.TransformerEncoderLayer(14, HEADS, 11, batch_first=True), (torch.randn(3, 5, 14),), SIZES


def einsum():
    return Einsum(14, 3, 2), (torch.randn(5, 11, 14),), {"B": 5, "m": 11, "d": 14, "h": 3, "k": 2}


def tied():
    """A language model's embedding and tied head; inputs by name."""
    embedding, head = nn.Embedding(11, 7), nn.Linear(7, 11, bias=False)
    head.weight = embedding.weight
    layer = nn.Sequential(embedding, head)
    ids = torch.zeros(3, 5, dtype=torch.long)
    return layer, {"input": ids}, {"V": 11, "d": 7, "B": 3, "m": 5}


def frozen():
    """The first of two products needs no gradient."""
    layers = nn.Sequential(nn.Linear(5, 7, bias=False), nn.Linear(7, 11, bias=False))
    layers[0].weight.requires_grad_(False)
    return layers, (torch.randn(3, 5),), {"n": 3, "a": 5, "b": 7, "c": 11}


def vectors():
    return Calling(lambda w, x: (w @ x, x @ x)), (torch.randn(7),), {"a": 5, "b": 7}


def unnamed():
    return Calling(lambda w, x: x @ w), (torch.randn(3, 5),)


def uneven():
    """Half of an odd number of rows."""
    return Calling(lambda w, x: x[: x.shape[0] // 2] @ w), (torch.randn(13, 5),), {"a": 5, "b": 7, "n": 13}


def in_place():
    """Products that reach the result through views of a tensor that is filled piece by piece."""

    def filled(w, x):
        out = x.new_zeros(2, x.shape[0], w.shape[1])
        out[0] = x @ w
        out[1] = (x @ w).relu_()
        return out.sum(0)

    return Calling(filled), (torch.randn(3, 5),), {"n": 3, "a": 5, "b": 7}


def normalised():
    """Running means are changed besides the result."""
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)), (torch.randn(3, 5),), {"n": 3, "a": 5, "b": 7}


def convolution():
    return nn.Conv1d(3, 5, 3), (torch.randn(2, 3, 11),)


def inverse():
    return Calling(lambda w, x: torch.linalg.inv(x) @ w), (torch.randn(5, 5),)


def flash():
    """Fused attention that the layer insists on."""

    def attend(_w, x):
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(x, x, x)[0]

    return Calling(attend), (torch.randn(2, 3, 5, 8),)


def guarded():
    return Calling(lambda w, x: x @ w * x.sum().item() if x.sum() > 0 else x), (torch.randn(3, 5),)


def unused():
    return Calling(lambda w, x: (x @ w, x)[1]), (torch.randn(3, 5),)


def failing():
    raise KeyError("no weights here")


def nothing():
    return None


def no_module():
    return (lambda x: x), (torch.randn(3),)


def one_tensor():
    return nn.Linear(5, 7), torch.randn(3, 5)


def same_sizes():
    return nn.Linear(5, 7), (torch.randn(5, 5),), {"a": 5, "b": 5}


NOT_CALLABLE = 3
