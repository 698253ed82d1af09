"""Random graphs of invocations and random placements."""

from __future__ import annotations

from itertools import combinations

from hypothesis import strategies as st

from graphs.placements import Group, Placement, Seat
from graphs.placements.placement import BARRIERS
from graphs.stages.compose import PROMPTS, TOKENS
from graphs.stages.stage import (
    ASSESSMENT,
    GENERATION,
    MODELS,
    STAGES,
    TRAINED,
    TRAINING,
    Glue,
    Invocation,
    Pass,
    StageGraph,
)

SIZES = ("B", "K", "S", "T", "m", "n_ep", "n_up")


@st.composite
def graphs(draw, largest: int = 4):
    """A few forward passes in stages, then updates of one or two trained models; inputs from anywhere before."""
    nodes: list[Glue | Invocation] = []
    for i in range(draw(st.integers(1, largest))):
        stage = draw(st.sampled_from((GENERATION, ASSESSMENT)))
        role = draw(st.sampled_from(sorted(MODELS)))
        nodes.append(Invocation(f"n{i}", stage, role, Pass.FORWARD, (PROMPTS,), TOKENS))
    nodes.sort(key=lambda n: STAGES.index(n.stage))
    nodes = [_with_inputs(draw, n, nodes[:i]) for i, n in enumerate(nodes)]
    roles = draw(st.sampled_from([(), ("actor",), ("critic",), TRAINED]))
    joint = draw(st.booleans())
    parts = [[_forward(r), _backward(r), Glue(f"update_{r}", TRAINING, (f"backward_{r}",))] for r in roles]
    training = [p for part in (zip(*parts, strict=True) if joint else parts) for p in part]
    for node in training:
        nodes.append(_with_inputs(draw, node, nodes))
    return StageGraph("random", tuple(nodes))


def _forward(role: str) -> Invocation:
    return Invocation(f"forward_{role}", TRAINING, role, Pass.FORWARD, (PROMPTS,), TOKENS)


def _backward(role: str) -> Invocation:
    return Invocation(f"backward_{role}", TRAINING, role, Pass.BACKWARD, (PROMPTS,), TOKENS, (f"forward_{role}",))


def _with_inputs(draw, node, earlier):
    from dataclasses import replace

    names = [n.name for n in earlier if n.name not in node.inputs]
    more = draw(st.lists(st.sampled_from(names), unique=True, max_size=2)) if names else []
    return replace(node, inputs=(*node.inputs, *more))


@st.composite
def placements(draw, staleness=None):
    """Any map of roles to three groups; with a staleness, training is on groups of its own."""
    groups = [Group(f"g{i}", draw(st.booleans())) for i in range(3)]
    names = [g.name for g in groups]
    first, last = (names[:2], names[2:]) if staleness is not None else (names, names)
    seats = [Seat(TRAINING, role, draw(st.sampled_from(last))) for role in sorted(MODELS)]
    seats += [Seat("*", role, draw(st.sampled_from(first))) for role in sorted(MODELS)]
    subsets = [c for size in range(3) for c in combinations(BARRIERS, size)]
    barriers = draw(st.sampled_from(subsets))
    return Placement("random", "random", tuple(groups), tuple(seats), "test", barriers, staleness=staleness)


def values_of(symbols, draw_number) -> dict[str, int]:
    """A number for every opaque cost, and 1 for every size."""
    return {s: 1 if s in SIZES else draw_number(s) for s in sorted(symbols)}
