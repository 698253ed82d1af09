"""Which operation graphs carry out the nodes of a stage graph.

A stage graph says which models run and what stands between; a `Link` says by which operations.  One graph may carry out
several nodes: an update is forward pass, loss, backward pass and optimizer step.  The links of an algorithm cover every
node of its stage graph once, and what flows between their graphs follows the edges there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import sympy

from graphs.errors import GraphError
from graphs.ir import Graph
from graphs.rl import losses
from graphs.rl.advantages import group_advantages, token_advantages
from graphs.rl.passes import score, scored_tokens, values
from graphs.rl.rollouts import rollouts
from graphs.rl.settings import Settings
from graphs.rl.updates import joint_loss, policy_loss, update, value_loss
from graphs.sizes import Sizes
from graphs.stages import StageGraph, stage_graph
from graphs.stages.stage import MODELS, TRAINED, Invocation, Options, Pass

#: the reference is built like the policy and so has its sizes
SIZES_OF = {"ref": "pi"}


@dataclass(frozen=True, eq=False)
class Link:
    """The graph that carries out ``nodes``, with the weights of ``role``.

    Values that flow between graphs have the names of the graphs' inputs and outputs; ``gives`` renames outputs.
    Weights of a second role have names that start with it, as in ``critic/W_e``.
    """

    nodes: tuple[str, ...]
    graph: Callable[[Sizes, Settings], Graph]
    role: str = "actor"
    gives: Mapping[str, str] = field(default_factory=dict)


def _update(role: str, loss: Callable[[Sizes, Settings], Graph], *more: str) -> Link:
    nodes = (f"forward_{role}", *more, f"loss_{role}", f"backward_{role}", f"update_{role}")
    return Link(nodes, lambda sizes, settings: update(loss(sizes, settings)), role, {"loss": f"loss_{role}"})


def _actor(loss: losses.Loss, *more: str) -> Link:
    return _update("actor", lambda sizes, settings: policy_loss(sizes, loss, settings), *more)


def _joint_update(sizes: Sizes, settings: Settings) -> Graph:
    """The sizes are those of the actor, and the critic has the same batch."""
    critic = replace(Sizes.of_model(MODELS["critic"]), B=sizes.B)
    actor_loss = policy_loss(sizes, losses.ppo_policy, settings)
    return update(joint_loss(actor_loss, value_loss(critic, losses.ppo_value, settings)))


GENERATE = Link(("generate", "log_probabilities"), rollouts)
REFERENCE = Link(
    ("score_reference", "reference_log_probabilities"), scored_tokens, "reference", {"log_probabilities": "reference"}
)
REWARD = Link(("score_reward",), score, "reward")
PPO_ACTOR = _actor(losses.ppo_policy)
PPO_CRITIC = _update("critic", lambda sizes, settings: value_loss(sizes, losses.ppo_value, settings))
#: what options put in the place of others
OWN_PASS = Link(("score_actor", "log_probabilities"), scored_tokens, gives={"log_probabilities": "old"})
JOINT = Link(
    ("loss", *(f"{part}_{role}" for part in ("forward", "backward", "update") for role in TRAINED)), _joint_update
)

#: algorithm -> its links in an order of execution
LINKS: dict[str, tuple[Link, ...]] = {
    "PPO": (
        GENERATE,
        REFERENCE,
        REWARD,
        Link(("score_critic",), values, "critic"),
        Link(("kl", "advantages"), token_advantages),
        PPO_ACTOR,
        PPO_CRITIC,
    ),
    "GRPO": (
        GENERATE,
        REFERENCE,
        REWARD,
        Link(("group_normalisation",), group_advantages),
        _actor(losses.grpo_policy, "kl"),
    ),
    "DPO": (REFERENCE, _actor(losses.dpo_policy)),
}


@dataclass(frozen=True, eq=False)
class Operation:
    """A graph that runs ``trips`` times, one after the other, in place of ``nodes`` of a stage graph."""

    nodes: tuple[str, ...]
    graph: Graph
    role: str
    gives: Mapping[str, str]
    trips: sympy.Expr


def operations(algorithm: str, settings: Settings | None = None) -> tuple[Operation, ...]:
    """What runs in one iteration, in order; GraphError where a node of the stage graph has no operations."""
    settings = settings or Settings()
    stage = stage_graph(algorithm, settings.options)
    links = tuple(new for link in LINKS.get(stage.name, ()) for new in _chosen(link, settings.options))
    every_node_is_carried_out_once(stage, links)
    return tuple(_operation(stage, link, settings) for link in links)


def operation(algorithm: str, node: str, settings: Settings | None = None) -> Operation:
    """What carries out one node of the algorithm's stage graph."""
    every = operations(algorithm, settings)
    if found := [op for op in every if node in op.nodes]:
        return found[0]
    known = ", ".join(name for op in every for name in op.nodes)
    raise GraphError(f"the stages of {algorithm} have no node {node!r}; choose one of {known}")


def _chosen(link: Link, options: Options) -> tuple[Link, ...]:
    """What stands in place of a link under the options."""
    if options.joint_update and link in (PPO_ACTOR, PPO_CRITIC):
        return (JOINT,) if link is PPO_CRITIC else ()
    if link is not GENERATE:
        return (link,)
    nodes = ("prefill", "decode") if options.share_prefill else ("generate",)
    if options.log_probabilities_own_pass:
        return replace(link, nodes=nodes, gives={"old": "old_on_the_fly"}), OWN_PASS
    return (replace(link, nodes=(*nodes, "log_probabilities")),)


def every_node_is_carried_out_once(stage: StageGraph, links: tuple[Link, ...]) -> None:
    linked = [name for link in links for name in link.nodes]
    for node in stage.nodes:
        verifies = isinstance(node, Invocation) and node.run is Pass.GENERATE and node.role != "actor"
        if linked.count(node.name) != 1 or verifies:
            raise GraphError(f"stages of {stage.name}: no operations carry out {node.name}; add a link in graphs/rl")
    if odd := sorted(set(linked) - set(stage.by_name)):
        raise GraphError(
            f"stages of {stage.name}: operations are linked to {odd[0]}, which it has not; remove the link"
        )


def _operation(stage: StageGraph, link: Link, settings: Settings) -> Operation:
    """The batch is that of the link's last invocation; a link of glue alone has that of the invocations around it."""
    nodes = [stage.by_name[name] for name in link.nodes]
    around = [n for n in (*stage.in_stage(nodes[0].stage), *nodes) if isinstance(n, Invocation)]
    model = stage.model(link.role)
    sizes = replace(Sizes.of_model(SIZES_OF.get(model, model)), B=around[-1].sequences)
    return Operation(link.nodes, link.graph(sizes, settings), link.role, link.gives, nodes[0].trips)
