"""FLOPs and parameters that `derive evaluate` gives are those of `transformers`, in integers.

PyTorch's counter takes causal attention as dense, and so does our figure here.  Attention and experts are run in ways
that it counts: products written out, and experts one after the other or, on the meta device, as batched products.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch.nn", reason="needs the extra 'hf'")
pytest.importorskip("transformers", reason="needs the extra 'hf'")

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from derive.torch_import.strict import strict_flops
from graphs.errors import GraphError
from tests.hf.cases import PUBLIC, TINY, TINY_BY_NAME, Case, each
from tests.hf.models import build, nothing_hidden, tokens, weights


def counted(function) -> int:
    with strict_flops() as counter:
        function()
    return counter.get_total_flops()


def forward_and_backward(model, ids, **options) -> tuple[int, int]:
    outputs = []
    forward = counted(lambda: outputs.append(model(ids, use_cache=False, **options).logits))
    return forward, counted(outputs[0].sum().backward)


@each(TINY_BY_NAME)
@pytest.mark.parametrize("experts", ["eager", "batched_mm"])
def test_flops_and_parameters_of_tiny_models_are_theirs(case: Case, experts: str) -> None:
    model = build(case.keys, experts=experts)
    work, hidden = case.setting.work(), case.hidden_pairs()
    expected = (work["forward"].rank + hidden, work["backward"].rank + 2 * hidden)
    assert forward_and_backward(model, tokens(case.keys, case.B, case.m)) == expected
    assert sum(p.numel() for p in weights(model).values()) == case.setting.parameters()["total"].rank


@each(PUBLIC)
def test_flops_and_parameters_of_public_models_are_theirs(case: Case) -> None:
    """On the meta device, which has shapes alone."""
    model = build(case.keys, experts="batched_mm", device="meta")
    assert sum(p.numel() for p in weights(model).values()) == case.setting.parameters()["total"].rank
    ids = torch.zeros(case.B, case.m, dtype=torch.long, device="meta")
    work, hidden = case.setting.work(), case.hidden_pairs()
    expected = (work["forward"].rank + hidden, work["backward"].rank + 2 * hidden)
    assert forward_and_backward(model, ids, attention_mask=nothing_hidden(model, case.B, case.m, case.m)) == expected


def test_windows_hide_pairs_of_some_tiny_and_some_public_models() -> None:
    for cases in (TINY_BY_NAME, PUBLIC):
        assert {case.hidden_pairs() > 0 for case in cases.values()} == {True, False}


@pytest.mark.parametrize("kind", ["deepseek_v3", "gpt_oss", "mixtral", "qwen3_moe"])
def test_grouped_products_which_are_what_experts_do_unasked_are_refused(kind: str) -> None:
    case = TINY[kind][1]
    aligned = {"hidden_size": 16, "intermediate_size": 8, "moe_intermediate_size": 8}
    model = build({**case.keys, **aligned}, experts=None)
    with pytest.raises(GraphError, match=r"PyTorch's counter prices .*grouped_mm.* at zero"):
        forward_and_backward(model, tokens(case.keys, case.B, case.m))


def test_fused_attention_is_refused_and_by_its_products_is_what_is_written_out() -> None:
    case = TINY["llama"][0]
    model, ids = build(case.keys, attention="sdpa"), tokens(case.keys, case.B, case.m)
    with pytest.raises(GraphError, match=r"_scaled_dot_product_flash_attention_for_cpu.* at zero"):
        forward_and_backward(model, ids)
    with sdpa_kernel(SDPBackend.MATH):
        found = forward_and_backward(model, ids)
    work = case.setting.work()
    assert found == (work["forward"].rank, work["backward"].rank)
