"""Regimes: the weakest one and the readable ones, each proved; none where only a vacuous one exists."""

from __future__ import annotations

import random

import pytest

from derive.asymptotics import Bound, Domain, Proved, Refuted, leading, order
from derive.asymptotics.checker import check_certificate
from derive.asymptotics.regimes import search
from derive.forms import Form, total
from tests.asymptotics.questions import (
    DEPTH,
    DEPTH_O,
    EXPERT,
    FF,
    FREE,
    MEMORY,
    MEMORY_O,
    PLAIN,
    STATES,
    TENSOR,
    TENSOR_DEPTH,
    TENSOR_DEPTH_O,
    WORK_O,
    WORK_V,
    bound,
    value,
)

COUNTS = {"h", "E", "E_a", "P_t", "P_e"}
EXPERT_L = "2*L*(4*log(d) + log(E_a) + log(d_e) + log(m) - log(h)) + log(B*m)"


def found(f, g, domain, hypotheses=(FF,), kind="order", most=2, constants=COUNTS):
    """Texts of the regimes, a star behind the weakest; every one is proved anew from its text alone."""
    ask = order if kind == "order" else leading
    given = [bound(h) for h in hypotheses]
    regimes = search(value(f), value(g), domain, given, kind, most, constants)
    for regime in regimes:
        check_certificate(regime.certificate)
        again = [Bound(Form(b.left.terms), Form(b.right.terms)) for b in regime.bounds]
        assert isinstance(ask(value(f), value(g), domain, [*given, *again], refute=False), Proved)
        assert regime.weakest or len(regime.bounds) <= most
    return [r.text + "*" * r.weakest for r in regimes]


def test_memory_has_a_readable_regime_and_the_weakest():
    assert found(MEMORY, MEMORY_O, PLAIN) == ["h*m = O(d)", "B*L*h*m**2 = O(B*L*d*m + L*d**2 + V*d)*"]


def test_a_weakest_regime_that_is_readable_comes_first():
    regimes = found(WORK_V, WORK_O, PLAIN)
    assert regimes[0] == "V = O(L*d + L*m)*"
    assert {"V = O(d)", "V = O(m)", "V = O(L)", "V = O(L*d)", "V = O(L*m)"} >= set(regimes[1:]) > {"V = O(d)"}


def test_tensor_depth_bounds_a_log_by_the_form_in_front_of_l():
    regimes = found(TENSOR_DEPTH, TENSOR_DEPTH_O, TENSOR)
    assert regimes[0] == "log(P_t) = O(-log(P_t) + log(d) + log(m))"
    assert regimes[-1] == "L*log(P_t) = O(-L*log(P_t) + L*log(d) + L*log(m) + log(B))*"
    assert {"P_t = O(m)", "P_t = O(1)"} <= set(regimes)


def test_coefficients_of_g_do_not_show():
    thrice = "L*(3*log(d/P_t) + log(m)) + 2*log(B*m)"
    assert found(TENSOR_DEPTH, thrice, TENSOR) == found(TENSOR_DEPTH, TENSOR_DEPTH_O, TENSOR)


def test_depth_with_the_vocabulary():
    regimes = found(f"{DEPTH} + log(V)", DEPTH_O, PLAIN)
    assert regimes[0] == "log(V) = O(L*log(d) + L*log(m) + log(B))*"
    assert "V = O(d)" in regimes


def test_two_bounds_only_where_one_size_bound_does_not_suffice():
    regimes = found(EXPERT_L, DEPTH_O, EXPERT, ("E_a = O(E)",))
    assert regimes[0] == "log(E_a) + log(d_e) = O(log(d) + log(m))"
    assert "d_e = O(d) and E_a = O(d)" in regimes
    single = found(EXPERT_L, DEPTH_O, EXPERT, ("E_a = O(E)",), most=1)
    assert not any(" and " in text for text in single)
    assert found(EXPERT_L, DEPTH_O, EXPERT, ("E_a = O(E)",), most=0) == []


def test_leading_order_needs_terms_that_fade():
    states = f"{STATES} + 4*V*d"
    assert found(states, STATES, PLAIN, (), "leading")[0] == "V = O(d)"
    assert found("12*d**2 + 2*E*d", "12*d**2", EXPERT, (), "leading") == ["E = O(1)"]


def test_a_wrong_constant_has_no_regime():
    """d = O(1) would save it; the claim is about growing d, so that does not count."""
    assert found("6*L*d**2 + m*d*L", "5*L*d**2 + m*d*L", PLAIN, (), "leading") == []
    assert found("6*L*d**2 + m*d*L", "5*L*d**2 + m*d*L", PLAIN, (), "leading", constants={"d"}) == ["d = O(1)"]


def test_no_regime_that_keeps_a_size_constant_without_saying_so():
    """P_t*d_h = O(1) is all that could save this: P_t*d is above every size but itself."""
    assert found("P_t*d", "h", TENSOR, (), constants=()) == []


def test_no_regime_that_bounds_a_size_in_two_steps():
    """E_a = O(E), so d = O(E_a) and E = O(1) leave no room for d; the claim would say nothing."""
    regimes = found("12*d**2 + E*d", "E_a*d + d", EXPERT, ("E_a = O(E)",), "leading")
    assert not any("d = O(E_a)" in text for text in regimes)


def test_no_regime_where_nothing_fails():
    assert found(DEPTH, DEPTH_O, PLAIN) == []


def test_the_order_is_from_weak_to_strong():
    domain = EXPERT
    f, g = value("B*m*d + E*d*d_e/P_e + E*d"), value("B*m*d + E*d*d_e/P_e + d**2")
    regimes = [r for r in search(f, g, domain, [], "order", 2, COUNTS) if not r.weakest]
    assert len(regimes) > 3

    def stronger(a, b):
        return all(isinstance(order(x.left, x.right, domain, a.bounds, refute=False), Proved) for x in b.bounds)

    for i, weak in enumerate(regimes):
        assert not any(stronger(weak, strong) for strong in regimes[i + 1 :]), weak.text


@pytest.mark.parametrize("number", range(25))
def test_random_claims_without_logs(number):
    """A regime is never claimed for what holds anyway, and the weakest one is implied by every other."""
    rng = random.Random(number)
    names = ["x", "y", "z", "w"]

    def term():
        return Form({tuple((n, 1) for n in names if rng.random() < 0.5) or (): 1})

    f, g = total([term() for _ in range(3)]), total([term() for _ in range(3)])
    regimes = search(f, g, FREE, [], "order")
    if isinstance(order(f, g, FREE), Proved):
        assert regimes == ()
    for regime in regimes:
        check_certificate(regime.certificate)
        weakest = regimes[-1] if regimes[-1].weakest else regimes[0]
        for b in weakest.bounds if weakest.weakest else ():
            assert not isinstance(order(b.left, b.right, Domain(), regime.bounds), Refuted)
