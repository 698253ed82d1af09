"""What one model invocation costs: an opaque symbol such as ``C_f_tok(pi)``, or what the operation graph gives for it.

Units are the paper's: forward and backward work per token (`C_f_tok`), generation work and its cache per rollout
(`C_gen_roll`, `M_KV`), buffers of inference and activations of training per token (`M_Inf`, `M_Act`), depth per pass
(`D_f`).  An opaque symbol is a size like any other, at least 1.

The paper leaves `M_Inf` undefined.  Here it is what a forward pass that keeps nothing for a backward pass holds at once
at most (derive/liveness.py), scores of attention and logits included; a maximum, as it depends on the sizes which
occurrence that is.  `M_KV` is the cache of all positions but the last, whose keys and values nothing reads.  A model
without a vocabulary generates no tokens by a graph that exists here, so what its generation costs stays opaque.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from derive.domains import factors_of
from derive.forms import Form, Max, symbol, total
from derive.generation import cache_memory, decode_work, generation_depth, generation_work, prefill_work
from derive.interchange import from_sympy
from derive.liveness import inference_buffers
from derive.measure import FORWARD, Question, backward_depth, forward_depth, gather, graph_of, held, work
from derive.memory import state_terms
from graphs.errors import GraphError
from graphs.models.roles import ACTOR_CRITIC, POLICY, REFERENCE, REWARD, VALUE
from graphs.schemes import cuts, schemes
from graphs.sizes import Sizes
from graphs.stages.stage import SHARED, Invocation, Pass

WORK = {
    Pass.GENERATE: "C_gen_roll",
    Pass.PREFILL: "C_pf_roll",
    Pass.DECODE: "C_dec_roll",
    Pass.FORWARD: "C_f_tok",
    Pass.BACKWARD: "C_b_tok",
}
#: the critical path of generating is prefill and decoding, whether prompts share the former or not
DEPTH = {
    Pass.GENERATE: "D_gen",
    Pass.DECODE: "D_gen",
    Pass.FORWARD: "D_f",
    Pass.BACKWARD: "D_b",
}
PER_TOKEN = frozenset({Pass.FORWARD, Pass.BACKWARD})
INFERENCE, ACTIVATIONS, CACHE, WEIGHTS, SHADOW = "M_Inf", "M_Act", "M_KV", "params", "M_sh"
#: what changes the depth of a pass, in any scheme that has it; cutting storage, samples or layers leaves it whole
SUPERSCRIPTS = {"Tensor": "TP"}
#: model -> the sizes it has and the role it plays; the reference is built like the policy, a shared one has two heads
MODELS = {
    "pi": ("pi", POLICY),
    "ref": ("pi", REFERENCE),
    "R": ("R", REWARD),
    "V": ("V", VALUE),
    SHARED: (SHARED, ACTOR_CRITIC),
}

Expansion = Callable[[Question], Max]


def _per_token(value: Max) -> Max:
    return Max.of(*(f / (symbol("B") * symbol("m")) for f in value.members))


def _per_sequence(value: Max) -> Max:
    return Max.of(*(f / symbol("B") for f in value.members))


def _weights(q: Question) -> Max:
    return Max.of(total(t.amount for t in state_terms(graph_of(q, FORWARD), schemes()[q.scheme], copies=1)))


def _activations(q: Question) -> Max:
    """Saved activations alone: no copy of a parameter is counted."""
    saved = [t for t in held(q) if t.phase == "saved"]
    return _per_token(gather(replace(q, blocks_only=False), saved).value)


#: opaque symbol -> the same from the operation graph of the model, for B sequences of m tokens
EXPANSIONS: dict[str, Expansion] = {
    "C_f_tok": lambda q: _per_token(work(q, ["forward"]).value),
    "C_b_tok": lambda q: _per_token(work(q, ["backward"]).value),
    "D_f": lambda q: forward_depth(q).value,
    "D_f_TP": lambda q: forward_depth(replace(q, scheme="Tensor")).value,
    "D_b": lambda q: backward_depth(q).value,
    "D_b_TP": lambda q: backward_depth(replace(q, scheme="Tensor")).value,
    INFERENCE: lambda q: _per_token(inference_buffers(q).value),
    ACTIVATIONS: _activations,
    WEIGHTS: _weights,
    SHADOW: _weights,
    "C_pf_roll": lambda q: prefill_work(q).value,
    "C_dec_roll": lambda q: decode_work(q).value,
    "C_gen_roll": lambda q: generation_work(q).value,
    "D_gen": lambda q: generation_depth(q).value,
    "D_gen_TP": lambda q: generation_depth(replace(q, scheme="Tensor")).value,
    CACHE: lambda q: _per_sequence(cache_memory(q).value),
}
#: those of them that only a model with a vocabulary has
GENERATION = frozenset({"C_pf_roll", "C_dec_roll", "C_gen_roll", "D_gen", "D_gen_TP", CACHE})


@dataclass(frozen=True)
class Blocks:
    """Which symbols are expanded, and under which conventions."""

    expand: frozenset[str] = frozenset()
    question: Question = field(default_factory=Question)

    def __post_init__(self) -> None:
        if unknown := sorted(self.expand - EXPANSIONS.keys()):
            raise GraphError(f"{unknown[0]} is not derived from an operation graph; known are {', '.join(EXPANSIONS)}")

    def factors(self, models: Iterable[str]) -> dict[str, Form]:
        """Sizes of the models as products of free factors; none where every cost is opaque."""
        out: dict[str, Form] = {}
        for model in models if self.expand else ():
            out |= factors_of(Sizes.of_model(MODELS[model][0]), schemes()["None"])
        return out

    # -- one invocation --------------------------------------------------------------------------------------------
    def work(self, node: Invocation, model: str) -> Form:
        """FLOPs of all its trips."""
        count = from_sympy(node.trips) * from_sympy(node.sequences)
        if node.run in PER_TOKEN:
            count = count * from_sympy(node.tokens.size)
        return count * _one(self.cost(WORK[node.run], model))

    def depth(self, node: Invocation, model: str, used: tuple[str, ...] = ()) -> Max:
        """Critical path of all its trips, one after the other; that of prefill is charged to decoding."""
        if node.run is Pass.PREFILL:
            return Max.of(Form.constant(0))
        cut = frozenset[tuple[str, str]]().union(*(cuts(name) for name in used))
        marks = [mark for name, mark in SUPERSCRIPTS.items() if cuts(name) <= cut]
        name = "_".join([DEPTH[node.run], *marks])
        return self.cost(name, model, from_sympy(node.sequences)).scale(from_sympy(node.trips))

    def buffer(self, node: Invocation, model: str, kept: bool) -> Max:
        """What one trip holds while it runs; ``kept`` activations stay for the backward pass."""
        sequences = from_sympy(node.sequences)
        if node.run in (Pass.PREFILL, Pass.BACKWARD):  # the cache is charged to decoding, gradients to the copies
            return Max.of(Form.constant(0))
        if node.run in (Pass.GENERATE, Pass.DECODE):
            return self.cost(CACHE, model).scale(sequences)
        name = ACTIVATIONS if kept else INFERENCE
        return self.cost(name, model).scale(sequences * from_sympy(node.tokens.size))

    def weights(self, model: str) -> Form:
        return _one(self.cost(WEIGHTS, model))

    def shadow(self, model: str) -> Form:
        """An older copy of the weights, kept for inference while the model is trained elsewhere."""
        return _one(self.cost(SHADOW, model))

    def cost(self, name: str, model: str, sequences: Form | None = None) -> Max:
        """The symbol, or its expansion for so many sequences."""
        if name not in self.expand or (name in GENERATION and not MODELS[model][1].generates):
            alone = name == CACHE and model in ("pi", SHARED)  # the paper names the policy's cache alone
            return Max.of(symbol(name if alone else f"{name}({model})"))
        found = _expanded(name, model, self.question)
        return found if sequences is None else found.substitute({"B": sequences})


@lru_cache(maxsize=512)
def _expanded(name: str, model: str, question: Question) -> Max:
    sizes, role = MODELS[model]
    return EXPANSIONS[name](replace(question, sizes=Sizes.of_model(sizes), role=role))


def _one(value: Max) -> Form:
    if len(value.members) != 1:
        raise GraphError(f"{value.text} is a maximum, which a count of work or memory cannot be; keep it opaque")
    return value.members[0]
