"""One update of a model: forward pass, loss, backward pass and optimizer step as one graph."""

from __future__ import annotations

from graphs.ir import Graph
from graphs.models.roles import POLICY, VALUE
from graphs.rl.losses import Loss
from graphs.rl.passes import log_probabilities, started
from graphs.rl.settings import Settings
from graphs.sizes import Sizes
from graphs.transforms.backward import training
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


def update(loss: Graph) -> Graph:
    """The step of Adam that lessens the loss; inputs and outputs are those of ``with_optimizer``."""
    return with_optimizer(training(loss))
