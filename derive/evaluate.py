"""What a model costs at numbers: parameters, work, depth, memory and key-value cache, on a rank and over all of them.

Every number is the value of what a traversal of the model's graph gives; no formula of a model is written down here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import prod

import sympy

from derive.costs.counting import shorter
from derive.costs.model import CostModel
from derive.depth import DepthRule, depth
from derive.footprint import check_sizes
from derive.forms import Form
from derive.interchange import from_sympy
from derive.memory import ADAM_COPIES, GROUPS, MIXED_COPIES, Widths, elements, in_bytes, saved_terms, state_terms
from derive.work import Term, work_terms
from graphs.axes import WEIGHTS, Role, Window
from graphs.errors import GraphError
from graphs.gallery import meshes_of
from graphs.ir import Graph, Node
from graphs.models.transformer import Transformer, forward, periods, remembered
from graphs.ops.contraction import Contraction
from graphs.ops.repeat import Repeat
from graphs.schemes import Scheme, schemes
from graphs.transforms.backward import Recompute, training
from graphs.transforms.partition import partition

#: mesh dimension -> the scheme that cuts over it alone
ALONE = {"P_d": "Data", "P_p": "Pipeline", "P_t": "Tensor", "P_c": "Context", "P_e": "Expert"}
MEMORY = ("weights", "gradients", "optimizer", "activations")


@dataclass(frozen=True)
class Amount:
    """A number for the rank that has most, and for all ranks together."""

    rank: int
    world: int


@dataclass(frozen=True)
class Setting:
    """``B`` sequences of ``S`` prompt tokens and ``T`` generated ones, under conventions, on a mesh.

    ``widths`` are bytes of an element of what a training step holds, ``cache_width`` those of one of the cache.
    """

    model: Transformer
    B: int = 1
    S: int = 1024
    T: int = 1024
    causal: str = "exact"
    degrees: Mapping[str, int] = field(default_factory=dict)
    recompute: Recompute = Recompute.NONE
    widths: Widths = Widths()  # noqa: RUF009 - frozen
    cache_width: int = 2

    def __post_init__(self) -> None:
        rows = self.model.shape.positions
        if rows is not None and rows < self.S + self.T:
            raise GraphError(
                f"{self.model.name} has learned positions for {rows} tokens, not for S+T = {self.S + self.T}; "
                "make S or T smaller"
            )

    # -- graphs -------------------------------------------------------------------------------------------------------
    @property
    def costs(self) -> CostModel:
        return CostModel("evaluate", causal=self.causal, exact_depth=True)

    @cached_property
    def scheme(self) -> Scheme:
        """One entry for each degree; the mesh dimensions do not share an axis."""
        for mesh in self.degrees:
            if mesh not in ALONE:
                raise GraphError(f"no model is cut over {mesh} here; use {', '.join(ALONE)}")
        entries = tuple(e for mesh in ALONE if mesh in self.degrees for e in schemes()[ALONE[mesh]].entries)
        return Scheme("as asked", entries, source="the degrees asked for")

    def rank_graph(self, graph: Graph) -> Graph:
        """The graph of one rank; GraphError where nothing is cut over a degree or one does not divide."""
        loops = len(periods(self.model.layers))
        if self.scheme.pipeline and loops > 1:
            raise GraphError(
                f"{self.model.name} has {loops} loops of unlike layers, which no pipeline cuts; leave P_p out"
            )
        split = partition(graph, self.scheme)
        if idle := sorted(self.degrees.keys() - meshes_of(split)):
            raise GraphError(f"{self.model.name} has nothing that is cut over {idle[0]}; leave that degree out")
        return split

    def _model(self, m: int) -> Transformer:
        return self.model.at(B=self.B, m=m)

    @cached_property
    def whole(self) -> Graph:
        """The training graph on one device."""
        return training(forward(self._model(self.S + self.T), loss=True), recompute=self.recompute)

    @cached_property
    def split(self) -> Graph:
        """The training graph of one rank."""
        graph = self.rank_graph(self.whole)
        check_sizes(graph, self.degrees)
        return graph

    @cached_property
    def pass_graph(self) -> Graph:
        """A rank's forward pass."""
        return self.rank_graph(forward(self._model(self.S + self.T)))

    # -- sums ---------------------------------------------------------------------------------------------------------
    def amount(self, terms: Iterable[Term], what: str) -> Amount:
        """The terms on the pipeline stage that has most, and over all ranks, replicas included."""
        stages: dict[str | None, Fraction] = {None: Fraction(0), "first": Fraction(0), "last": Fraction(0)}
        for term in terms:
            stages[term.stage] += term.amount.evaluate(self.degrees)
        ranks = prod(self.degrees.values())
        once = Fraction(1, self.degrees.get(self.scheme.pipeline or "", 1))
        world = ranks * (stages[None] + once * (stages["first"] + stages["last"]))
        rank = stages[None] + max(stages["first"], stages["last"])
        if self.degrees.get(self.scheme.pipeline or "", 1) == 1:
            rank = world / ranks
        return Amount(self.number(rank, what), self.number(world, what))

    @staticmethod
    def number(value: Fraction, what: str) -> int:
        if value.denominator != 1:
            raise GraphError(f"{what} would be {value}, not a whole number; change the sizes or the degrees")
        return value.numerator

    # -- work ---------------------------------------------------------------------------------------------------------
    def work(self) -> dict[str, Amount]:
        """FLOPs of the passes of a training step and, where no positions are cut, of generating."""
        terms = list(work_terms(self.split, self.costs))
        ahead = self.amount((t for t in terms if t.phase == "forward"), "forward work")
        behind = self.amount((t for t in terms if t.phase != "forward"), "backward work")
        step = Amount(ahead.rank + behind.rank, ahead.world + behind.world)
        found = {"forward": ahead, "backward": behind, "training_step": step}
        return found if "P_c" in self.degrees else found | {"generation": self.generation()}

    def generation(self) -> Amount:
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
        return self.amount(terms, "generation work")

    def _pass(self, model: Transformer, m: int) -> Graph:
        """A rank's forward pass of the model over m tokens."""
        return self.rank_graph(forward(model.at(B=self.B, m=m)))

    # -- depth --------------------------------------------------------------------------------------------------------
    def depth(self) -> dict[str, Amount]:
        """Longest chains of additions, each reduction as a balanced tree; over all ranks with reducing collectives."""
        found = {
            "forward": self._longest(self.pass_graph, ["out"]),
            "training_step": self._longest(self.split, None),
        }
        return found if "P_c" in self.degrees else found | {"generation": self._generation_depth()}

    def _generation_depth(self) -> Amount:
        """One token after the other: each step's chain is that of the last token of a pass over as many tokens.

        Of the number of tokens only the height of the tree over them matters.
        """
        model = replace(self.model, ahead=0)
        chains = [(1, self._longest(self._pass(model, self.S), ["out"]))]
        steps = of_equal_height(range(self.S + 1, self.S + self.T))
        chains += [(len(run), self._longest(self._pass(model.decoding(), run[0]), ["out"])) for run in steps]
        return Amount(sum(n * c.rank for n, c in chains), sum(n * c.world for n, c in chains))

    def _longest(self, graph: Graph, outputs: list[str] | None) -> Amount:
        found = []
        for everywhere in (False, True) if self.degrees else (False,):
            rule = AtNumbers(self.costs, collectives=everywhere, over_all_ranks=everywhere, numbers=self.degrees)
            latest = max(a.form.evaluate(self.degrees) for a in depth(graph, rule, outputs))
            found.append(self.number(latest, "depth"))
        return Amount(found[0], found[-1])

    # -- parameters and memory ----------------------------------------------------------------------------------------
    def parameters(self) -> dict[str, Amount]:
        """All; those that work for a token; those of the latter that it is multiplied with; those that are trained.

        Over all ranks these are the model's, without replicas.
        """
        rank = self._counted(state_terms(self.split, self.scheme, copies=1))
        model = self._counted(state_terms(self.whole, schemes()["None"], copies=1))
        return {name: Amount(rank[name].rank, model[name].rank) for name in rank}

    def _counted(self, terms: Iterable[Term]) -> dict[str, Amount]:
        terms, shape, multiplied = list(terms), self.model.shape, _multiplied(self.whole)
        share = Form.constant(1) if shape.E is None else from_sympy(sympy.Rational(shape.E_a, shape.E))
        routed = {name for name, t in self.whole.weights() if "e" in t.names}
        at_work = [_scaled(t, share) if t.where in routed else t for t in terms]
        counted = {
            "total": terms,
            "active": at_work,
            "matmul": [t for t in at_work if t.where in multiplied],
            "trained": [t for t in terms if t.role is Role.PARAMETER],
        }
        return {name: self.amount(chosen, f"{name} parameters") for name, chosen in counted.items()}

    def memory(self, widths: Widths | None = None) -> dict[str, Amount]:
        """What a training step holds between its passes, in elements or, where widths are given, in bytes."""
        copies = ADAM_COPIES if widths is None else MIXED_COPIES
        terms = [*state_terms(self.split, self.scheme, copies), *saved_terms(self.split, self.costs)]
        groups: dict[str, list[Term]] = {name: [] for name in MEMORY}
        for term in terms:
            group = GROUPS[term.role] if term.phase == "state" and term.role else "activations"
            groups[group].append(term if widths is None else in_bytes(term, widths))
        return {name: self.amount(found, f"memory of {name}") for name, found in groups.items()}

    def cache(self) -> dict[str, Amount]:
        """Elements of the key-value cache: for one token, and for B sequences when the last token is chosen.

        That one's own keys and values are not needed.  A windowed layer keeps no more tokens than its window.  What a
        token takes is the model's over all ranks, and what is held is that of all ranks, replicas included.
        """
        model = self._cached(forward(self._model(self.S + self.T)), "one device")
        rank = self._cached(self.pass_graph, "a rank")
        held = rank["all"] * prod(self.degrees.values())
        return {"per_token": Amount(rank["per_token"], model["per_token"]), "all": Amount(rank["all"], held)}

    def _cached(self, graph: Graph, where: str) -> dict[str, int]:
        one, every, context = Fraction(0), Fraction(0), sympy.Integer(self.S + self.T - 1)
        for loop in (n.op for n in graph.nodes if isinstance(n.op, Repeat)):
            layers = from_sympy(loop.axis.extent)
            for tensor, seen in remembered(loop.body):
                tokens = shorter(seen.width, context) if isinstance(seen, Window) else from_sympy(context)
                entry = layers * elements(tensor.without("b", "t"), self.costs)
                one += entry.evaluate(self.degrees)
                every += (entry * tokens * from_sympy(tensor.axis("b").extent)).evaluate(self.degrees)
        return {
            "per_token": self.number(one, f"a token on {where}"),
            "all": self.number(every, f"the cache of {where}"),
        }


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


def of_equal_height(lengths: range) -> Iterator[range]:
    """The lengths in runs whose balanced trees are equally high: from above a power of two to the next one."""
    start = lengths.start
    while start < lengths.stop:
        end = min(lengths.stop, (1 << (start - 1).bit_length()) + 1)
        yield range(start, end)
        start = end


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
