"""Proofs of the makespans of GPipe, 1F1B, interleaved 1F1B and ZB-H1, see derive.induction."""

from __future__ import annotations

from derive.forms import Form
from derive.induction import ONE, ZERO, C, Edges, I, K, Place, Proof, Run, S, Time, greatest, least
from derive.pipeline_forms import T_B, T_F, T_W, N, P, V
from graphs.schedules import Kind, Pipeline, Task


def forward(stage: Form = S, index: Form = I) -> Place:
    return Place(Kind.FORWARD, stage, index)


def backward(stage: Form = S, index: Form = I) -> Place:
    return Place(Kind.BACKWARD, stage, index)


def input_gradient(stage: Form = S, index: Form = I) -> Place:
    return Place(Kind.INPUT_GRADIENT, stage, index)


def weight_gradient(stage: Form = S, index: Form = I) -> Place:
    return Place(Kind.WEIGHT_GRADIENT, stage, index)


def one_forward_one_backward(warm_up: Form, passes: Form) -> dict[str, Edges]:
    """Resource edges of a stage that does ``warm_up`` forward passes and then pairs; ``passes`` of each in all."""
    return {
        "warm up": Edges(forward(), forward(S, I + 1), (warm_up - 1 - I,)),
        "one backward": Edges(forward(S, I + warm_up), backward()),
        "one forward": Edges(backward(), forward(S, I + warm_up + 1)),
        "cool down": Edges(backward(), backward(S, I + 1), (I + warm_up + 1 - passes,)),
        "short warm up": Edges(forward(S, passes - 1), backward(), (-I, warm_up - passes)),
    }


# Between neighbouring stages, and on one; the same for every schedule in which a stage has one chunk.
BETWEEN = {
    "activation": Edges(forward(), forward(S + 1)),
    "gradient": Edges(backward(S + 1), backward()),
}
DATA = {**BETWEEN, "own activation": Edges(forward(), backward())}
SIZES = (P - 1, N - 1)
GRID = (S, P - 1 - S, I, N - 1 - I)
WHOLE = {Kind.FORWARD: (1, 0), Kind.BACKWARD: (0, 1)}
MAKESPAN = (N + P - 1, N + P - 1)

GPIPE = Proof(
    "gpipe",
    SIZES,
    GRID,
    (T_F, T_B),
    WHOLE,
    MAKESPAN,
    starts={
        Kind.FORWARD: Time.of(S + I, ZERO),
        Kind.BACKWARD: Time.of(N + P - 1, P - 1 - S + N - 1 - I),
    },
    edges={  # "own activation" of the last micro-batch is also the turn from forward to backward passes
        **DATA,
        "next forward": Edges(forward(), forward(S, I + 1)),
        "next backward": Edges(backward(S, I + 1), backward()),
    },
    chain=(
        Run(("activation",), K, ZERO, P - 1),
        Run(("next forward",), P - 1, K, N - 1),
        Run(("own activation",), P - 1, N - 1, ONE),
        Run(("next backward",), P - 1, N - 2 - K, N - 1),
        Run(("gradient",), P - 2 - K, ZERO, P - 1),
    ),
)

ONE_F_ONE_B = Proof(
    "1f1b",
    SIZES,
    GRID,
    (T_F, T_B),
    WHOLE,
    MAKESPAN,
    starts={
        Kind.FORWARD: Time.of(S + I, I),
        Kind.BACKWARD: Time.of(P + I, P - 1 - S + I),
    },
    edges={**DATA, **one_forward_one_backward(P - 1 - S, N)},
    chain=(
        Run(("activation",), K, ZERO, P - 1),
        Run(("one backward", "one forward"), P - 1, K, N - 1),
        Run(("one backward",), P - 1, N - 1, ONE),
        Run(("gradient",), P - 2 - K, N - 1, P - 1),
    ),
)


def in_turns(pipeline: Pipeline, kind: Kind, stage: int, index: int) -> Task:
    """Groups of P_p micro-batches, each through all chunks of the stage, backwards in the backward pass."""
    group, within = divmod(index, pipeline.chunks)
    turn, batch = divmod(within, pipeline.stages)
    if kind is not Kind.FORWARD:
        turn = pipeline.virtual - 1 - turn
    return Task(kind, turn * pipeline.stages + stage, group * pipeline.stages + batch)


# The index counts passes through all chunks of a stage; the next chunk of a micro-batch is P_p passes later.
# "next chunk" also goes from the last chunk of a group to the first of the next one, where nothing need wait: assuming
# more edges than there are makes the upper bound harder, and the chain does not use them.  With one chunk on each stage
# the schedule is 1F1B, so n_vs is at least 2 here.
PASSES, LAST_TURN = N * V, (V - 1) * P
INTERLEAVED = Proof(
    "interleaved",
    sizes=(P - 1, V - 2, N - P, V * (N - P), LAST_TURN),
    grid=(S, P - 1 - S, I, PASSES - 1 - I),
    durations=(T_F / V, T_B / V),
    passes=WHOLE,
    makespan=(PASSES + P - 1, PASSES + P - 1),
    starts={
        Kind.FORWARD: Time.of(S + I, greatest(ZERO, I + S + 1 - V * P)),
        Kind.BACKWARD: Time.of(least(PASSES + P - 1, V * P + P - 1 - S + I), P - 1 - S + I),
    },
    edges={
        **BETWEEN,
        "next chunk": Edges(forward(P - 1), forward(ZERO, I + P), (-S,)),
        "chunk before": Edges(backward(ZERO), backward(P - 1, I + P), (-S,)),
        "own activation": Edges(  # of the chunk that has turn c
            forward(),
            backward(S, I + (V - 1 - 2 * C) * P),
            (C, V - 1 - C, C * P, (V - 1 - C) * P, I - C * P, PASSES - 1 - (V - 1 - C) * P - I),
        ),
        **one_forward_one_backward(2 * (P - 1 - S) + LAST_TURN, PASSES),
    },
    chain=(
        Run(("activation",), K, ZERO, P - 1),
        Run(("warm up",), P - 1, K, LAST_TURN),
        Run(("one backward", "one forward"), P - 1, K, PASSES - LAST_TURN - 1),
        Run(("one backward",), P - 1, PASSES - LAST_TURN - 1, ONE),
        Run(("cool down",), P - 1, PASSES - LAST_TURN - 1 + K, LAST_TURN),
        Run(("gradient",), P - 2 - K, PASSES - 1, P - 1),
    ),
    task=in_turns,
)

# Weight gradients no longer than forward passes and input gradients; these are counted as what they take longer.
ZERO_BUBBLE = Proof(
    "zero-bubble",
    sizes=(P - 1, N - P),
    grid=GRID,
    durations=(T_F - T_W, T_B - 2 * T_W, T_W),
    passes={Kind.FORWARD: (1, 0, 1), Kind.INPUT_GRADIENT: (0, 1, 1), Kind.WEIGHT_GRADIENT: (0, 0, 1)},
    makespan=(N + P - 1, N + P - 1, 3 * N + P - 1),
    starts={
        Kind.FORWARD: Time.of(S + I, I, greatest(2 * I + S, 3 * I + S + 1 - P)),
        Kind.INPUT_GRADIENT: Time.of(
            P + I,
            P - 1 - S + I,
            greatest(2 * P - 1 - S + 2 * I, least(2 * P - 1 - 2 * S + 3 * I, P + N - 1 - S + 2 * I)),
        ),
        Kind.WEIGHT_GRADIENT: Time.of(
            least(P + I + S, P + N - 1),
            least(P + I, P + N - 1 - S),
            least(2 * P + S + 3 * I, P + N + S + 2 * I, P + 2 * N - 1 + I),
        ),
    },
    edges={
        "activation": BETWEEN["activation"],
        "gradient": Edges(input_gradient(S + 1), input_gradient()),
        "own activation": Edges(forward(), input_gradient()),
        "own gradient": Edges(input_gradient(), weight_gradient()),
        "warm up": Edges(forward(), forward(S, I + 1), (P - S - 2 - I,)),
        "one backward": Edges(forward(S, I + P - 1 - S), input_gradient()),
        "one forward": Edges(input_gradient(), forward(S, I + P - S), (S - 1 - I,)),
        "one weight": Edges(input_gradient(), weight_gradient(S, I - S)),
        "forward after weight": Edges(weight_gradient(S, I - S), forward(S, I + P - S)),
        "cool down": Edges(weight_gradient(S, I - S), input_gradient(S, I + 1), (I + P - S - N,)),
        "weights left": Edges(weight_gradient(), weight_gradient(S, I + 1), (I + S + 1 - N,)),
    },
    chain=(
        Run(("activation",), K, ZERO, P - 1),
        Run(("one backward", "one forward"), P - 1, K, P - 1),
        Run(("one backward", "one weight", "forward after weight"), P - 1, P - 1 + K, N - P),
        Run(("one backward",), P - 1, N - 1, ONE),
        Run(("gradient",), P - 2 - K, N - 1, P - 1),
        Run(("own gradient",), ZERO, N - 1, ONE),
    ),
)

PROOFS = {proof.schedule: proof for proof in (GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE)}
