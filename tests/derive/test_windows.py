"""Sliding windows: visible pairs and rows against scalar expansion, for sequences below, at and above the width."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from derive.costs.counting import volume
from derive.costs.model import FULL, PAPER
from derive.costs.rule import cost
from derive.forms import Form, symbol
from derive.memory import elements
from graphs.axes import Axis, Role, Split, Tensor, Window
from graphs.errors import GraphError
from graphs.ir import Builder, Op
from graphs.ops.contraction import Contraction
from graphs.ops.reduction import Reduction
from graphs.symbols import size
from tests.oracle import expand_node

WINDOW = ("s", "t")


def tensor(names: str, m: int, width: int | None = None) -> Tensor:
    sizes = {"s": m, "t": m, "c": 3}
    domain = () if width is None else (Window(*WINDOW, sympy.Integer(width)),)
    return Tensor(tuple(Axis(n, sympy.Integer(sizes[n])) for n in names.split()), Role.ACTIVATION, domain)


def occurrences(m: int, width: int) -> dict[str, tuple[Op, tuple[Tensor, ...]]]:
    masked = tensor("s t", m, width)
    return {
        "scores": (Contraction(("s", "t"), masked.domain), (tensor("s c", m), tensor("t c", m))),
        "mixing": (Contraction(("s", "c")), (masked, tensor("t c", m))),
        "columns": (Contraction(("t", "c")), (masked, tensor("s c", m))),
        "rows": (Reduction("max", ("t",)), (masked,)),
        "all pairs": (Reduction("sum", ("s", "t")), (masked,)),
    }


@pytest.mark.parametrize("name", occurrences(1, 1))
@given(m=st.integers(1, 7), width=st.integers(1, 9))
def test_work_and_depth_under_a_window_are_those_of_the_scalar_expansion(name: str, m: int, width: int) -> None:
    op, operands = occurrences(m, width)[name]
    build = Builder("single")
    build.output("y", build.add(op, *(build.input(f"x{i}", t) for i, t in enumerate(operands)))[0])
    graph = build.graph()
    found, scalars = cost(graph, graph.nodes[0], FULL), expand_node(graph, graph.nodes[0], {})
    assert found.work.evaluate({}) == scalars.work
    assert found.depth.evaluate({}) == scalars.depth


@given(m=st.integers(1, 60), width=st.integers(1, 70))
def test_visible_pairs_are_those_listed_one_by_one(m: int, width: int) -> None:
    pairs = sum(1 for s in range(m) for t in range(m) if t <= s < t + width)
    masked = tensor("s t", m, width)
    assert volume(masked.axes, masked.domain, FULL).evaluate({}) == pairs
    assert elements(masked, FULL).evaluate({}) == m * m  # what nobody sees is stored all the same


@given(m=st.integers(1, 60), width=st.integers(60, 90), causal=st.sampled_from(["exact", "half", "dense"]))
def test_a_window_that_nothing_exceeds_is_causal_attention(m: int, width: int, causal: str) -> None:
    model, masked = replace(PAPER, causal=causal), tensor("s t", m, width)
    found = volume(masked.axes, masked.domain, model).evaluate({})
    assert 2 * found == {"exact": m * (m + 1), "half": m * m, "dense": 2 * m * m}[causal]


def test_symbols_give_a_form_where_one_is_a_multiple_of_the_other_and_are_refused_else() -> None:
    m, n, h = size("m"), size("K"), size("h")
    axes = [Axis("s", m * n), Axis("t", m * n)]
    assert (
        volume(axes, (Window(*WINDOW, m),), FULL)
        == symbol("m") * (2 * symbol("m") * symbol("K") - symbol("m") + 1) * Form.constant(1) / 2
    )
    assert volume(axes, (Window(*WINDOW, m * n * h),), PAPER) == (symbol("m") * symbol("K")) ** 2 / 2
    with pytest.raises(GraphError, match=r"^nothing says which is smaller, h or K\*m; give them numbers, or one as a"):
        volume(axes, (Window(*WINDOW, h),), FULL)


def test_ranks_that_share_the_queries_of_a_window_do_its_mean_work() -> None:
    query, key = (Axis(n, sympy.Integer(8), (Split("P_c"),) if n == "s" else ()) for n in "st")
    window = (Window("s", "t", sympy.Integer(3)),)
    assert volume((query, key), window, FULL) == Form.constant(21) / symbol("P_c")
    with pytest.raises(GraphError, match="balance the causal work"):
        volume((query, key), window, replace(FULL, balanced_causal=False))


@given(m=st.integers(1, 60), width=st.integers(1, 70))
def test_dense_and_half_counts_are_a_full_band_and_the_band_below_the_diagonal(m: int, width: int) -> None:
    """Dense: as many keys for every query as the widest row has; half: the area under the mask, without its steps."""
    masked, w = tensor("s t", m, width), min(m, width)
    found = {c: volume(masked.axes, masked.domain, replace(PAPER, causal=c)).evaluate({}) for c in ("dense", "half")}
    assert found["dense"] == sum(w for _ in range(m))
    assert found["half"] == sum(min(s, w) for s in range(m)) + Fraction(w, 2)
