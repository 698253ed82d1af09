"""Layers of PyTorch as operation graphs: their contractions cost what PyTorch counts, whatever else is in them."""

from __future__ import annotations

import json
from functools import cache

import networkx as nx
import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs the extra 'torch'")

from click.testing import CliRunner

from derive.cli import main
from derive.costs.model import FULL, CostModel
from derive.forms import symbol, total
from derive.torch_import.capture import counted
from derive.torch_import.load import layer_of
from derive.torch_import.report import Work, imported, to_data
from derive.work import work_terms
from graphs.axes import Role
from graphs.blocks.decoder import decoder_block
from graphs.errors import GraphError
from graphs.execute import run
from graphs.ops.contraction import Contraction
from graphs.ops.foreign import Foreign
from graphs.sizes import Sizes
from tests.torch.layers import residual

B, m, d, d_ff = (symbol(n) for n in ("B", "m", "d", "d_ff"))
#: PyTorch computes every score
DENSE_CAUSAL = CostModel("torch", causal="dense")


@cache
def work(name: str) -> Work:
    return imported(f"tests.torch.layers:{name}")


def forms(name: str) -> dict[str, str]:
    return {phase: form.text for phase, form in work(name).forms.items()}


@pytest.mark.parametrize("name", ["decoder", "fused"])
def test_an_imported_decoder_layer_costs_what_our_own_does(name: str) -> None:
    """As formulas, for whatever sizes; its backward pass is twice that."""
    ours = total(t.amount for t in work_terms(decoder_block(Sizes.canonical()), DENSE_CAUSAL))
    found = work(name).forms
    assert found["forward"] == ours == 2 * B * m * (4 * d**2 + 2 * d * d_ff + 2 * m * d)
    assert found["total"] == 3 * ours


@pytest.mark.parametrize(
    "name",
    ["decoder", "fused", "checkpointed", "packed", "builtin", "mlp", "einsum", "tied", "frozen", "vectors", "uneven"],
)
def test_the_formula_at_the_example_is_pytorchs_count(name: str) -> None:
    found = work(name)
    assert counted(found.layer) == {phase: found.at_example[phase] for phase in ("forward", "total")}
    assert found.at_example["forward"] > 0


@pytest.mark.parametrize("sizes", [{"B": 1, "m": 2, "d": 21, "d_ff": 4}, {"B": 6, "m": 17, "d": 70, "d_ff": 33}])
def test_the_formula_at_other_sizes_is_pytorchs_count_of_a_layer_of_those_sizes(sizes: dict[str, int]) -> None:
    other = layer_of((*residual(sizes)[:2],), "other")
    found = {phase: work("decoder").forms[phase].evaluate(sizes) for phase in ("forward", "total")}
    assert found == counted(other)


def test_heads_are_a_symbol_where_weights_say_how_many_there_are() -> None:
    """The three-operand product goes from left to right."""
    assert forms("einsum")["forward"] == "8*B*d*h*k*m + 4*B*h*k*m**2"
    assert forms("einsum")["total"] == "24*B*d*h*k*m + 12*B*h*k*m**2"


def test_a_size_that_must_be_a_multiple_of_another_is_expressed_by_it() -> None:
    data = to_data(work("packed"))
    assert (data["equal"], data["fixed"]) == ({"n1": "3*d"}, {})
    assert [s["name"] for s in data["sizes"]] == ["d", "B", "m"]
    assert data["work"]["forward"] == "8*B*d**2*m + 4*B*d*m**2"


def test_what_is_written_into_a_part_of_a_tensor_is_on_the_way_to_the_whole() -> None:
    found = work("in_place").imported.graph
    assert forms("in_place")["forward"] == "4*a*b*n"
    result = found.outputs["out.0"].node
    assert {"mm", "mm_1"} <= nx.ancestors(found.network, result)


def test_what_is_left_over_in_a_division_is_said() -> None:
    data = to_data(work("uneven"))
    assert data["conditions"] == ["2 divides n - 1"]
    assert data["work"]["forward"] == "a*b*n - a*b"


def test_a_width_that_a_module_compares_with_its_own_number_is_that_number() -> None:
    data = to_data(work("builtin"))
    assert data["fixed"]["d"] == 14
    assert data["work"]["forward"] == f"{4 * 14}*B*d_ff*m + {4 * 14}*B*m**2 + {8 * 14**2}*B*m"


def test_recomputation_repeats_all_but_the_last_product() -> None:
    once, again = work("decoder").forms, work("checkpointed").forms
    assert again["forward"] == once["forward"]
    assert again["total"] - once["total"] == once["forward"] - 2 * B * m * d * d_ff


def test_what_needs_no_gradient_costs_none() -> None:
    assert forms("frozen") == {
        "forward": "2*a*b*n + 2*b*c*n",
        "backward": "2*a*b*n + 4*b*c*n",  # the input has a gradient, the first weight has none
        "total": "4*a*b*n + 6*b*c*n",
    }


def test_an_embedding_and_a_tied_head_import_and_lookups_are_no_contraction() -> None:
    assert forms("tied")["forward"] == "2*B*V*d*m"
    (table,) = work("tied").imported.graph.parameters()
    assert table[0] == "0.weight"
    assert work("tied").imported.graph.inputs["input"].role is Role.INDEX


def test_products_with_vectors_are_counted_although_pytorch_passes_over_them() -> None:
    assert forms("vectors")["forward"] == "2*a*b + 2*b"


def test_every_contraction_has_the_axes_that_pytorch_traced() -> None:
    found = work("decoder")
    products = [n for n in found.imported.graph.nodes if isinstance(n.op, Contraction)]
    assert len(products) == 3 * 8
    shapes = {str(n.name): [str(a.size) for a in n.types[0].axes] for n in products}
    assert shapes["bmm"] == ["7*B", "m", "m"]
    assert shapes["mm_4"] == ["B*m", "d_ff"]
    assert len({n.types[0].names for n in products if n.name == "bmm"}.pop()) == 3


def test_sizes_without_names_are_numbered_in_order_of_appearance() -> None:
    data = to_data(work("unnamed"))
    assert [(s["name"], s["example"], s["where"]) for s in data["sizes"]] == [
        ("n1", 5, ["w[0]", "input_0[1]"]),
        ("n2", 7, ["w[1]"]),
        ("n3", 3, ["input_0[0]"]),
    ]
    assert data["work"]["forward"] == "2*n1*n2*n3"


def test_a_number_in_the_layers_code_stays_a_number_and_what_it_must_divide_is_said() -> None:
    data = to_data(work("decoder"))
    assert data["conditions"] == ["7 divides d"]
    assert data["fixed"] == {}
    assert {r["source"].partition(":")[0] for r in data["contractions"] if r["phase"] == "forward"} == {"layers.py"}


def test_what_is_imported_is_counted_and_not_run() -> None:
    graph = work("unnamed").imported.graph
    assert any(isinstance(n.op, Foreign) for n in graph.nodes)
    with pytest.raises(GraphError, match="comes from another framework and has no meaning here"):
        run(graph, {"w": np.ones((5, 7)), "input_0": np.ones((3, 5))}, {"n1": 5, "n2": 7, "n3": 3})
    with pytest.raises(GraphError, match="of an imported graph contractions alone are counted"):
        list(work_terms(graph, FULL))


# What a user may get wrong.


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("convolution", "aten.convolution.default at .*: it has no rule; add one in derive/torch_import/kinds.py"),
        ("inverse", "aten.linalg_inv_ex.default at layers.py:[0-9]+: it has no rule"),
        ("flash", "aten._scaled_dot_product_flash_attention_for_cpu.default at layers.py:[0-9]+: it has no rule"),
        ("guarded", "PyTorch cannot trace it, it fails with GuardOnDataDependentSymNode"),
        ("unused", "PyTorch counts 210 FLOPs .forward., the graph has 0; take products out"),
        ("failing", "the factory fails with KeyError: 'no weights here'"),
        ("nothing", "the factory returned something of type NoneType; return .module, inputs."),
        ("no_module", "something of type function is not a torch.nn.Module"),
        ("one_tensor", "inputs are something of type Tensor; make them a tuple"),
        ("same_sizes", "sizes a and b are both 5; make the example's differ"),
        ("missing", "'missing' is not in it; name a function of module 'tests.torch.layers'"),
        ("NOT_CALLABLE", "'NOT_CALLABLE' is not a function"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        imported(f"tests.torch.layers:{name}")


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("tests.torch.layers", "is no module:factory; write something like layers:block"),
        ("a b:c", "is no module:factory"),
        ("no_such_module_here:f", "module 'no_such_module_here' cannot be imported .No module named"),
    ],
)
def test_a_bad_name_is_refused_in_one_sentence(spec: str, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        imported(spec)


# The command.


def test_the_command_prints_the_formula_and_the_products_it_is_made_of() -> None:
    done = CliRunner().invoke(main, ["import-torch", "tests.torch.layers:mlp"])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert "forward   2*a*b*n + 2*b*c*n" in lines
    (first,) = (line for line in lines if line.startswith("  forward   addmm "))
    assert "(n, a) x (a, b) -> (n, b)  2*a*b*n" in first


def test_the_command_prints_json() -> None:
    done = CliRunner().invoke(main, ["import-torch", "tests.torch.layers:mlp", "--json"])
    data = json.loads(done.stdout)
    assert data["work"]["total"] == "6*a*b*n + 6*b*c*n"
    assert data["pytorch"]["total"] == data["at_example"]["total"] == 6 * 3 * 7 * (5 + 11)
    assert [r["work"] for r in data["contractions"]][:2] == ["2*a*b*n", "2*b*c*n"]


def test_the_command_refuses_in_one_sentence_with_exit_code_2() -> None:
    done = CliRunner().invoke(main, ["import-torch", "tests.torch.layers:convolution"])
    assert done.exit_code == 2
    assert done.stderr.startswith("derive: aten.convolution.default")
    assert len(done.stderr.splitlines()) == 1


def test_help_says_that_the_module_is_executed() -> None:
    assert "executed" in CliRunner().invoke(main, ["import-torch", "--help"]).stdout
