"""Elements that every layer keeps for the backward pass: ours, and by name what `transformers` keeps besides.

It computes the same function by some other operations.  Each of these differences is a term of its own; with them the
numbers are equal, layer by layer.  Experts are run as batched products, whose copies do not depend on the choice made.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch.nn", reason="needs the extra 'hf'")
pytest.importorskip("transformers", reason="needs the extra 'hf'")

from derive.costs.model import PAPER
from derive.memory import saved_terms
from graphs.blocks.experts import SIGMOID, Experts
from graphs.blocks.grouped import Grouped
from graphs.blocks.latent import Latent
from graphs.models.transformer import RMS, Layer, forward, periods
from graphs.transforms.backward import training
from tests.hf.cases import TINY_BY_NAME, Case, each
from tests.hf.models import build, layers_of, tokens
from tests.torch.decoder import elements_saved


def kept_by_layer(model, ids) -> list[int]:
    """Elements of a layer: what is kept when it is done and was not when it began."""
    before, found = [], []
    with elements_saved(model.parameters()) as kept:
        for layer in layers_of(model):
            layer.register_forward_pre_hook(lambda *_: before.append(sum(kept.values())))
            layer.register_forward_hook(lambda *_: found.append(sum(kept.values()) - before[-1]))
        model(ids, use_cache=False)
    return found


def besides(case: Case, layer: Layer) -> dict[str, int]:
    """What they keep in such a layer, less what we keep in its stead."""
    return normalised(case, layer) | attended(case, layer) | fed(case, layer)


def normalised(case: Case, layer: Layer) -> dict[str, int]:
    """A root-mean-square norm is a product and another one by the gain; the first result is kept for the second."""
    n, attention = case.n, layer.attention
    width = 2 * n.d if case.model.norm == RMS else 0
    if isinstance(attention, Grouped) and attention.norm:
        width += (n.h + n.h_kv) * n.d_h
    if isinstance(attention, Latent):
        width += n.d_kv + (n.d_q if attention.q_latent else 0)
    return {"results of norms before their gain": n.rows * width}


def attended(case: Case, layer: Layer) -> dict[str, int]:
    n = case.n
    if isinstance(layer.attention, Latent):
        return {
            "latent and shared key as one tensor": n.rows * n.d_r,
            "copies of the shared key": n.rows * (n.h - 1) * n.d_r,
        }
    return {"copies of keys and values": 2 * n.rows * (n.h - n.h_kv) * n.d_h}


def fed(case: Case, layer: Layer) -> dict[str, int]:
    n = case.n
    if case.model.name == "gpt2":
        return {"steps of GELU": 3 * n.rows * n.d_ff}
    if not isinstance(layer.ffn, Experts):
        return {}
    pairs = n.rows * n.E_a
    out = {
        "copies of tokens for experts": pairs * n.d,
        "copies of experts for tokens": 3 * pairs * n.d_e * n.d,
        "places of kept scores, not the scores": -pairs,
    }
    if layer.ffn.clamped:
        return out | {"clamped gates and their sigmoids": 2 * pairs * n.d_e}
    out |= {"gates before they are divided, and their sum": pairs + n.rows}
    if layer.ffn.gates == SIGMOID:
        return out | {"no gates before they are scaled": -pairs}
    return out | {"probabilities of all experts": n.rows * n.E}


def tables(case: Case) -> int:
    """Cosines and sines of all positions, kept once, when the first layer reads them; of gpt-oss those of one half."""
    n, attention = case.n, case.model.layers[0].attention
    if isinstance(attention, Grouped) and attention.base is None:
        return 0
    width = n.d_r if isinstance(attention, Latent) else n.d_h
    return case.m * width * (1 if case.model.name == "gpt_oss" else 2)


def ours_by_loop(case: Case) -> dict[str, int]:
    graph, found = training(forward(case.model.at(B=case.B, m=case.m), loss=True)), dict[str, int]()
    for term in saved_terms(graph, PAPER):
        if term.in_loop:
            loop = term.where.split("/")[0]
            found[loop] = found.get(loop, 0) + int(term.amount.evaluate({}))
    return found


@each(TINY_BY_NAME)
def test_every_layer_keeps_our_saved_tensors_and_what_is_named(case: Case) -> None:
    theirs = kept_by_layer(build(case.keys, experts="batched_mm"), tokens(case.keys, case.B, case.m))
    theirs[0] -= tables(case)
    layers, expected = case.model.layers, {}
    loops = periods(layers)
    for i, (pattern, times) in enumerate(loops):
        first = sum(len(p) * n for p, n in loops[:i])
        mine = range(first, first + len(pattern) * times)
        more = sum(sum(besides(case, layers[j]).values()) for j in mine)
        expected["blocks" if len(loops) == 1 else f"part_{i + 1}.blocks"] = sum(theirs[j] for j in mine) - more
    assert ours_by_loop(case) == expected
    assert all(theirs[i] == theirs[layers.index(layer)] for i, layer in enumerate(layers))
