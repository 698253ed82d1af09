"""PyTorch's counter prices some heavy operations at zero without a word; the strict one does not."""

from __future__ import annotations

import pytest

pytest.importorskip("torch.nn", reason="needs the extra 'torch'")

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from derive.torch_import.strict import VECTOR_PRICES, strict_flops
from graphs.errors import GraphError


def attention():
    q = torch.randn(2, 3, 4, 8)
    return functional.scaled_dot_product_attention(q, q, q)


def grouped():
    a, b = (torch.randn(2, *s, dtype=torch.bfloat16) for s in ((4, 8), (8, 16)))
    return torch._grouped_mm(a, b)


def loose(function) -> int:
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def strict(function, prices=None) -> int:
    with strict_flops(prices) as counter:
        function()
    return counter.get_total_flops()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (attention, "aten._scaled_dot_product_flash_attention_for_cpu.default"),
        (grouped, "aten._grouped_mm.default"),
        (lambda: torch.ones(3, 4) @ torch.ones(4), "aten.mv.default"),
        (lambda: torch.ones(4).dot(torch.ones(4)), "aten.dot.default"),
        (lambda: torch.linalg.inv_ex(torch.eye(3)), "aten.linalg_inv_ex.default"),
        (lambda: torch.cdist(torch.ones(3, 4), torch.ones(3, 4)), "aten._cdist_forward.default"),
        (lambda: torch.nn.LSTM(3, 5)(torch.ones(2, 7, 3)), "aten.mkldnn_rnn_layer.default"),
    ],
)
def test_what_the_counter_passes_over_is_named(function, name: str) -> None:
    assert loose(function) == 0
    with pytest.raises(GraphError, match=f"PyTorch's counter prices {name} at zero"):
        strict(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda: torch.ones(3, 4) @ torch.ones(4, 5),
        lambda: torch.addmm(torch.ones(5), torch.ones(3, 4), torch.ones(4, 5)),
        lambda: torch.baddbmm(torch.ones(5), torch.ones(2, 3, 4), torch.ones(2, 4, 5)),
        lambda: torch.einsum("ij,kj->ik", torch.ones(3, 4), torch.ones(5, 4)),
        lambda: functional.conv1d(torch.ones(2, 3, 11), torch.ones(5, 3, 3)),
    ],
)
def test_what_the_counter_prices_is_counted_as_it_does(function) -> None:
    assert strict(function) == loose(function) > 0


def test_attention_done_by_its_products_is_counted() -> None:
    with sdpa_kernel(SDPBackend.MATH):
        assert strict(attention) == 2 * 2 * (2 * 3 * 4 * 4 * 8)


def test_a_price_of_ones_own_settles_an_operation() -> None:
    assert strict(lambda: torch.ones(3, 4) @ torch.ones(4), VECTOR_PRICES) == 2 * 3 * 4
    assert strict(lambda: torch.addmv(torch.ones(3), torch.ones(3, 4), torch.ones(4)), VECTOR_PRICES) == 2 * 3 * 4
    assert strict(lambda: torch.ones(4).dot(torch.ones(4)), VECTOR_PRICES) == 2 * 4
    price = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda *_, **__: 7}
    assert strict(attention, price) == 7


def test_what_is_light_needs_no_price() -> None:
    def light():
        x = torch.randn(3, 4, requires_grad=True)
        y = functional.layer_norm(functional.gelu(x.t().contiguous()), (3,)).softmax(-1)
        assert x[x > 0].numel() == int((x > 0).sum())
        functional.cross_entropy(torch.cat([y, y.roll(1, 0)], 1), torch.zeros(4, dtype=torch.long)).backward()

    assert strict(light) == 0


def test_the_backward_pass_is_watched_too() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    y = torch.linalg.inv(x @ x.t() + torch.eye(3)).sum()
    with strict_flops() as counter:
        y.backward()
    assert counter.get_total_flops() > 0
    q = torch.randn(2, 3, 4, 8, requires_grad=True)
    out = functional.scaled_dot_product_attention(q, q, q).sum()
    with pytest.raises(GraphError, match="_scaled_dot_product_flash_attention_for_cpu_backward"):
        strict(out.backward)


def test_an_error_inside_comes_out_as_itself() -> None:
    with pytest.raises(ZeroDivisionError), strict_flops():
        raise ZeroDivisionError
