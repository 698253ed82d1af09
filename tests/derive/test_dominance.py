"""Pruning is sound: what is called nonnegative, or below, is so at every size."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.dominance import below, below_any, nonnegative
from derive.forms import Form, ceil_log2, log2, symbol, total
from derive.maxplus import Arrival, join
from tests.strategies import FACTORS, NAMES, any_sizes, forms, reductions

d, h, d_h, L, B = (symbol(n) for n in ("d", "h", "d_h", "L", "B"))
free_sizes = st.fixed_dictionaries({n: st.integers(1, 40) for n in ("B", "L", "h", "d_h")}).map(
    lambda s: s | {"d": s["h"] * s["d_h"]}
)
#: rounding of logs
SLACK = Fraction(1, 10**9)
#: depths as they occur: sums of reductions, some of them once per layer
depths = st.lists(st.tuples(st.integers(0, 3), reductions, st.sampled_from([Form.constant(1), L])), max_size=3).map(
    lambda terms: total(c * r * n for c, r, n in terms)
)


@settings(max_examples=300)
@given(form=forms, sizes=any_sizes)
def test_what_is_called_nonnegative_is_so_at_all_sizes(form: Form, sizes: dict[str, int]) -> None:
    if nonnegative(form):
        assert form.evaluate(sizes) >= -SLACK


@settings(max_examples=300)
@given(a=depths, b=depths, sizes=free_sizes)
def test_what_is_called_below_is_so_at_all_sizes_in_free_factors(a: Form, b: Form, sizes: dict[str, int]) -> None:
    if below(a, b, FACTORS):
        assert a.evaluate(sizes) <= b.evaluate(sizes) + SLACK


@settings(max_examples=300)
@given(a=depths, b=depths, c=depths, sizes=free_sizes)
def test_what_is_called_below_a_maximum_by_trips_is_so_at_all_sizes(
    a: Form, b: Form, c: Form, sizes: dict[str, int]
) -> None:
    if below_any(a, [b, c], FACTORS, L):
        assert a.evaluate(sizes) <= max(b.evaluate(sizes), c.evaluate(sizes)) + SLACK


@given(candidates=st.lists(depths, min_size=1, max_size=5), sizes=free_sizes)
def test_pruning_never_loses_the_maximum(candidates: list[Form], sizes: dict[str, int]) -> None:
    kept = join([Arrival(f) for f in candidates], FACTORS)
    largest = max(f.evaluate(sizes) for f in candidates)
    assert abs(max(a.form.evaluate(sizes) for a in kept) - largest) <= SLACK
    assert {a.form for a in kept} <= set(candidates)


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (log2(h), log2(d)),
        (Form.constant(1), L),
        ((L - 1) * log2(B), L * log2(B)),
        (h, d),
        (2 * L, L**2 + 1),
        (ceil_log2(B), L * ceil_log2(B)),
    ],
    ids=["log h <= log(h d_h)", "1 <= L", "one trip fewer", "h <= h d_h", "after the shift", "ceilings"],
)
def test_these_are_known_to_be_below(small: Form, large: Form) -> None:
    assert below(small, large, FACTORS)
    assert not below(large, small, FACTORS)


def test_incomparable_forms_are_both_kept() -> None:
    kept = join([Arrival(log2(B)), Arrival(log2(L)), Arrival(Form.constant(0))], FACTORS)
    assert {a.form for a in kept} == {log2(B), log2(L)}


def test_a_sum_of_logs_may_be_empty() -> None:
    """For T = 1 it is 0, unlike a size or an opaque cost."""
    steps, opaque = Form.atom("Sum(log(S + t), (t, 1, T - 1))"), Form.atom("D_gen(pi)")
    assert below(L * steps, L * steps + log2(d))
    assert below(d, d + steps)
    assert not below(Form.constant(1), steps)
    assert not below(steps, L * steps - steps + d)
    assert below(Form.constant(1), opaque)


def test_a_mixture_of_two_branches_of_a_loop_is_below_their_maximum() -> None:
    """L - 1 iterations through f and one through g is at most L iterations through the slower of the two."""
    f, g = log2(B), log2(d)
    mixed = (L - 1) * f + g
    assert not below_any(mixed, [L * f, L * g], FACTORS)
    assert below_any(mixed, [L * f, L * g], FACTORS, L)
    assert not below_any(mixed + 1, [L * f, L * g], FACTORS, L)
    assert not below_any(L * f + g, [L * f, L * g], FACTORS, L)


def test_names_of_the_strategies_are_those_of_the_factors() -> None:
    assert {n for n, _ in FACTORS} <= set(NAMES)
