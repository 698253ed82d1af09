"""PyTorch's FLOP counter without its silent zeros: an operation is priced, known to be light, or an error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from derive.torch_import.kinds import name_of, nature
from graphs.errors import GraphError


def _vector(matrix: Any, _vector: Any, **_: Any) -> int:
    """2k per dot product; the operands are shapes, of which the first has all axes."""
    return 2 * math.prod(matrix)


def _added_vector(_addend: Any, matrix: Any, vector: Any, **_: Any) -> int:
    return _vector(matrix, vector)


#: products with a vector, which PyTorch's counter passes over
VECTOR_PRICES: Mapping[Any, Callable[..., int]] = {
    torch.ops.aten.mv: _vector,
    torch.ops.aten.dot: _vector,
    torch.ops.aten.vdot: _vector,
    torch.ops.aten.addmv: _added_vector,
}
#: what reads numbers off a tensor, such as which experts are needed: no graph has it, but it is no arithmetic
READS = ("nonzero", "_local_scalar_dense")


class Seen(TorchDispatchMode):  # type: ignore[misc]
    """Every operation that runs, in order of first appearance."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: dict[Any, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations[func] = None
        return func(*args, **(kwargs or {}))


@contextmanager
def strict_flops(prices: Mapping[Any, Callable[..., int]] | None = None) -> Iterator[Any]:
    """PyTorch's `FlopCounterMode`; GraphError at the end where it gave no price to an operation that may be heavy.

    ``prices`` add to PyTorch's, by operation such as VECTOR_PRICES.  Contractions without a price, and
    operations that this package has no rule for, are refused; what is pointwise, a reduction or a movement is light.
    """
    own = dict(prices or {})
    with Seen() as seen, FlopCounterMode(display=False, custom_mapping=own) as counter:
        yield counter
    unpriced = sorted({str(op) for op in seen.operations if not _settled(op, {*flop_registry, *own})})
    if unpriced:
        raise GraphError(
            f"PyTorch's counter prices {', '.join(unpriced)} at zero; give a price, or run what it can count instead"
        )


def _settled(op: Any, priced: set[Any]) -> bool:
    return op.overloadpacket in priced or name_of(op) in READS or nature(op) not in (None, "contraction")
