"""One update of a model: forward pass, loss, backward pass and optimizer step as one graph."""

from __future__ import annotations

from graphs.axes import Role
from graphs.ir import Builder, Graph, Value
from graphs.models.roles import POLICY, VALUE
from graphs.ops.pointwise import Pointwise
from graphs.rl.losses import Loss
from graphs.rl.passes import log_probabilities, started
from graphs.rl.settings import Settings
from graphs.sizes import Sizes
from graphs.transforms.backward import training
from graphs.transforms.inline import inline
from graphs.transforms.optimizer import with_optimizer


def policy_loss(sizes: Sizes, loss: Loss, settings: Settings) -> Graph:
    """ids[b,s], targets[b,s] and what the loss reads -> ``loss``, a function of the targets' log-probabilities."""
    build, logits = started("policy_loss", sizes, settings, POLICY)
    build.output("loss", loss(build, log_probabilities(build, logits, sizes), sizes, settings))
    return build.graph()


def value_loss(sizes: Sizes, loss: Loss, settings: Settings) -> Graph:
    """ids[b,s] and what the loss reads -> ``loss``, a function of the values of all positions."""
    build, values = started("value_loss", sizes, settings, VALUE)
    build.output("loss", loss(build, values, sizes, settings))
    return build.graph()


def joint_loss(actor: Graph, critic: Graph) -> Graph:
    """The sum of both losses, of the same data; the critic's parameters have names that start with ``critic/``."""
    build = Builder("joint_loss")
    found = {"actor": inline(build, actor)["loss"]}
    data = {n: Value(n) for n, t in critic.inputs.items() if n in actor.inputs and t.role is not Role.PARAMETER}
    weights = {n: build.input(f"critic/{n}", t) for n, t in critic.parameters()}
    found["critic"] = inline(build, critic, data | weights)["loss"]
    for role, value in found.items():
        build.output(f"loss_{role}", value)
    build.output("loss", build.add(Pointwise("add"), *found.values(), name="joint_loss")[0])
    return build.graph()


def update(loss: Graph) -> Graph:
    """The step of Adam that lessens the loss; inputs and outputs are those of ``with_optimizer``."""
    return with_optimizer(training(loss))
