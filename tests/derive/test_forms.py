"""The algebra of forms: laws that make equality of forms equality of functions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import sympy
from hypothesis import assume, given
from hypothesis import strategies as st

from derive.forms import (
    Form,
    Log,
    Max,
    ceil_log2,
    ceil_log2_of,
    log2,
    log2_of,
    split_content,
    symbol,
    total,
)
from derive.interchange import from_sympy, to_sympy
from graphs.symbols import size
from tests.strategies import NAMES, any_sizes, forms, polynomials, positive_sums, powers_of_two, products

ZERO, ONE = Form.constant(0), Form.constant(1)


@given(a=forms, b=forms, c=forms)
def test_forms_are_a_commutative_ring(a: Form, b: Form, c: Form) -> None:
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a + ZERO == a * ONE == a
    assert a - a == ZERO
    assert a * ZERO == ZERO


@given(a=forms, b=forms, sizes=powers_of_two)
def test_a_sum_and_a_product_of_forms_mean_the_sum_and_the_product_of_their_values(
    a: Form, b: Form, sizes: dict[str, int]
) -> None:
    x, y = a.evaluate(sizes), b.evaluate(sizes)
    assert (a + b).evaluate(sizes) == x + y
    assert (a * b).evaluate(sizes) == x * y
    assert (a - b).evaluate(sizes) == x - y
    assert (a**3).evaluate(sizes) == x**3


@given(a=forms, b=forms)
def test_equal_forms_have_equal_hashes_and_texts_and_different_forms_different_texts(a: Form, b: Form) -> None:
    again = total([a, b, -b])
    assert again == a
    assert hash(again) == hash(a)
    assert again.text == a.text
    assert (a == b) == (a.text == b.text)


@given(a=forms, b=polynomials)
def test_different_forms_are_different_functions(a: Form, b: Form) -> None:
    """At sizes that grow fast enough from one to the next, no two of these forms meet by accident."""
    assume(a != b)
    sizes = [dict(zip("BLdh", (2 ** (3**i * k) for i in (4, 3, 2, 1)), strict=True)) for k in (1, 2, 3)]
    assert any(a.evaluate(s) != b.evaluate(s) for s in sizes)


@given(p=products, sizes=powers_of_two)
def test_a_product_divides_and_its_inverse_is_its_reciprocal(p: Form, sizes: dict[str, int]) -> None:
    assert p * p.inverse() == ONE
    assert p.inverse().evaluate(sizes) == 1 / p.evaluate(sizes)
    assert p**-2 == (ONE / p) ** 2


def test_dividing_by_a_sum_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^cannot divide by B \+ d: a divisor must be a single product$"):
        ONE / (symbol("B") + symbol("d"))


@given(p=products, q=products)
def test_the_log_of_a_product_is_the_sum_of_logs(p: Form, q: Form) -> None:
    assert log2(p * q) == log2(p) + log2(q)
    assert log2(p**2) == 2 * log2(p)
    assert log2(p.inverse()) == -log2(p)


@given(p=positive_sums, sizes=any_sizes)
def test_the_log_of_a_form_means_the_log_of_its_value(p: Form, sizes: dict[str, int]) -> None:
    assert math.isclose(log2(p).evaluate(sizes), math.log2(p.evaluate(sizes)), rel_tol=1e-9, abs_tol=1e-9)


@given(p=products)
def test_the_log_of_what_is_negative_is_refused(p: Form) -> None:
    with pytest.raises(ValueError, match="the argument must be a positive product or sum of sizes"):
        log2(-p)


@given(k=st.integers(1, 10**6))
def test_a_ceiling_of_a_log_is_the_height_of_the_smallest_tree_with_that_many_leaves(k: int) -> None:
    height = ceil_log2_of(Fraction(k))
    assert 2**height >= k > (2 ** (height - 1) if height else 0)
    assert ceil_log2(Form.constant(k)) == Form.constant(height)
    assert ceil_log2(symbol("d")).evaluate({"d": k}) == height


@given(k=st.integers(-2000, 2000))
def test_logs_of_powers_of_two_are_exact_at_any_magnitude(k: int) -> None:
    assert log2_of(Fraction(2) ** k) == k


@given(a=forms, factors=st.lists(st.sampled_from(NAMES), max_size=3), sizes=powers_of_two)
def test_substituting_and_evaluating_is_evaluating_with_the_substituted_value(
    a: Form, factors: list[str], sizes: dict[str, int]
) -> None:
    value = Form.constant(2)
    for name in factors:
        value = value * symbol(name)
    assert a.substitute({"d": value}).evaluate(sizes) == a.evaluate(sizes | {"d": value.evaluate(sizes)})


def test_a_power_of_zero_is_one() -> None:
    assert Form.atom("d", 0) == ONE == symbol("d") ** 0


@given(a=forms)
def test_substituting_a_size_by_itself_or_an_absent_size_changes_nothing(a: Form) -> None:
    assert a.substitute({n: symbol(n) for n in a.symbols}) == a.substitute({"V": ONE}) == a


def test_a_size_without_a_value_is_an_error_that_names_it() -> None:
    with pytest.raises(KeyError, match="no value for the symbol 'h'"):
        (symbol("d") / symbol("h")).evaluate({"d": 4})


@given(p=positive_sums)
def test_content_and_rest_multiply_to_the_form_and_the_rest_has_no_content(p: Form) -> None:
    content, rest = split_content(p)
    assert content * rest == p
    assert split_content(rest)[0] == ONE


@given(a=polynomials)
def test_sympy_and_back_is_the_same_form(a: Form) -> None:
    assert from_sympy(to_sympy(a)) == a


def test_an_extent_that_is_no_polynomial_is_refused() -> None:
    with pytest.raises(ValueError, match="only sums, products and integer powers of sizes are supported"):
        from_sympy(sympy.sqrt(size("d")))


def test_terms_are_printed_by_degree_then_by_name() -> None:
    d, m = symbol("d"), symbol("m")
    assert (log2(m) - 2 * d * m + d**3 / 2 + 1).text == "d**3/2 - 2*d*m + 1 + log(m)"
    assert (d / m).text == "d/m"
    assert ZERO.text == "0"
    assert log2(12 * d).text == "2 + log(3) + log(d)"
    assert Form.atom(Log(d, ceil=True)).text == "ceil_log(d)"


@given(a=forms, b=forms, c=forms, sizes=powers_of_two)
def test_a_maximum_means_the_maximum_and_addition_distributes_over_it(
    a: Form, b: Form, c: Form, sizes: dict[str, int]
) -> None:
    both = Max.of(a, b)
    assert both == Max.of(b, a, b)
    assert both.evaluate(sizes) == max(a.evaluate(sizes), b.evaluate(sizes))
    assert (both + c).evaluate(sizes) == both.evaluate(sizes) + c.evaluate(sizes)
    assert both.scale(symbol("L")).evaluate(sizes) == both.evaluate(sizes) * sizes["L"]
