"""The canonical decoder in PyTorch: same loss, gradients, FLOPs and saved tensors.  Skipped without torch."""

from __future__ import annotations

import numpy as np
import pytest

# Not "torch" alone: without the extra, this very folder may be found under that name.
pytest.importorskip("torch.nn", reason="needs the extra 'torch'")

from derive.costs.model import PAPER, CostModel
from derive.forms import symbol, total
from derive.memory import saved_terms
from derive.torch_import.strict import VECTOR_PRICES, strict_flops
from derive.work import work_terms
from graphs.execute import run
from graphs.models.roles import ROLES, forward
from graphs.sizes import Sizes
from graphs.transforms.backward import training
from graphs.transforms.recompute import Recompute
from tests.strategies import arrays_for
from tests.torch.decoder import STYLES, elements_saved, loss_of, output_of, step, tensors

SIZES = Sizes.canonical()
N = {"B": 2, "m": 5, "L": 3, "d": 6, "h": 3, "d_ff": 10, "V": 11}
OTHERS = {"B": 3, "m": 4, "L": 2, "d": 8, "h": 2, "d_ff": 7, "V": 5}
#: PyTorch's counter takes causal attention as full, and a dot product as 2k
DENSE_CAUSAL = CostModel("torch", causal="dense")


@pytest.mark.parametrize("recompute", Recompute)
@pytest.mark.parametrize("role", ["policy", "reward", "value"])
def test_output_loss_and_every_gradient_are_pytorchs(role, recompute) -> None:
    graph = training(forward(SIZES, ROLES[role], loss=True), recompute=recompute)
    inputs = arrays_for(graph, N)
    ours, theirs = run(graph, inputs, N), tensors(inputs)
    out = output_of(role, theirs, STYLES[recompute])
    loss = loss_of(role, out, theirs["targets"])
    loss.backward()
    np.testing.assert_allclose(ours["out"], out.detach().numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours["loss"], loss.item(), rtol=1e-10)
    for name, _ in graph.parameters():
        np.testing.assert_allclose(ours[f"grad:{name}"], theirs[name].grad.numpy(), rtol=1e-8, atol=1e-11, err_msg=name)


def flops(graph, sizes, *phases) -> int:
    terms = work_terms(graph, DENSE_CAUSAL)
    return int(total(t.amount for t in terms if t.phase in phases).evaluate(sizes))


def counted(function) -> int:
    with strict_flops(VECTOR_PRICES) as counter:
        function()
    return counter.get_total_flops()


@pytest.mark.parametrize("sizes", [N, OTHERS])
def test_pytorchs_flop_counter_counts_our_work_forward_and_twice_that_backward(sizes) -> None:
    graph = training(forward(SIZES, loss=True))
    p, losses = tensors(arrays_for(graph, sizes)), []
    forward_flops = counted(lambda: losses.append(step("policy", p)))
    B, m, L, d, d_ff, V = (sizes[n] for n in ("B", "m", "L", "d", "d_ff", "V"))
    assert forward_flops == 2 * B * m * L * (4 * d**2 + 2 * d * d_ff + 2 * m * d) + 2 * B * m * V * d
    assert forward_flops == flops(graph, sizes, "forward")
    assert counted(losses[0].backward) == 2 * forward_flops == flops(graph, sizes, "backward")


@pytest.mark.parametrize("sizes", [N, OTHERS])
@pytest.mark.parametrize("recompute", Recompute)
def test_pytorchs_flop_counter_counts_our_recomputation(recompute, sizes) -> None:
    """Without re-entrance PyTorch, too, does not compute the last product of what it repeats again."""
    graph = training(forward(SIZES, loss=True), recompute=recompute)
    loss = step("policy", tensors(arrays_for(graph, sizes)), STYLES[recompute])
    assert counted(loss.backward) == flops(graph, sizes, "recompute", "backward")


#: per layer, by what is computed again
B, m, d, h, d_ff = (symbol(n) for n in ("B", "m", "d", "h", "d_ff"))
SAVED = {
    Recompute.NONE: 8 * B * m * d + 2 * B * m * d_ff + B * h * m**2 + 4 * B * m,
    Recompute.SELECTIVE: 8 * B * m * d + 2 * B * m * d_ff + 4 * B * m,
    Recompute.LAYER_BOUNDARY: B * m * d,
}


@pytest.mark.parametrize("sizes", [N, OTHERS])
@pytest.mark.parametrize("recompute", Recompute)
def test_pytorch_saves_our_saved_tensors_in_every_layer(recompute, sizes) -> None:
    """The difference between two layers and one is what a layer saves."""
    graph = training(forward(SIZES, loss=True), recompute=recompute)
    found = []
    for layers in (1, 2):
        p = tensors(arrays_for(graph, sizes | {"L": layers}))
        with elements_saved(p.values()) as kept:
            step("policy", p, STYLES[recompute])
        found.append(sum(kept.values()))
    per_layer = total(t.amount for t in saved_terms(graph, PAPER) if t.in_loop) / symbol("L")
    assert per_layer == SAVED[recompute]
    assert found[1] - found[0] == per_layer.evaluate(sizes)
