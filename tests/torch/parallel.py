"""Parallel training in PyTorch: exchanges with their gradients, a record of what is exchanged, groups of ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from tests.torch.decoder import Style

POSITIONS = 1


def all_reduced(x):
    out = x.clone()
    dist.all_reduce(out)
    return out


def gathered(x):
    """The whole of what every rank has a slice of positions of."""
    ranks = dist.get_world_size()
    pieces = x.new_empty(ranks * x.shape[0], *x.shape[1:])
    dist.all_gather_single(pieces, x.contiguous())
    return torch.cat(pieces.chunk(ranks), POSITIONS)


def scattered(x):
    """One's own slice of positions of the sum over ranks."""
    pieces = x.chunk(dist.get_world_size(), POSITIONS)
    out = torch.empty_like(pieces[0], memory_format=torch.contiguous_format)
    dist.reduce_scatter_single(out, torch.cat(pieces))
    return out


def linear(forward, backward):
    """An exchange that is linear, with the one that is its transpose."""

    class Exchange(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx, x):
            return forward(x)

        @staticmethod
        def backward(ctx, dy):
            return backward(dy)

    return Exchange.apply


def unchanged(x):
    return x.view_as(x)


class GatheredAgain(torch.autograd.Function):  # type: ignore[misc]
    """Products of a gathered operand that keep the slice alone and gather it again for the weights' gradients."""

    @staticmethod
    def forward(ctx, x, *weights):
        ctx.save_for_backward(x, *weights)
        whole = gathered(x)
        return tuple(whole @ w for w in weights)

    @staticmethod
    def backward(ctx, *cotangents):
        x, *weights = ctx.saved_tensors
        rows = gathered(x).flatten(0, 1)
        dx = sum(dy @ w.t() for dy, w in zip(cotangents, weights, strict=True))
        return scattered(dx), *(rows.t() @ dy.flatten(0, 1) for dy in cotangents)


enter_tensor, leave_tensor = linear(unchanged, all_reduced), linear(all_reduced, unchanged)
enter_sequence, leave_sequence = linear(gathered, scattered), linear(scattered, gathered)


def prepared(enter):
    """Products of an operand that is exchanged once for all of them."""

    def project(x, weights):
        whole = enter(x)
        return [whole @ w for w in weights]

    return project


TENSOR = Style(prepared(enter_tensor), leave_tensor)
EACH_PREPARED = Style(lambda x, weights: [enter_tensor(x) @ w for w in weights], leave_tensor)
KEPT = Style(prepared(enter_sequence), leave_sequence)
AGAIN = Style(lambda x, weights: GatheredAgain.apply(x, *weights), leave_sequence)


def reduced(_state, bucket):
    """A hook that does to gradients what replicated data parallelism does by itself, where a record can see it."""
    total = bucket.buffer().div_(dist.get_world_size())
    dist.all_reduce(total)
    ready = torch.futures.Future()
    ready.set_result(total)
    return ready


@dataclass(frozen=True)
class Exchange:
    """``elements`` are those of the whole tensor: what is reduced, or what is there once it is gathered."""

    action: str
    ranks: int
    elements: int

    @property
    def sent(self) -> int:
        """By one rank, if chunks go round in a ring: each passes every link once, and twice to reduce and gather."""
        (chunk, rest) = divmod(self.elements, self.ranks)
        assert rest == 0
        return (2 if self.action == "all_reduce" else 1) * (self.ranks - 1) * chunk


def _size(group) -> int:
    return dist.ProcessGroup.unbox(group).size()


#: operation -> what it is
EXCHANGES: dict[str, Callable[..., tuple[str, int, int]]] = {
    "allreduce_": lambda tensors, group, *_: ("all_reduce", _size(group), sum(t.numel() for t in tensors)),
    "_allgather_base_": lambda whole, _piece, group, *_: ("all_gather", _size(group), whole.numel()),
    "_reduce_scatter_base_": lambda _piece, whole, group, *_: ("reduce_scatter", _size(group), whole.numel()),
}


class Record(TorchDispatchMode):  # type: ignore[misc]
    """The exchanges that happen inside the block, in order; an unknown kind is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges: list[Exchange] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace in ("c10d", "_c10d_functional"):
            name = func.overloadpacket.__name__
            self.exchanges.append(Exchange(*EXCHANGES[name](*args)))
        return func(*args, **(kwargs or {}))


@contextmanager
def fake_ranks(ranks: int) -> Iterator[None]:
    """Rank 0 of a group whose other members do not exist: exchanges take place in name only."""
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def real_rank(rank: int, ranks: int, file: str) -> Iterator[None]:
    """One of several processes that exchange over gloo and find each other through a file."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{file}")
    try:
        yield
    finally:
        dist.destroy_process_group()
