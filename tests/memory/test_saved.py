"""What is derived to be kept against what a run is seen to keep, and what each way of training keeps."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.costs.model import PAPER
from derive.forms import Form, symbol, total
from derive.memory import saved_terms, state_terms
from derive.work import Term
from graphs.axes import Role
from graphs.execute import Machine
from graphs.ir import Graph
from graphs.schemes import Scheme, schemes
from graphs.transforms.partition import partition
from graphs.transforms.partition.forms import resplit
from graphs.transforms.partition.layouts import Layouts
from graphs.transforms.recompute import Recompute
from tests.graphs.test_partition import EVEN, SCHEMES, degrees, divisible
from tests.memory.cases import EVERY_EXPERT, RATE, Watch, trained

B, m, L, d, h, d_ff, V = (symbol(n) for n in ("B", "m", "L", "d", "h", "d_ff", "V"))
KEEPING = {
    f"{name}, kept": replace(SCHEMES[name], gathered="kept") for name in ("Sequence", "Ulysses", "ZeRO-3", "HSDP")
}
ALL = SCHEMES | KEEPING


def on_stage(terms, machine: Machine, rank: tuple[int, ...]) -> Form:
    """The terms that a rank of a pipeline has: those of every stage, and of its own where it is the first or last."""
    at = machine.at(rank).get("P_p", 0)
    last = machine.mesh.get("P_p", 1) - 1
    stages = {None} | ({"first"} if at == 0 else set()) | ({"last"} if at == last else set())
    return total(t.amount for t in terms if t.stage in stages)


def agree(graph: Graph, sizes: dict[str, int], mesh: dict[str, int], seed: int = 0) -> None:
    seen, terms = Watch(graph, sizes, mesh, seed), list(saved_terms(graph, PAPER))
    for rank in seen.machine.coordinates:
        derived = on_stage(terms, seen.machine, rank).evaluate(sizes | mesh)
        assert derived == seen.elements(rank), (rank, derived, seen.elements(rank))


@pytest.mark.parametrize("recompute", Recompute)
@pytest.mark.parametrize("name", ALL)
def test_every_rank_keeps_the_elements_that_are_derived(name: str, recompute: Recompute) -> None:
    agree(partition(trained(recompute=recompute), ALL[name]), EVEN, degrees(ALL[name]))


@pytest.mark.parametrize("name", ALL)
def test_every_rank_keeps_the_elements_that_are_derived_of_expert_layers(name: str) -> None:
    agree(partition(trained("experts"), ALL[name]), EVERY_EXPERT, degrees(ALL[name]))


@given(data=st.data())
@settings(max_examples=25)
def test_every_rank_keeps_the_elements_that_are_derived_at_random_sizes_and_degrees(data: st.DataObject) -> None:
    scheme = ALL[data.draw(st.sampled_from(sorted(ALL)))]
    sizes, mesh = data.draw(divisible(scheme.meshes))
    recompute, rate = data.draw(st.sampled_from(list(Recompute))), data.draw(st.sampled_from([Fraction(0), RATE]))
    graph = trained("dense", rate, recompute, data.draw(st.sampled_from(["policy", "reward", "value"])))
    agree(partition(graph, scheme), sizes, mesh, data.draw(st.integers(0, 9)))


# -- state ------------------------------------------------------------------------------------------------------------
def state(graph: Graph, scheme: Scheme, role: Role) -> list[Term]:
    return [t for t in state_terms(graph, scheme) if t.role is role]


def summed(terms) -> Form:
    return total(t.amount for t in terms)


@pytest.mark.parametrize("ffn", ["dense", "experts"])
@pytest.mark.parametrize("name", [n for n, scheme in SCHEMES.items() if "P_p" not in scheme.meshes])
def test_weights_and_gradients_are_as_large_as_the_arrays_of_a_run(name: str, ffn: str) -> None:
    scheme = SCHEMES[name]
    graph, sizes = partition(trained(ffn), scheme), EVERY_EXPERT | degrees(scheme)
    seen = Watch(graph, EVERY_EXPERT, degrees(scheme))
    for rank in seen.machine.coordinates:
        assert summed(state(graph, scheme, Role.PARAMETER)).evaluate(sizes) == seen.weights(rank)
        assert summed(state(graph, scheme, Role.PARAMETER_GRADIENT)).evaluate(sizes) == seen.gradients(rank)


def test_the_tied_table_of_a_pipeline_is_kept_with_its_state_on_both_boundary_stages() -> None:
    graph = partition(trained(), SCHEMES["Pipeline"])
    for role, values in ((Role.PARAMETER, 1), (Role.PARAMETER_GRADIENT, 1), (Role.OPTIMIZER, 2)):
        tables = [t for t in state(graph, SCHEMES["Pipeline"], role) if t.where == "W_e"]
        assert [(t.stage, t.amount) for t in tables] == [("first", values * V * d), ("last", values * V * d)]


@pytest.mark.parametrize("name", SCHEMES)
def test_the_ranks_together_hold_every_entry_of_the_optimizer_state(name: str) -> None:
    """Each entry lies on as many ranks as divide nothing of it, and the derived elements say on how many."""
    scheme = SCHEMES[name]
    graph, mesh = partition(trained(), scheme), degrees(scheme, 2)
    machine, whole = Machine(EVEN, mesh), trained()
    for name, tensor in whole.parameters():
        stored = resplit(tensor, Layouts(scheme).splits(tensor.names, "test", Role.OPTIMIZER))
        times = np.zeros([machine.count(a) for a in tensor.axes])
        for rank in machine.coordinates:
            times[np.ix_(*(machine.positions(a, machine.at(rank)) for a in stored.axes))] += 1
        assert times.min() == times.max() > 0
        (amount, *_) = [t.amount for t in state(graph, scheme, Role.OPTIMIZER) if t.where == name]
        assert amount.evaluate(EVEN | mesh) * len(machine.coordinates) == 2 * times.sum()


PARAMETERS = L * (4 * d**2 + 2 * d * d_ff + 2 * d) + V * d + d
P_d, P_s = symbol("P_d"), symbol("P_s")


@pytest.mark.parametrize(
    ("name", "weights", "gradients", "optimizer"),
    [
        ("Data", 1, 1, 2),
        ("ZeRO-1", 1, 1, 2 * P_d**-1),
        ("ZeRO-2", 1, P_d**-1, 2 * P_d**-1),
        ("ZeRO-3", P_d**-1, P_d**-1, 2 * P_d**-1),
        ("HSDP", P_s**-1, P_s**-1, 2 * P_s**-1),
    ],
)
def test_each_stage_of_zero_cuts_one_part_of_the_state_more(name: str, weights, gradients, optimizer) -> None:
    graph = partition(trained(rate=Fraction(0)), SCHEMES[name])
    roles = {Role.PARAMETER: weights, Role.PARAMETER_GRADIENT: gradients, Role.OPTIMIZER: optimizer}
    for role, share in roles.items():
        assert summed(state(graph, SCHEMES[name], role)) == PARAMETERS * share


def test_parameters_that_stay_gathered_until_the_backward_pass_are_weights_too() -> None:
    """One whole copy of every parameter, besides the stored shards."""
    scheme = KEEPING["ZeRO-3, kept"]
    graph = partition(trained(rate=Fraction(0)), scheme)
    gathered = [t for t in saved_terms(graph, PAPER) if t.role is Role.PARAMETER]
    assert summed(gathered) == PARAMETERS
    assert summed(state(graph, scheme, Role.PARAMETER)) == PARAMETERS / P_d
    again = partition(trained(rate=Fraction(0)), schemes()["ZeRO-3"])
    assert not [t for t in saved_terms(again, PAPER) if t.role is Role.PARAMETER]


# -- a layer ----------------------------------------------------------------------------------------------------------
def layer(recompute: Recompute, rate: Fraction = RATE, role: Role | None = None) -> Form:
    terms = saved_terms(trained(rate=rate, recompute=recompute), PAPER)
    return total(t.amount for t in terms if t.in_loop and role in (None, t.role)) / L


def test_dropout_keeps_two_tensors_more_of_the_probabilities_and_a_mask_after_each_sublayer() -> None:
    """A mask and the dropped probabilities; the other results of dropout are added and not read again."""
    assert layer(Recompute.NONE) - layer(Recompute.NONE, Fraction(0)) == 2 * B * h * m**2 + 2 * B * m * d
    assert layer(Recompute.NONE, role=Role.MASK) == B * h * m**2 + 2 * B * m * d


def test_selective_recomputation_keeps_nothing_of_the_size_of_the_scores() -> None:
    assert layer(Recompute.NONE) - layer(Recompute.SELECTIVE) == 3 * B * h * m**2
    assert layer(Recompute.NONE, Fraction(0)) - layer(Recompute.SELECTIVE, Fraction(0)) == B * h * m**2


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.SELECTIVE])
def test_the_statistics_of_two_norms_are_two_numbers_a_token_each(recompute: Recompute) -> None:
    assert layer(recompute, role=Role.STATISTIC) == 4 * B * m
