"""Models of the cases, and the parts of their work that the cases speak of; numbers come from the graphs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from derive.config import load
from derive.costs.model import CostModel
from derive.costs.rule import cost
from derive.evaluate import Setting
from derive.forms import total
from derive.interchange import from_sympy
from derive.work import Term, work_terms
from graphs.architectures import Config, model_of
from graphs.ir import ATTENTION, Graph
from graphs.models.transformer import Transformer, forward
from graphs.ops.repeat import Repeat
from graphs.transforms.backward import training
from graphs.transforms.recompute import Recompute


def public(name: str) -> Transformer:
    return model_of(load(name))


def llama(**keys: object) -> Transformer:
    """A small model of grouped heads and gated layers; keys of its configuration."""
    usual: dict[str, object] = {
        "model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1,
        "num_hidden_layers": 1, "num_key_value_heads": None, "vocab_size": 8,
    }  # fmt: skip
    return model_of(Config(usual | keys, "case"))


def gpt(layers: int, width: int, vocabulary: int, positions: int = 2048) -> Transformer:
    """A GPT-2 of these sizes, with one head, which no count depends on."""
    keys = {
        "model_type": "gpt2", "n_embd": width, "n_head": 1, "n_layer": layers, "n_positions": positions,
        "vocab_size": vocabulary,
    }  # fmt: skip
    return model_of(Config(keys, "case"))


def terms(model: Transformer, m: int, causal: str, B: int = 1, recompute: Recompute = Recompute.NONE) -> list[Term]:
    """Work of a training step, occurrence by occurrence."""
    graph = training(forward(model.at(B=B, m=m), loss=True), recompute=recompute)
    return list(work_terms(graph, CostModel("case", causal=causal)))


def step(model: Transformer, m: int, causal: str, B: int = 1, keep: Callable[[Term], bool] = lambda term: True) -> int:
    """The sum of those that are kept."""
    return summed(t for t in terms(model, m, causal, B) if keep(t))


def rerun(model: Transformer, m: int, causal: str) -> list[Term]:
    """The same, and every layer's whole forward pass once more, as published forms of recomputation have it.

    The graph's own recomputation leaves out a layer's last product, whose result no backward pass reads.
    """
    found = terms(model, m, causal)
    return [*found, *(t for t in found if t.in_loop and t.phase == "forward")]


def summed(found: Iterable[Term]) -> int:
    return int(total(t.amount for t in found).evaluate({}))


def without_router(term: Term) -> bool:
    return "router" not in term.where


def core(model: Transformer, m: int, causal: str, trained: bool = True, B: int = 1) -> int:
    """Work of the products of queries, keys and values alone: forward and backward, or forward."""
    graph = forward(model.at(B=B, m=m), loss=trained)
    return _core(training(graph) if trained else graph, CostModel("case", causal=causal))


def _core(graph: Graph, costs: CostModel) -> int:
    out = 0
    for node in graph.nodes:
        if isinstance(node.op, Repeat):
            out += int(from_sympy(node.op.axis.size).evaluate({})) * _core(node.op.body, costs)
        elif node.region == ATTENTION:
            out += int(cost(graph, node, costs).work.evaluate({}))
    return out


def parameters(model: Transformer) -> dict[str, int]:
    return {name: amount.rank for name, amount in Setting(model, S=1, T=1).parameters().items()}


def cache_bytes(model: Transformer, width: int = 2) -> int:
    """Bytes of the key-value cache for one token."""
    return width * Setting(model, S=1, T=1).cache()["per_token"].rank
