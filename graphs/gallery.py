"""Named example graphs for `derive show`, the documentation and the tests."""

from __future__ import annotations

from graphs.blocks.decoder import DENSE, EXPERTS, decoder_block
from graphs.errors import GraphError
from graphs.ir import Graph
from graphs.models.roles import POLICY, ROLES, forward
from graphs.schemes import schemes
from graphs.sizes import Sizes
from graphs.transforms.backward import training
from graphs.transforms.partition import partition

NAMES = ("block", "block-experts", "policy", "policy-experts", "reward", "value", "training", "training-experts")


def example(name: str, scheme: str = "None") -> Graph:
    """The graph called ``name``, on one rank of the scheme."""
    if name not in NAMES:
        raise GraphError(f"no graph is called {name!r}; choose one of {', '.join(NAMES)}")
    if scheme not in schemes():
        raise GraphError(f"no scheme is called {scheme!r}; choose one of {', '.join(schemes())}")
    sizes = Sizes.canonical()
    stem, _, variant = name.partition("-")
    ffn = EXPERTS if variant else DENSE
    if stem == "block":
        graph = decoder_block(sizes, ffn)
    elif stem == "training":
        graph = training(forward(sizes, POLICY, ffn, loss=True))
    else:
        graph = forward(sizes, ROLES[stem], ffn)
    return partition(graph, schemes()[scheme])
