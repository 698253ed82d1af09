"""Cases A09, A10 and A11: utilisation, training time, and what recomputation multiplies.

Counted: products of matrices, 2 FLOPs for each multiplication and addition; logits of every token.  A step is forward
and backward; under full recomputation each layer's whole forward pass runs twice, the logits' once.  Each test names
its causal counting.
"""

from __future__ import annotations

import pytest

from derive.work import Term
from graphs.architectures import Config, model_of
from graphs.models.transformer import Transformer
from graphs.transforms.recompute import Recompute
from tests.cases.models import core, gpt, parameters, rerun, step, summed, terms

DAY = 86_400


def palm() -> Transformer:
    """PaLM-540B as far as it is counted: multi-query attention, gated layers of 4 d, a tied table of 256,000."""
    keys = {
        "model_type": "llama", "head_dim": 256, "hidden_size": 18_432, "intermediate_size": 4 * 18_432,
        "num_attention_heads": 48, "num_hidden_layers": 118, "num_key_value_heads": 1, "tie_word_embeddings": True,
        "vocab_size": 256_000,
    }  # fmt: skip
    return model_of(Config(keys, "case"))


def test_a09_utilisation_of_palm() -> None:
    """Work of a training step per token, times tokens per second, over the peak of all chips; 2048 tokens."""
    model, m = palm(), 2048
    assert parameters(model)["matmul"] == 540_354_281_472  # PaLM gives 540.35e9, norms left out
    speed, peak = 238_300, 6144 * 275e12

    def utilisation(attention: int) -> float:
        return round(100 * speed * (6 * 540.35e9 + attention / m) / peak, 3)

    assert utilisation(0) == 45.726
    assert utilisation(core(model, m, "dense")) == 46.229
    assert utilisation(core(model, m, "half")) == 45.978


def test_a09_twelve_is_dense_and_six_is_half_causal() -> None:
    """T=16, H=2, Q=8, L=3: 12 L H Q T per token dense, 6 L H Q (T+1) exactly causal."""
    keys = {
        "model_type": "llama", "head_dim": 8, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2,
        "num_hidden_layers": 3, "vocab_size": 8,
    }  # fmt: skip
    model = model_of(Config(keys, "case"))
    assert core(model, 16, "dense") == 16 * 9216
    assert core(model, 16, "exact") == 16 * 4896
    assert core(model, 16, "half") == 16 * 4608


def counted_parameters(model: Transformer) -> int:
    """As Narayanan et al. 2021 count them: without the last norm's gain and bias."""
    return parameters(model)["total"] - 2 * int(model.shape.d)


@pytest.mark.parametrize(
    ("layers", "width", "count", "tokens", "devices", "speed", "days"),
    [
        (96, 12_288, 174_615_822_336, 300e9, 1024, 140e12, 33.83),
        (128, 25_600, 1_008_038_707_200, 450e9, 3072, 163e12, 83.9),
    ],
    ids=["GPT-3", "1T"],
)
def test_a10_days_of_training_by_eight_times_parameters_times_tokens(
    layers: int, width: int, count: int, tokens: float, devices: int, speed: float, days: float
) -> None:
    model = gpt(layers, width, 51_200)
    assert counted_parameters(model) == count
    assert round(8 * tokens * count / (devices * speed) / DAY, len(str(days).partition(".")[2])) == days


@pytest.mark.parametrize(("layers", "width", "percent"), [(96, 12_288, 2.65), (128, 25_600, 1.29)], ids=["GPT-3", "1T"])
def test_a10_the_exact_work_exceeds_eight_times_parameters(layers: int, width: int, percent: float) -> None:
    """Dense, layers recomputed, 2048 tokens in a sequence."""
    model, m = gpt(layers, width, 51_200), 2048
    found = summed(rerun(model, m, "dense"))
    assert found == 96 * m * layers * width**2 + 16 * m**2 * layers * width + 6 * m * width * 51_200
    rule = 8 * counted_parameters(model) * m
    assert round(100 * (found - rule) / rule, 2) == percent


A10 = {
    ("query", "key", "value"): "11.9588",
    ("scores",): "1.32876",
    ("mix",): "1.32876",
    ("out_projection",): "3.98627",
    ("ffn_up", "ffn_down"): "31.8901",
    ("unembedding",): "0.56623",
}
COOKBOOK, TOKENS = (44, 6144, 51_200), 300 * 10**9


def of(names: tuple[str, ...], term: Term) -> bool:
    return term.where.rpartition("/")[2].split(".")[0] in names


def test_a10_a_calculators_printout_part_by_part() -> None:
    """Dense, layers recomputed; 300e9 tokens in sequences of 2048, in ZFLOP."""
    found = rerun(gpt(*COOKBOOK), 2048, "dense")
    for names, zetta in A10.items():
        work = sum(int(t.amount.evaluate({})) for t in found if of(names, t)) * TOKENS / 2048 / 1e21
        assert f"{work:.{len(zetta.partition('.')[2])}f}" == zetta, names
    assert round(summed(found) * TOKENS / 2048 / 1e21, 4) == 51.0589
    assert round(step(gpt(*COOKBOOK), 2048, "dense") * TOKENS / 2048 / 1e21, 4) == 38.4358


def test_a10_what_the_graph_computes_again_is_all_of_a_layer_but_its_last_product() -> None:
    """Published forms run it again all the same."""
    model, m = gpt(3, 32, 40), 16
    again = summed(t for t in terms(model, m, "dense", recompute=Recompute.LAYER_BOUNDARY) if t.phase == "recompute")
    layers = [t for t in terms(model, m, "dense") if t.in_loop and t.phase == "forward"]
    assert again == summed(t for t in layers if not of(("ffn_down",), t))
    assert summed(layers) - again == 2 * m * 3 * 4 * 32**2


@pytest.mark.parametrize(("layers", "width", "share"), [(6, 512, 38.02), (44, 6144, 1.089)], ids=["70m", "20B"])
def test_a11_the_vocabulary_term_belongs_inside_the_prefactor(layers: int, width: int, share: float) -> None:
    """Dense, layers recomputed, one sequence of 2048: outside, all that the logits cost is lost but for V/(16 l h)."""
    m, vocabulary = 2048, 50_257
    model = gpt(layers, width, vocabulary)
    found = rerun(model, m, "dense")
    right, logits = summed(found), summed(t for t in found if of(("unembedding",), t))
    wrong = right - logits + vocabulary / (16 * layers * width)
    assert f"{100 * (right - wrong) / right:.4g}" == f"{share:.4g}"
    if layers == 6:
        assert (f"{right:.6g}", f"{wrong:.6g}") == ("8.31586e+11", "5.15396e+11")


def test_a11_training_work_of_the_two_products_of_attention_is_12_s_squared_h() -> None:
    """Dense, nothing recomputed, one layer, s=8, h=16."""
    assert core(gpt(1, 16, 8), 8, "dense") == 12_288
