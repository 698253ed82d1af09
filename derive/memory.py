"""Memory of a training step: weights with their gradients and optimizer state, and saved activations.

Amounts are in elements; `Widths` says how many bytes an element of each role takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from derive.costs.counting import volume
from derive.costs.model import PAPER, CostModel
from derive.forms import Form
from derive.work import Term
from graphs.axes import Role, Tensor, Window
from graphs.errors import GraphError
from graphs.ir import Graph, Value
from graphs.ops.fold import Fold, Unfold
from graphs.ops.relabel import Relabel
from graphs.ops.repeat import Repeat
from graphs.schemes import Scheme
from graphs.transforms.backward import saved_values
from graphs.transforms.partition.forms import resplit
from graphs.transforms.partition.layouts import Layouts

#: parameters, gradients, and Adam's two moments
ADAM_COPIES = 4
#: the same and a master copy of the parameters in the optimizer's precision
MIXED_COPIES = 5

#: what is kept, by the words in which memory is spoken of
GROUPS: Mapping[Role, str] = {
    Role.PARAMETER: "weights",
    Role.FROZEN: "weights",
    Role.PARAMETER_GRADIENT: "gradients",
    Role.OPTIMIZER: "optimizer",
    Role.INPUT: "activations",
    Role.ACTIVATION: "activations",
    Role.MASK: "masks",
    Role.STATISTIC: "statistics",
    Role.DETACHED: "statistics",
}


@dataclass(frozen=True)
class Widths:
    """Bytes of one element of each group; as given, those of mixed-precision training with 16-bit gradients."""

    weights: int = 2
    gradients: int = 2
    optimizer: int = 4
    activations: int = 2
    masks: int = 1
    statistics: int = 4

    def __post_init__(self) -> None:
        for name, width in asdict(self).items():
            if width < 1:
                raise GraphError(f"an element of {name} cannot take {width} bytes; give it at least one")

    def of(self, group: str) -> int:
        return int(getattr(self, group))


def group_of(term: Term) -> str:
    if term.role is None or term.role not in GROUPS:
        known = ", ".join(dict.fromkeys(GROUPS.values()))
        raise GraphError(f"{term.where} is not kept from pass to pass; only {known} are")
    return GROUPS[term.role]


def state_roles(copies: int) -> dict[Role, int]:
    """How many values of each role there are of a parameter: itself, its gradient, and optimizer state."""
    if copies < 1:
        raise GraphError(f"{copies} values of a parameter are none; it takes at least one, the parameter itself")
    values = {Role.PARAMETER: 1, Role.PARAMETER_GRADIENT: min(copies - 1, 1), Role.OPTIMIZER: max(copies - 2, 0)}
    return {role: n for role, n in values.items() if n}


def state_terms(graph: Graph, scheme: Scheme, copies: int = ADAM_COPIES) -> Iterator[Term]:
    """Elements per rank of each parameter, its gradient and its optimizer state, each as the scheme stores it.

    A frozen parameter has neither of the latter.  One term per role and per boundary stage that reads the parameter.
    """
    layouts = Layouts(scheme)
    for name, tensor in graph.weights():
        users = [n for n in graph.nodes if Value(name) in n.operands]
        looped = any(isinstance(n.op, Repeat) for n in users)
        frozen = tensor.role is Role.FROZEN
        for role, values in ({Role.FROZEN: 1} if frozen else state_roles(copies)).items():
            stored_as = resplit(tensor, layouts.splits(tensor.names, f"the {role.value} {name!r}", role))
            for stage in sorted({n.stage for n in users}, key=str) if not looped else [None]:
                yield Term(name, values * elements(stored_as, PAPER), "state", stage, looped, role)


def saved_terms(graph: Graph, model: CostModel) -> Iterator[Term]:
    """Elements per rank of each forward value that the backward phase reads; a gathered parameter may be one."""
    seen: set[Stored] = set()
    for value in saved_values(graph):
        storage = stored(graph, value)
        if storage not in seen:
            seen.add(storage)
            loop, inner = storage
            where = f"{loop}/{inner.node}[{inner.index}]" if loop else f"{inner.node}[{inner.index}]"
            stage = None if loop else _stage_of(graph, value)
            tensor = graph.type(value)
            yield Term(where, elements(tensor, model), "saved", stage, bool(loop), tensor.role)


def in_bytes(term: Term, widths: Widths) -> Term:
    """The term of so many elements as one of bytes."""
    return replace(term, amount=widths.of(group_of(term)) * term.amount)


#: kinds whose result is their operand, seen otherwise
VIEWS = (Relabel, Unfold, Fold)

#: (name of the loop that stacks the value, or "", and the value that owns the memory)
Stored = tuple[str, Value]


def stored(graph: Graph, value: Value) -> Stored:
    """Where a saved value lies: a stacked one in its loop's body; another view of the same data shares its memory."""
    value = unlabelled(graph, value)
    node = graph.by_name.get(value.node)
    if node is not None and isinstance(node.op, Repeat) and value.index >= node.op.carried:
        body = node.op.body
        loop, inner = stored(body, list(body.outputs.values())[value.index])
        return (f"{node.name}/{loop}" if loop else node.name), inner
    return "", value


def unlabelled(graph: Graph, value: Value) -> Value:
    """The value that owns the memory."""
    while value.node in graph.by_name and isinstance(graph.by_name[value.node].op, VIEWS):
        value = graph.by_name[value.node].operands[0]
    return value


def _stage_of(graph: Graph, value: Value) -> str | None:
    """The boundary stage whose backward phase reads the value."""
    return next((n.stage for n in graph.nodes if n.phase != "forward" and value in n.operands), None)


def elements(tensor: Tensor, model: CostModel) -> Form:
    """Stored entries of one rank: masked entries are stored too, those of experts that serve no token are not."""
    tensor = replace(tensor, domain=tuple(r for r in tensor.domain if not isinstance(r, Window)))
    return volume(tensor.axes, tensor.domain, replace(model, causal="dense"))
