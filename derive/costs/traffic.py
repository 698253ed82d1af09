"""What one exchange among P ranks moves, under ring, tree and central algorithms.

M is the whole tensor of the group for all-reduce, reduce-scatter and all-gather (operand, operand, result), what one
rank holds for all-to-all, and the value itself for send and permute.  A chunk is M/P.  Forms hold for P >= 2; those of
the reducing and gathering exchanges vanish at P = 1 too.

ring: neighbours pass chunks on (Patarasuk and Yuan 2009); an all-to-all sends each peer its chunk directly.
tree: recursive halving and doubling, P a power of two (Thakur, Rabenseifner and Gropp 2005); an all-to-all forwards
half of the chunks in each of log2 P rounds (Bruck et al. 1997).  central: everything goes through rank 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from derive.costs.counting import product
from derive.costs.model import PAPER
from derive.forms import Form, log2, symbol
from derive.memory import elements
from graphs.axes import Role, Tensor
from graphs.errors import GraphError
from graphs.ir import Graph, Node
from graphs.ops.collective import Collective
from graphs.ops.repeat import Repeat

ALGORITHMS = ("ring", "tree", "central")
#: actions that keep one's own part and exchange nothing
FREE = ("shard",)
#: actions whose result, not whose operand, is the whole tensor
GROWING = ("all_gather",)


@dataclass(frozen=True)
class Traffic:
    """Elements, messages and rounds of one exchange.

    ``sent``, ``received``, ``messages`` (sent) are those of the busiest rank, ``total`` and ``total_messages`` those of
    the group.  ``steps`` messages and ``serial`` elements follow each other in time: alpha*steps + beta*serial.
    """

    sent: Form
    received: Form
    total: Form
    messages: Form
    total_messages: Form
    steps: Form
    serial: Form


Rule = Callable[[Form, Form], Traffic]
RULES: dict[tuple[str, str], Rule] = {}


def exchange(*actions: str, algorithms: tuple[str, ...]) -> Callable[[Rule], Rule]:
    """Register the rule (P, M) -> traffic of actions under algorithms; a second one is refused."""

    def register(function: Rule) -> Rule:
        for key in ((action, algorithm) for action in actions for algorithm in algorithms):
            if key in RULES:
                raise GraphError(f"{key[0]} already has a traffic rule for {key[1]}; remove one of the two")
            RULES[key] = function
        return function

    return register


def _evenly(p: Form, elements_each: Form, messages_each: Form) -> Traffic:
    """Every rank sends and receives one message in every round, all of them at the same time."""
    total, messages = p * elements_each, p * messages_each
    return Traffic(elements_each, elements_each, total, messages_each, messages, messages_each, elements_each)


@exchange("all_gather", "reduce_scatter", "all_to_all", algorithms=("ring",))
def ring(p: Form, m: Form) -> Traffic:
    return _evenly(p, (p - 1) * m / p, p - 1)


@exchange("all_reduce", algorithms=("ring",))
def ring_all_reduce(p: Form, m: Form) -> Traffic:
    """A reduce-scatter and an all-gather."""
    return _evenly(p, 2 * (p - 1) * m / p, 2 * (p - 1))


@exchange("all_gather", "reduce_scatter", algorithms=("tree",))
def tree(p: Form, m: Form) -> Traffic:
    return _evenly(p, (p - 1) * m / p, log2(p))


@exchange("all_reduce", algorithms=("tree",))
def tree_all_reduce(p: Form, m: Form) -> Traffic:
    """Recursive halving, then recursive doubling."""
    return _evenly(p, 2 * (p - 1) * m / p, 2 * log2(p))


@exchange("all_to_all", algorithms=("tree",))
def tree_all_to_all(p: Form, m: Form) -> Traffic:
    return _evenly(p, m / 2 * log2(p), log2(p))


@exchange("all_reduce", algorithms=("central",))
def central_all_reduce(p: Form, m: Form) -> Traffic:
    """Rank 0 takes in everybody's values one after the other, adds them, and sends each the sum."""
    once, messages = (p - 1) * m, p - 1
    return Traffic(once, once, 2 * once, messages, 2 * messages, 2 * messages, 2 * once)


@exchange("send", algorithms=ALGORITHMS)
def send(_p: Form, m: Form) -> Traffic:
    """One rank to another: what one end sends the other receives."""
    one = Form.constant(1)
    return Traffic(m, m, m, one, one, one, m)


@exchange("permute", algorithms=ALGORITHMS)
def permute(p: Form, m: Form) -> Traffic:
    """Every rank to the next one."""
    return _evenly(p, m, Form.constant(1))


def traffic(action: str, algorithm: str, p: Form, m: Form) -> Traffic:
    """Traffic of one exchange of ``m`` elements among ``p`` ranks; GraphError where no rule says how it is done."""
    if (action, algorithm) not in RULES:
        raise GraphError(f"{action} has no {algorithm} rule; write one in derive/costs/traffic.py or choose another")
    return RULES[action, algorithm](p, m)


def traffic_of(graph: Graph, node: Node, algorithm: str) -> Traffic | None:
    """Traffic of an occurrence in one group of ranks; None for all that exchanges nothing.

    Index data is free, and of a routed axis a rank moves its even share of the active entries.
    """
    op = node.op
    if not isinstance(op, Collective) or op.action in FREE:
        return None
    moved = node.types[0] if op.action in GROWING else graph.type(node.operands[0])
    if moved.role is Role.INDEX:
        return None
    return traffic(op.action, algorithm, product(map(symbol, op.meshes)), elements(moved, PAPER))


def handed_on(loop: Repeat, algorithm: str) -> list[tuple[str, Tensor, Traffic]]:
    """The carried values of a loop cut into pipeline stages, and what it takes to hand each to the next stage."""
    if not loop.axis.splits:
        return []
    degree = symbol(loop.axis.splits[0].mesh)
    carried = [(n, t) for n, t in list(loop.body.inputs.items())[: loop.carried] if t.role is not Role.INDEX]
    return [(n, t, traffic("send", algorithm, degree, elements(t, PAPER))) for n, t in carried]
