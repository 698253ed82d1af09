"""What one rank does and holds of a model at numbers, or of a stage of one: the values of traversals of its graphs.

No formula of a model is written down here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import sympy

from derive.costs.counting import shorter
from derive.costs.model import CostModel
from derive.depth import DepthRule, depth
from derive.footprint import tensors_of
from derive.forms import Form
from derive.interchange import from_sympy
from derive.maxplus import START
from derive.memory import ADAM_COPIES, GROUPS, MIXED_COPIES, Widths, elements, in_bytes, saved_terms, state_terms
from derive.work import Term, work_terms
from graphs.axes import WEIGHTS, Role, Window
from graphs.errors import GraphError
from graphs.gallery import meshes_of
from graphs.ir import Graph, Node, Value
from graphs.models.transformer import Transformer, forward, remembered, step
from graphs.ops.contraction import Contraction
from graphs.ops.repeat import Repeat
from graphs.schemes import Scheme, schemes
from graphs.transforms.partition import partition
from graphs.transforms.recompute import Recompute

#: mesh dimension -> the scheme that cuts over it alone
ALONE = {"P_d": "Data", "P_t": "Tensor", "P_c": "Context", "P_e": "Expert"}
MEMORY = ("weights", "gradients", "optimizer", "activations")
#: what a degree divides, for messages
COUNTED = {
    "b": "sequences of the batch (B)",
    "s": "tokens of a sequence (S+T)",
    "t": "tokens of a sequence (S+T)",
    "h": "heads (of keys and values)",
    "f": "channels of a feed-forward layer",
    "g": "channels of an expert",
    "v": "entries of the vocabulary",
    "e": "experts",
}
#: a model's own cotangent, where the backward pass of a stage starts from that of a later one
HANDED = "d:out"


@dataclass(frozen=True)
class Rank:
    """One rank of those that share ``model`` over ``degrees``, 2 at least; the rest is as in `derive.evaluate`."""

    model: Transformer
    B: int
    S: int
    T: int
    causal: str = "exact"
    degrees: Mapping[str, int] = field(default_factory=dict)
    recompute: Recompute = Recompute.NONE

    # -- graphs -------------------------------------------------------------------------------------------------------
    @property
    def costs(self) -> CostModel:
        return CostModel("evaluate", causal=self.causal, exact_depth=True)

    @cached_property
    def scheme(self) -> Scheme:
        """One entry for each degree; the mesh dimensions do not share an axis."""
        entries = tuple(e for mesh in ALONE if mesh in self.degrees for e in schemes()[ALONE[mesh]].entries)
        return Scheme("as asked", entries, source="the degrees asked for")

    def cut(self, graph: Graph) -> Graph:
        """The rank's graph, whether degrees divide or not; GraphError where one cannot be measured."""
        split = partition(graph, self.scheme)
        if idle := sorted(self.degrees.keys() - meshes_of(split)):
            raise GraphError(f"{self.model.name} has nothing that is cut over {idle[0]}; leave that degree out")
        if "P_c" in self.degrees and any(isinstance(r, Window) for t in tensors_of(graph) for r in t.domain):
            raise GraphError(
                f"{self.model.name} has sliding windows, of which the rank with most pairs is not counted where "
                "positions are cut; leave P_c out"
            )
        return split

    def share(self, graph: Graph) -> Graph:
        """The rank's graph; GraphError where a degree does not divide."""
        split = self.cut(graph)
        for axis in dict.fromkeys(a for t in tensors_of(split) for a in t.axes):
            for mesh in (s.mesh for s in axis.splits):
                if axis.size.is_Integer and axis.size % self.degrees[mesh]:
                    what = COUNTED.get(axis.name, f"entries of axis {axis.name!r}")
                    raise GraphError(
                        f"{mesh}={self.degrees[mesh]} does not divide {axis.size}, the number of {what}; change one"
                    )
        return split

    def _model(self, m: int) -> Transformer:
        return self.model.at(B=self.B, m=m)

    @cached_property
    def sequential(self) -> Graph:
        """The training graph on one device."""
        return step(self._model(self.S + self.T), self.recompute)

    @cached_property
    def training(self) -> Graph:
        """The rank's share of it."""
        return self.share(self.sequential)

    @cached_property
    def forward(self) -> Graph:
        """The rank's forward pass."""
        return self.share(forward(self._model(self.S + self.T)))

    # -- sums ---------------------------------------------------------------------------------------------------------
    def total(self, terms: Iterable[Term], what: str) -> int:
        return whole(sum((t.amount.evaluate(self.degrees) for t in terms), Fraction(0)), what)

    # -- work ---------------------------------------------------------------------------------------------------------
    def work(self) -> dict[str, int]:
        """FLOPs of the passes of a training step and, where no positions are cut, of generating."""
        terms = list(work_terms(self.training, self.costs))
        ahead = self.total((t for t in terms if t.phase == "forward"), "forward work")
        behind = self.total((t for t in terms if t.phase != "forward"), "backward work")
        found = {"forward": ahead, "backward": behind, "training_step": ahead + behind}
        return found if "P_c" in self.degrees else found | {"generation": self.generation()}

    def generation(self) -> int:
        """Prefill with one row of logits, then T - 1 steps that each read what is cached, with one row each.

        A step has exactly one query, so the steps do what a causal pass over S+T-1 tokens does beyond one over S, every
        pair counted once whatever the convention is for prefill.  Prefill is as executed, the steps are as
        computed for one query at a time.
        """
        model = replace(self.model, ahead=0)
        exact, steps = replace(self.costs, causal="exact"), model.decoding()
        row = Form.constant(Fraction(1, self.S))
        prompt = work_terms(self._pass(model, self.S), self.costs)
        terms = [t if t.in_loop else _scaled(t, row) for t in prompt]
        for m, sign in ((self.S + self.T - 1, 1), (self.S, -1)):
            terms += [_scaled(t, Form.constant(sign)) for t in work_terms(self._pass(steps, m), exact)]
        return self.total(terms, "generation work")

    def _pass(self, model: Transformer, m: int) -> Graph:
        """The rank's forward pass of the model over m tokens."""
        return self.share(forward(model.at(B=self.B, m=m)))

    # -- depth --------------------------------------------------------------------------------------------------------
    def depth(self, everywhere: bool = False) -> dict[str, int]:
        """Longest chains of additions, each reduction as a balanced tree; ``everywhere`` with reducing collectives."""
        found = {
            "forward": self._longest(self.forward, ["out"], everywhere),
            "training_step": self._longest(self.training, None, everywhere),
        }
        return found if "P_c" in self.degrees else found | {"generation": self._generation_depth(everywhere)}

    def _generation_depth(self, everywhere: bool) -> int:
        """One token after the other: each step's chain is that of the last token of a pass over as many tokens.

        Of the number of tokens only the height of the tree over them matters.
        """
        model = replace(self.model, ahead=0)
        found = self._longest(self._pass(model, self.S), ["out"], everywhere)
        for m, times in alike(self.S + 1, self.S + self.T):
            found += times * self._longest(self._pass(model.decoding(), m), ["out"], everywhere)
        return found

    def _longest(self, graph: Graph, outputs: list[str] | None, everywhere: bool) -> int:
        """What a stage is handed back depends on what it handed on."""
        rule = AtNumbers(self.costs, collectives=everywhere, over_all_ranks=everywhere, numbers=self.degrees)
        start = None
        if HANDED in graph.inputs:
            start = {Value(n): START for n in graph.inputs} | {Value(HANDED): depth(graph, rule, ["out"])}
        return whole(max(a.form.evaluate(self.degrees) for a in depth(graph, rule, outputs, start)), "depth")

    # -- parameters and memory ----------------------------------------------------------------------------------------
    def parameters(self) -> dict[str, int]:
        """All; those that work for a token; those of the latter that it is multiplied with; those that are trained."""
        terms = list(state_terms(self.training, self.scheme, copies=1))
        shape, multiplied = self.model.shape, _multiplied(self.sequential)
        share = Form.constant(1) if shape.E is None else from_sympy(sympy.Rational(shape.E_a, shape.E))
        routed = {name for name, t in self.sequential.weights() if "e" in t.names}
        at_work = [_scaled(t, share) if t.where in routed else t for t in terms]
        counted = {
            "total": terms,
            "active": at_work,
            "matmul": [t for t in at_work if t.where in multiplied],
            "trained": [t for t in terms if t.role is Role.PARAMETER],
        }
        return {name: self.total(chosen, f"{name} parameters") for name, chosen in counted.items()}

    def memory(self, widths: Widths | None = None) -> dict[str, int]:
        """What a training step holds between its passes, in elements or, where widths are given, in bytes."""
        copies = ADAM_COPIES if widths is None else MIXED_COPIES
        terms = [*state_terms(self.training, self.scheme, copies), *saved_terms(self.training, self.costs)]
        groups: dict[str, list[Term]] = {name: [] for name in MEMORY}
        for term in terms:
            group = GROUPS[term.role] if term.phase == "state" and term.role else "activations"
            groups[group].append(term if widths is None else in_bytes(term, widths))
        return {name: self.total(found, f"memory of {name}") for name, found in groups.items()}

    def cache(self) -> dict[str, int]:
        """Elements of the key-value cache: for one token and, where no positions are cut, when the last one is chosen.

        That one's own keys and values are not needed.  A windowed layer keeps no more tokens than its window.
        """
        one, every, context = Fraction(0), Fraction(0), sympy.Integer(self.S + self.T - 1)
        for loop in (n.op for n in self.forward.nodes if isinstance(n.op, Repeat)):
            layers = from_sympy(loop.axis.extent)
            for tensor, seen in remembered(loop.body):
                tokens = shorter(seen.width, context) if isinstance(seen, Window) else from_sympy(context)
                entry = layers * elements(tensor.without("b", "t"), self.costs)
                one += entry.evaluate(self.degrees)
                every += (entry * tokens * from_sympy(tensor.axis("b").extent)).evaluate(self.degrees)
        found = {"per_token": whole(one, "a token in the cache")}
        return found if "P_c" in self.degrees else found | {"all": whole(every, "the cache")}


def alike(first: int, end: int) -> Iterator[tuple[int, int]]:
    """The numbers from ``first`` to before ``end`` by height of a tree: the first of each height, and how many."""
    while first < end:
        after = min(end, 2 ** (first - 1).bit_length() + 1)
        yield first, after - first
        first = after


def whole(value: Fraction, what: str) -> int:
    if value.denominator != 1:
        raise GraphError(f"{what} would be {value}, not a whole number; change the sizes or the degrees")
    return value.numerator


@dataclass(frozen=True)
class AtNumbers(DepthRule):
    """A depth rule at numbers for the degrees, so that one path is the longest."""

    numbers: Mapping[str, int] = field(default_factory=dict)
    #: a loop's body is traversed once for each of its inputs
    charged: dict[int, Form] = field(default_factory=dict, compare=False)

    def charge(self, graph: Graph, node: Node) -> Form:
        if id(node) not in self.charged:
            amount = super().charge(graph, node)
            self.charged[id(node)] = amount.substitute({n: Form.constant(k) for n, k in self.numbers.items()})
        return self.charged[id(node)]

    def trips(self, loop: Repeat) -> Form:
        return super().trips(loop).substitute({n: Form.constant(k) for n, k in self.numbers.items()})


def _scaled(term: Term, factor: Form) -> Term:
    return replace(term, amount=factor * term.amount)


def _multiplied(graph: Graph) -> set[str]:
    """The parameters that enter a product of matrices, in loops too."""
    out: set[str] = set()
    for node in graph.nodes:
        if isinstance(node.op, Contraction):
            out |= {v.node for v in node.operands}
        elif isinstance(node.op, Repeat):
            inside = _multiplied(node.op.body)
            out |= {v.node for v, name in zip(node.operands, node.op.body.inputs, strict=True) if name in inside}
    return out & {name for name, t in graph.inputs.items() if t.role in WEIGHTS}
