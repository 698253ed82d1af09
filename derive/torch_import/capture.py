"""One layer's joint graph of forward and backward pass, with symbolic sizes, as PyTorch's `make_fx` traces it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

from derive.torch_import.load import Layer, said
from derive.torch_import.strict import VECTOR_PRICES, strict_flops
from graphs.errors import GraphError


@dataclass(frozen=True)
class Captured:
    """A traced graph; its placeholders are the ``tensors``, by name, of which ``parameters`` are parameters.

    Of its outputs the first ``results`` are those of the forward pass, the others gradients.
    """

    layer: Layer
    traced: Any
    tensors: Mapping[str, Any]
    parameters: frozenset[str]
    results: int


def _sized(norm: Callable[..., Any]) -> Callable[..., Any]:
    """A norm takes the sizes that it is told, which are numbers in its module, from its operand."""

    @wraps(norm)
    def sized(input: Any, normalized_shape: Any, *rest: Any, **options: Any) -> Any:  # noqa: A002
        return norm(input, input.shape[-len(normalized_shape) :], *rest, **options)

    return sized


def _symbolic(root: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(root)
    def sqrt(x: Any, /) -> Any:
        return torch.sym_sqrt(x) if isinstance(x, torch.SymInt | torch.SymFloat) else root(x)

    return sqrt


#: functions that would make a number of a size's symbol, each with what makes it keep the symbol
KEEPING = (
    (torch.nn.functional, "layer_norm", _sized),
    (torch.nn.functional, "rms_norm", _sized),
    (math, "sqrt", _symbolic),
)


@contextmanager
def sizes_as_symbols() -> Iterator[None]:
    """In the block sizes stay symbols where modules commonly make numbers of them."""
    with ExitStack() as stack:
        for owner, name, keeping in KEEPING:
            original = getattr(owner, name)
            stack.callback(setattr, owner, name, original)
            setattr(owner, name, keeping(original))
        yield


@contextmanager
def countable() -> Iterator[None]:
    """Fused attention is done by its contractions, which the tracer and PyTorch's counter can see."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def tensors_of(layer: Layer) -> dict[str, Any]:
    """Parameters, buffers and those inputs that are tensors, by name."""
    named = layer.inputs if isinstance(layer.inputs, Mapping) else {f"input_{i}": x for i, x in enumerate(layer.inputs)}
    state = {**dict(layer.module.named_parameters()), **dict(layer.module.named_buffers())}
    clash = sorted(state.keys() & named.keys())
    if clash:
        raise GraphError(f"{layer.place}: input {clash[0]!r} has the name of a parameter; pass inputs by position")
    return state | {name: x for name, x in named.items() if isinstance(x, torch.Tensor)}


class Step(torch.nn.Module):  # type: ignore[misc]
    """A layer's forward pass and, if wanted, its backward pass, as one module, so that both see the same parameters."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.inner, self.inputs = layer.module, layer.inputs

    def forward(self, tensors: Mapping[str, Any], wanted: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Tensors that the layer returns, and the gradients of all of them in each ``wanted`` one that has some."""
        if isinstance(self.inputs, Mapping):
            returned = self.inner(**{n: tensors.get(n, x) for n, x in self.inputs.items()})
        else:
            returned = self.inner(*(tensors.get(f"input_{i}", x) for i, x in enumerate(self.inputs)))
        out = [x for x in tree_leaves(returned) if isinstance(x, torch.Tensor)]
        ends = [x for x in out if x.requires_grad]
        if wanted and ends:
            torch.autograd.backward(ends, [torch.ones_like(x) for x in ends])
        return out, [x.grad for x in wanted if x.grad is not None]


def run(layer: Layer, values: Mapping[str, Any], *, backward: bool) -> tuple[list[Any], list[Any]]:
    """Results, and the gradients of all of them in every parameter and every input that has one."""
    parameters, buffers = dict(layer.module.named_parameters()), dict(layer.module.named_buffers())
    fixed = {*buffers, *(n for n, p in parameters.items() if not p.requires_grad)}
    leaves = {n: v.detach() for n, v in values.items()}
    wanted = [v.requires_grad_() for n, v in leaves.items() if n not in fixed and v.is_floating_point()]
    state = {f"inner.{n}": leaves.pop(n) for n in (*parameters, *buffers)}
    out: tuple[list[Any], list[Any]] = torch.func.functional_call(
        Step(layer), state, (leaves, wanted if backward else [])
    )
    return out


def capture(layer: Layer) -> Captured:
    """Trace the joint graph; GraphError with PyTorch's own words where it cannot be traced."""
    tensors = tensors_of(layer)
    names = tuple(tensors)
    results: list[int] = []

    def step(*values: Any) -> list[Any]:
        out, gradients = run(layer, dict(zip(names, values, strict=True)), backward=True)
        results.append(len(out))
        return [*out, *gradients]

    try:
        with countable(), sizes_as_symbols():
            traced = make_fx(step, tracing_mode="symbolic", record_stack_traces=True)(*tensors.values())
    except Exception as error:
        raise GraphError(f"{layer.place}: PyTorch cannot trace it, it {said(error)}; mend or simplify it") from error
    parameters = frozenset(name for name, _ in layer.module.named_parameters())
    return Captured(layer, traced, tensors, parameters, results[-1])


def counted(layer: Layer) -> dict[str, int]:
    """PyTorch's own count on the example, of the forward pass and of both; GraphError where it has no price.

    Products with vectors, which it passes over, are given a price.
    """
    values = tensors_of(layer)
    return {name: _count(layer, values, backward=name == "total") for name in ("forward", "total")}


def _count(layer: Layer, values: Mapping[str, Any], *, backward: bool) -> int:
    with countable(), strict_flops(VECTOR_PRICES) as counter:
        try:
            run(layer, values, backward=backward)
        except Exception as error:
            raise GraphError(f"{layer.place}: the example {said(error)}; mend it") from error
    return int(counter.get_total_flops())
