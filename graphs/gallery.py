"""Named example graphs for `derive show`, the documentation and the tests."""

from __future__ import annotations

from graphs.blocks.decoder import (
    ATTENTIONS,
    FEED_FORWARDS,
    PLAIN,
    Attention,
    FeedForward,
    decoder_block,
)
from graphs.errors import GraphError
from graphs.ir import Graph
from graphs.models.generation import generation
from graphs.models.roles import POLICY, ROLES, forward
from graphs.ops.repeat import Repeat
from graphs.schemes import Declaration, blaming, find
from graphs.sizes import Sizes
from graphs.transforms.backward import training
from graphs.transforms.partition import partition

VARIANTS = ("", "-experts", "-dispatched", "-ring")
NAMES = (
    *(f"{stem}{variant}" for stem in ("block", "policy", "training") for variant in VARIANTS),
    "reward",
    "value",
    "generation",
    "generation-experts",
)


def example(name: str, scheme: str = "none") -> Graph:
    """The graph called ``name``, on one rank of the scheme, which is named or is a user's file (`find`).

    Its layers are those that the scheme's row speaks of, where the name says no other.
    """
    if name not in NAMES:
        raise GraphError(f"no graph is called {name!r}; choose one of {', '.join(NAMES)}")
    one = find(scheme)
    chosen = one.scheme
    sizes = Sizes.canonical()
    stem, _, variant = name.partition("-")
    ffn = FEED_FORWARDS.get(variant) or FEED_FORWARDS[one.ffn]
    attention = ATTENTIONS.get(variant) or ATTENTIONS[one.attention]
    if stem == "block":
        graph = decoder_block(sizes, ffn, attention)
    elif stem == "generation":
        graph = generation(sizes, ffn)
    elif stem == "training":
        graph = step(POLICY.name, ffn, attention)
    else:
        graph = forward(sizes, ROLES[stem], ffn, attention=attention)
    split = partition(graph, chosen)
    if chosen.entries and not meshes_of(split):
        raise GraphError(f"scheme {scheme!r} splits nothing in the graph {name!r}; choose another of either")
    return split


def step(role: str, ffn: FeedForward, attention: Attention = PLAIN) -> Graph:
    """A training step of the model in that role: forward and backward."""
    return training(forward(Sizes.canonical(), ROLES[role], ffn, loss=True, attention=attention))


def tried(word: str) -> Declaration:
    """The scheme (`find`), after a trial on the training step that its row speaks of; GraphError where it fails."""
    one = find(word)
    with blaming(one.place):
        split = partition(step(POLICY.name, FEED_FORWARDS[one.ffn], ATTENTIONS[one.attention]), one.scheme)
        used = {e.mesh for e in one.scheme.entries if not e.stored}
        if idle := sorted(used - meshes_of(split)):
            raise GraphError(
                f"scheme {one.scheme.name}: nothing of the {one.ffn} training step is cut over {idle[0]}; map another "
                "axis to it, or declare FFN with the feed-forward layer that has the axis"
            )
    return one


def meshes_of(graph: Graph) -> set[str]:
    """The mesh dimensions that split something, loops included."""
    bodies = [n.op for n in graph.nodes if isinstance(n.op, Repeat)]
    tensors = [*graph.inputs.values(), *(t for n in graph.nodes for t in n.types)]
    here = {s.mesh for t in tensors for a in t.axes for s in a.splits}
    return here.union(*(meshes_of(op.body) | {s.mesh for s in op.axis.splits} for op in bodies))
