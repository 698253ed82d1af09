"""Collective algorithms that really move arrays between ranks, round by round; written without the traffic rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Array = np.ndarray
Wire = tuple[int, int]


class Network:
    """Delivers one round of messages at a time; a rank sends at most one and receives at most one per round."""

    def __init__(self) -> None:
        self.rounds: list[dict[Wire, int]] = []

    def deliver(self, messages: Mapping[Wire, Array]) -> dict[Wire, Array]:
        assert len({a for a, _ in messages}) == len(messages) == len({b for _, b in messages})
        assert all(a != b for a, b in messages)
        self.rounds.append({wire: data.size for wire, data in messages.items()})
        return {wire: data.copy() for wire, data in messages.items()}

    @property
    def sent(self) -> Counter[int]:
        return self._count(0)

    @property
    def received(self) -> Counter[int]:
        return self._count(1)

    def _count(self, end: int) -> Counter[int]:
        out = Counter[int]()
        for messages in self.rounds:
            for wire, size in messages.items():
                out[wire[end]] += size
        return out

    @property
    def messages(self) -> Counter[int]:
        return Counter(a for messages in self.rounds for a, _ in messages)

    @property
    def serial(self) -> int:
        """Elements that follow each other in time: the longest message of each round."""
        return sum(max(messages.values()) for messages in self.rounds)


def pieces(array: Array, p: int) -> list[Array]:
    return [c.copy() for c in np.array_split(array.ravel(), p)]


# Ring.


def ring_reduce_scatter(net: Network, arrays: Sequence[Array]) -> list[Array]:
    """Rank r ends with the sum of everybody's chunk r."""
    p = len(arrays)
    chunks = [pieces(a, p) for a in arrays]
    for step in range(p - 1):
        moving = {(r, (r + 1) % p): chunks[r][(r - step - 1) % p] for r in range(p)}
        for (source, target), data in net.deliver(moving).items():
            chunks[target][(source - step - 1) % p] += data
    return [chunks[r][r] for r in range(p)]


def ring_all_gather(net: Network, parts: Sequence[Array]) -> list[Array]:
    """Every rank ends with the parts of all, in order."""
    p = len(parts)
    have = [{r: parts[r]} for r in range(p)]
    for step in range(p - 1):
        moving = {(r, (r + 1) % p): have[r][(r - step) % p] for r in range(p)}
        for (source, target), data in net.deliver(moving).items():
            have[target][(source - step) % p] = data
    return [np.concatenate([h[i].ravel() for i in range(p)]) for h in have]


def ring_all_reduce(net: Network, arrays: Sequence[Array]) -> list[Array]:
    return ring_all_gather(net, ring_reduce_scatter(net, arrays))


def direct_all_to_all(net: Network, arrays: Sequence[Array]) -> list[Array]:
    """Rank r ends with chunk r of every rank, in order."""
    p = len(arrays)
    chunks = [pieces(a, p) for a in arrays]
    got = [{r: chunks[r][r]} for r in range(p)]
    for step in range(1, p):
        moving = {(r, (r + step) % p): chunks[r][(r + step) % p] for r in range(p)}
        for (source, target), data in net.deliver(moving).items():
            got[target][source] = data
    return [np.concatenate([g[i] for i in range(p)]) for g in got]


# Recursive halving and doubling, and Bruck's all-to-all; powers of two.


def tree_reduce_scatter(net: Network, arrays: Sequence[Array]) -> list[Array]:
    p = len(arrays)
    chunks = [dict(enumerate(pieces(a, p))) for a in arrays]
    mask = p // 2
    while mask:
        away = [[c for c in sorted(chunks[r]) if (c ^ r) & mask] for r in range(p)]
        moving = {(r, r ^ mask): np.concatenate([chunks[r].pop(c) for c in away[r]]) for r in range(p)}
        for (source, target), data in net.deliver(moving).items():
            start = 0
            for c in away[source]:
                size = chunks[target][c].size
                chunks[target][c] += data[start : start + size]
                start += size
        mask //= 2
    return [chunks[r][r] for r in range(p)]


def tree_all_gather(net: Network, parts: Sequence[Array]) -> list[Array]:
    p, mask = len(parts), 1
    have = [{r: parts[r].ravel()} for r in range(p)]
    while mask < p:
        order = [sorted(h) for h in have]
        moving = {(r, r ^ mask): np.concatenate([have[r][c] for c in order[r]]) for r in range(p)}
        for (source, target), data in net.deliver(moving).items():
            sizes = np.cumsum([parts[c].size for c in order[source]])[:-1]
            have[target] |= dict(zip(order[source], np.split(data, sizes), strict=True))
        mask *= 2
    return [np.concatenate([h[i] for i in range(p)]) for h in have]


def tree_all_reduce(net: Network, arrays: Sequence[Array]) -> list[Array]:
    return tree_all_gather(net, tree_reduce_scatter(net, arrays))


def bruck_all_to_all(net: Network, arrays: Sequence[Array]) -> list[Array]:
    """Position i of a rank holds what has i ranks to go; those whose i has the bit go that far in one round."""
    p, mask = len(arrays), 1
    chunks = [pieces(a, p) for a in arrays]
    held = [[chunks[r][(r + i) % p] for i in range(p)] for r in range(p)]
    while mask < p:
        going = [i for i in range(p) if i & mask]
        moving = {(r, (r + mask) % p): np.concatenate([held[r][i] for i in going]) for r in range(p)}
        for (_, target), data in net.deliver(moving).items():
            for i, part in zip(going, np.split(data, len(going)), strict=True):
                held[target][i] = part
        mask *= 2
    return [np.concatenate([held[r][(r - source) % p] for source in range(p)]) for r in range(p)]


# Through rank 0, and plain moves.


def central_all_reduce(net: Network, arrays: Sequence[Array]) -> list[Array]:
    total = arrays[0].copy()
    for r in range(1, len(arrays)):
        total += net.deliver({(r, 0): arrays[r]})[r, 0]
    return [total, *(net.deliver({(0, r): total})[0, r] for r in range(1, len(arrays)))]


def send(net: Network, arrays: Sequence[Array]) -> list[Array]:
    """Rank 0 to rank 1."""
    return [arrays[0], net.deliver({(0, 1): arrays[0]})[0, 1], *arrays[2:]]


def permute(net: Network, arrays: Sequence[Array]) -> list[Array]:
    p = len(arrays)
    moved = net.deliver({(r, (r + 1) % p): arrays[r] for r in range(p)})
    return [moved[(r - 1) % p, r] for r in range(p)]


Algorithm = Callable[[Network, Sequence[Array]], list[Array]]
SIMULATED: dict[tuple[str, str], Algorithm] = {
    ("all_reduce", "ring"): ring_all_reduce,
    ("reduce_scatter", "ring"): ring_reduce_scatter,
    ("all_gather", "ring"): ring_all_gather,
    ("all_to_all", "ring"): direct_all_to_all,
    ("all_reduce", "tree"): tree_all_reduce,
    ("reduce_scatter", "tree"): tree_reduce_scatter,
    ("all_gather", "tree"): tree_all_gather,
    ("all_to_all", "tree"): bruck_all_to_all,
    ("all_reduce", "central"): central_all_reduce,
    **{("send", a): send for a in ("ring", "tree", "central")},
    **{("permute", a): permute for a in ("ring", "tree", "central")},
}


def outcome(action: str, arrays: Sequence[Array]) -> list[Array]:
    """What the ranks must end with, said directly."""
    p, flat = len(arrays), [a.ravel() for a in arrays]
    if action == "all_reduce":
        return [np.sum(flat, axis=0)] * p
    if action == "reduce_scatter":
        return list(np.array_split(np.sum(flat, axis=0), p))
    if action == "all_gather":
        return [np.concatenate(flat)] * p
    if action == "all_to_all":
        return [np.concatenate([np.array_split(a, p)[r] for a in flat]) for r in range(p)]
    if action == "send":
        return [flat[0], flat[0], *flat[2:]]
    return [flat[(r - 1) % p] for r in range(p)]
