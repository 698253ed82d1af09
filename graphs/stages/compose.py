"""A builder of stage graphs: every method appends one invocation or one step of glue and returns its name."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from graphs.axes import Axis
from graphs.errors import GraphError
from graphs.stages.stage import (
    ASSESSMENT,
    GENERATION,
    ONE,
    TRAINED,
    TRAINING,
    Glue,
    Invocation,
    Node,
    Options,
    Pass,
    StageGraph,
)
from graphs.symbols import size

PROMPTS, ROLLOUTS = Axis("prompt", size("B")), Axis("rollout", size("K"))
PAIRS, RESPONSES = Axis("pair", size("B_pairs")), Axis("response", sympy.Integer(2))
TOKENS = Axis("token", size("m"))
STEPS = Axis("step", size("T"))


class Composer:
    """Nodes so far, over ``samples``; ``options`` decide what `log_probabilities`, `values` and others append."""

    def __init__(self, name: str, samples: tuple[Axis, ...], options: Options) -> None:
        self.name, self.samples, self.options = name, samples, options
        self.nodes: list[Node] = []

    def graph(self) -> StageGraph:
        return StageGraph(self.name, tuple(self.nodes), self.options.shared)

    def invoke(self, name: str, stage: str, role: str, run: Pass, *inputs: str) -> str:
        trips, samples = self._updates(stage)
        self.nodes.append(Invocation(name, stage, role, run, samples, TOKENS, inputs, trips))
        return name

    def glue(self, name: str, stage: str, *inputs: str, chain: Axis | None = None) -> str:
        self.nodes.append(Glue(name, stage, inputs, chain, self._updates(stage)[0]))
        return name

    def _updates(self, stage: str) -> tuple[sympy.Expr, tuple[Axis, ...]]:
        """How often a node of the stage runs, and over which samples each time."""
        o = self.options
        if stage != TRAINING:
            return ONE, self.samples
        first, *rest = self.samples
        return o.epochs * o.updates, (Axis(first.name, first.size / o.updates), *rest)

    # -- generation ----------------------------------------------------------------------------------------------------
    def rollouts(self) -> str:
        """The sampled responses; with a shared prefill each prompt is run once for all of its rollouts."""
        if not self.options.share_prefill:
            return self.invoke("generate", GENERATION, "actor", Pass.GENERATE)
        prompts = self.samples[:1]
        self.nodes.append(Invocation("prefill", GENERATION, "actor", Pass.PREFILL, prompts, TOKENS))
        return self.invoke("decode", GENERATION, "actor", Pass.DECODE, "prefill")

    # -- assessment ----------------------------------------------------------------------------------------------------
    def log_probabilities(self, rollouts: str) -> str:
        """Of the sampled tokens under the sampling policy: from the logits it sampled with, or a pass of its own."""
        if self.options.log_probabilities_own_pass:
            rollouts = self.invoke("score_actor", ASSESSMENT, "actor", Pass.FORWARD, rollouts)
            return self.glue("log_probabilities", ASSESSMENT, rollouts)
        return self.glue("log_probabilities", GENERATION, rollouts)

    def reference(self, rollouts: str | None = None) -> str:
        given = (rollouts,) if rollouts else ()
        run = self.invoke("score_reference", ASSESSMENT, "reference", Pass.FORWARD, *given)
        return self.glue("reference_log_probabilities", ASSESSMENT, run)

    def rewards(self, rollouts: str) -> str:
        run = Pass.GENERATE if self.options.sequential_reward else Pass.FORWARD
        return self.invoke("score_reward", ASSESSMENT, "reward", run, rollouts)

    def values(self, rollouts: str) -> str:
        """Of every token: a pass of the critic, unless it shares the actor's backbone and was read off on the way."""
        if self.options.shared and not self.options.values_own_pass:
            return self.glue("values", GENERATION, rollouts)
        return self.invoke("score_critic", ASSESSMENT, "critic", Pass.FORWARD, rollouts)

    # -- training ------------------------------------------------------------------------------------------------------
    def update(self, losses: dict[str, tuple[str, ...]], reference: str | None = None) -> None:
        """Forward, loss, backward and optimizer step of each role; what its loss reads besides is given.

        With ``reference`` the actor's loss has a KL term.  Roles that share one model are trained by one pass over the
        sum of their losses.
        """
        if strange := sorted(losses.keys() - set(TRAINED)):
            raise GraphError(f"stages of {self.name}: the {strange[0]} is frozen and cannot be updated; leave it out")
        if self.options.shared and len(losses) > 1:
            losses = {TRAINED[0]: tuple(dict.fromkeys(i for inputs in losses.values() for i in inputs))}
        if not self.options.joint_update or len(losses) == 1:
            for role, inputs in losses.items():
                forward = self._train_forward(role)
                kl = (self.glue("kl", TRAINING, forward, reference),) if reference and role == "actor" else ()
                loss = self.glue(f"loss_{role}", TRAINING, forward, *inputs, *kl)
                self._train_backward(role, forward, loss)
            return
        forwards = {role: self._train_forward(role) for role in losses}
        inputs = tuple(dict.fromkeys(i for given in losses.values() for i in given))
        loss = self.glue("loss", TRAINING, *forwards.values(), *inputs)
        for role in reversed(list(losses)):
            self._train_backward(role, forwards[role], loss)

    def _train_forward(self, role: str) -> str:
        given: Sequence[str] = [n.name for n in self.nodes if isinstance(n, Invocation) and n.stage == GENERATION][-1:]
        return self.invoke(f"forward_{role}", TRAINING, role, Pass.FORWARD, *given)

    def _train_backward(self, role: str, forward: str, loss: str) -> None:
        backward = self.invoke(f"backward_{role}", TRAINING, role, Pass.BACKWARD, forward, loss)
        self.glue(f"update_{role}", TRAINING, backward)
