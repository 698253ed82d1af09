"""Every architecture against `transformers`: logits, loss and every gradient, with its weights under our names."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs the extra 'hf'")
pytest.importorskip("transformers", reason="needs the extra 'hf'")

from torch.nn import functional

from graphs.execute import run
from graphs.models.transformer import forward
from graphs.transforms.backward import training
from tests.hf.cases import TINY_BY_NAME, Case, each
from tests.hf.models import build, double_precision, randomised, tokens, weights
from tests.hf.weights import arrays, ours


@each(TINY_BY_NAME)
def test_logits_loss_and_every_gradient_are_theirs(case: Case) -> None:
    ids, targets = (tokens(case.keys, case.B, case.m, seed) for seed in (1, 2))
    with double_precision():
        model = randomised(build(case.keys))
        logits = model(ids).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
    graph = training(forward(case.model.at(B=case.B, m=case.m), loss=True))
    inputs = ours(case.model, case.keys, graph.weights(), arrays(weights(model)))
    found = run(graph, inputs | {"ids": ids.numpy(), "targets": targets.numpy()}, {})
    np.testing.assert_allclose(found["out"], logits.detach().numpy(), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found["loss"], loss.item(), rtol=1e-10)
    slopes = ours(case.model, case.keys, graph.parameters(), arrays({n: t.grad for n, t in model.named_parameters()}))
    for name, _ in graph.parameters():
        np.testing.assert_allclose(found[f"grad:{name}"], slopes[name], rtol=1e-7, atol=1e-10, err_msg=name)
