"""Published forms and numbers: equal to the derived ones but for named terms, which are derived too."""

from __future__ import annotations

from fractions import Fraction

import pytest

from derive.footprint import Footprint, footprint
from derive.forms import Form, symbol, total
from derive.memory import Widths
from derive.options import asked, holding, widths_of

B, m, L, d, h, V, P_t, P_d = (symbol(n) for n in ("B", "m", "L", "d", "h", "V", "P_t", "P_d"))


def layer(scheme: str = "none", recompute: str = "none") -> Footprint:
    return footprint(holding(asked("policy", scheme), recompute, dropout=True, in_bytes=True), Widths())


def saved(scheme: str = "none", recompute: str = "none") -> Form:
    """Bytes of a layer's activations and masks, d_ff = 4 d."""
    (form,) = layer(scheme, recompute).per_layer("activations", "masks").amount.members
    return form.substitute({"d_ff": 4 * d})


# -- activations (Korthikanti et al.) ---------------------------------------------------------------------------------
s, b, a, t = m, B, h, P_t
TABLE_2 = {
    ("none", "none"): s * b * d * 34 + 5 * a * s**2 * b,
    ("tensor", "none"): s * b * d * (10 + 24 * t**-1) + 5 * a * s**2 * b / t,
    ("sequence", "none"): 34 * s * b * d / t + 5 * a * s**2 * b / t,
    ("tensor", "selective"): s * b * d * (10 + 24 * t**-1),
    ("sequence", "selective"): 34 * s * b * d / t,
    ("none", "layer-boundary"): 2 * s * b * d,
}


@pytest.mark.parametrize(("scheme", "recompute"), TABLE_2)
def test_activations_and_masks_of_a_layer_are_the_published_ones(scheme: str, recompute: str) -> None:
    assert saved(scheme, recompute) == TABLE_2[scheme, recompute]


@pytest.mark.parametrize(
    ("scheme", "recompute", "residual"),
    [
        ("none", "none", 16 * B * m),
        ("tensor", "none", 16 * B * m),
        ("sequence", "none", 16 * B * m / P_t),
        ("sequence", "selective", 16 * B * m / P_t),
        ("none", "layer-boundary", 0 * B),
    ],
)
def test_what_the_published_forms_leave_out_are_the_statistics_of_the_norms(scheme, recompute, residual) -> None:
    """Mean and reciprocal deviation of two norms, four bytes for each token and number."""
    found = layer(scheme, recompute)
    (whole,) = found.per_layer().amount.members
    assert whole.substitute({"d_ff": 4 * d}) - TABLE_2[scheme, recompute] == residual
    assert total(t.amount for t in found.layer_terms("statistics")) == residual


TINY = {"m": 8, "B": 2, "d": 16, "h": 4, "d_ff": 64, "P_t": 4}


ATTENTION = (
    "norm_1[0]",
    "query[0]",
    "key[0]",
    "value[0]",
    "probabilities[0]",
    "mix[0]",
    "probabilities.dropout[0]",
    "probabilities.dropout[1]",
    "attention.dropout[1]",
)
PARTS = {
    "attention": (ATTENTION, 5376),
    "feed-forward": (("norm_2[0]", "ffn_up[0]", "gelu[0]", "ffn.dropout[1]"), 4864),
    "norms": (("x[0]", "residual_1[0]"), 1024),
}


def test_a_tiny_layer_by_its_parts() -> None:
    """Attention with its input and the mask after it, the feed-forward layer with the same, and the norms' inputs."""
    terms = layer().layer_terms("activations", "masks")
    bytes_of = {t.where.removeprefix("blocks/"): t.amount.evaluate(TINY) for t in terms}
    for names, expected in PARTS.values():
        assert sum(bytes_of.pop(name) for name in names) == expected
    assert not bytes_of
    assert saved().evaluate(TINY) == sum(expected for _, expected in PARTS.values()) == 11264


@pytest.mark.parametrize(
    ("scheme", "recompute", "expected"),
    [("tensor", "none", 4736), ("sequence", "none", 2816), ("sequence", "selective", 2176)],
)
def test_tiny_layer_on_four_ranks(scheme: str, recompute: str, expected: int) -> None:
    assert saved(scheme, recompute).evaluate(TINY) == expected


def test_a_layer_of_4096_tokens_is_bytes_already() -> None:
    sizes = {"m": 4096, "B": 1, "d": 4096, "h": 32}
    assert saved().evaluate(sizes) / 2**30 == Fraction("3.03125")
    assert 4 * saved().evaluate(sizes) / 2**30 == Fraction(
        "12.125"
    )  # what a tool gave that multiplied by a width again


def test_selective_recomputation_of_gpt_3_saves_seventy_percent() -> None:
    sizes = {"m": 2048, "B": 1, "d": 12288, "h": 96}
    everything, selective = saved().evaluate(sizes), saved(recompute="selective").evaluate(sizes)
    per_entry = sizes["m"] * sizes["d"]
    assert (everything - selective) / per_entry == 80
    assert everything / per_entry == 114
    assert round(100 * (everything - selective) / everything, 2) == Fraction("70.18")


# -- state (ZeRO, Megatron) -------------------------------------------------------------------------------------------
def state(scheme: str, gradients: int = 2) -> Form:
    q = holding(asked("policy", scheme), "none", in_bytes=True)
    (form,) = (
        footprint(q, widths_of([f"gradients={gradients}"])).total("weights", "gradients", "optimizer").amount.members
    )
    return form


PSI = L * (4 * d**2 + 2 * d * symbol("d_ff") + 2 * d) + V * d + d
ONE = Form.constant(1)


@pytest.mark.parametrize(
    ("scheme", "gradients", "per_parameter"),
    [
        ("data", 2, 16 * ONE),
        ("zero-1", 2, 4 + 12 * P_d**-1),
        ("zero-2", 2, 2 + 14 * P_d**-1),
        ("zero-3", 2, 16 * P_d**-1),
        ("data", 4, 18 * ONE),
        ("zero-1", 4, 6 + 12 * P_d**-1),
    ],
)
def test_state_in_bytes_of_a_parameter(scheme: str, gradients: int, per_parameter: Form) -> None:
    assert state(scheme, gradients) == PSI * per_parameter
