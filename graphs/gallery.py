"""Named example graphs for `derive show`, the documentation and the tests."""

from __future__ import annotations

from graphs.blocks.decoder import DENSE, EXPERTS, decoder_block
from graphs.errors import GraphError
from graphs.ir import Graph
from graphs.models.generation import generation
from graphs.models.roles import POLICY, ROLES, forward
from graphs.ops.repeat import Repeat
from graphs.schemes import schemes
from graphs.sizes import Sizes
from graphs.transforms.backward import training
from graphs.transforms.partition import partition

NAMES = (
    "block", "block-experts", "policy", "policy-experts", "reward", "value", "training", "training-experts",
    "generation", "generation-experts",
)  # fmt: skip


def example(name: str, scheme: str = "none") -> Graph:
    """The graph called ``name``, on one rank of the scheme."""
    if name not in NAMES:
        raise GraphError(f"no graph is called {name!r}; choose one of {', '.join(NAMES)}")
    known = {s.name.lower(): s for s in schemes().values()}
    if scheme.lower() not in known:
        raise GraphError(f"no scheme is called {scheme!r}; choose one of {', '.join(known)}")
    sizes = Sizes.canonical()
    stem, _, variant = name.partition("-")
    ffn = EXPERTS if variant else DENSE
    if stem == "block":
        graph = decoder_block(sizes, ffn)
    elif stem == "generation":
        graph = generation(sizes, ffn)
    elif stem == "training":
        graph = training(forward(sizes, POLICY, ffn, loss=True))
    else:
        graph = forward(sizes, ROLES[stem], ffn)
    chosen = known[scheme.lower()]
    split = partition(graph, chosen)
    if chosen.entries and not _meshes(split):
        raise GraphError(f"scheme {scheme!r} splits nothing in the graph {name!r}; choose another of either")
    return split


def _meshes(graph: Graph) -> set[str]:
    """The mesh dimensions that split something, loops included."""
    bodies = [n.op for n in graph.nodes if isinstance(n.op, Repeat)]
    tensors = [*graph.inputs.values(), *(t for n in graph.nodes for t in n.types)]
    here = {s.mesh for t in tensors for a in t.axes for s in a.splits}
    return here.union(*(_meshes(op.body) | {s.mesh for s in op.axis.splits} for op in bodies))
