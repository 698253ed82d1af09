"""Cost models: the conventions under which operations are counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CostModel:
    """A record of conventions; the traversal is the same for all.

    ``dot_product``: FLOPs of a dot product of length k, ``2k`` or exactly ``2k-1``.
    ``causal``: visible pairs of a causal restriction, ``half`` (m^2/2), ``exact`` (m(m+1)/2) or ``dense`` (m^2).
    ``gemm_only``: work counts contractions alone, and depth counts the reduction chains of contractions and the
    accumulation of parameter gradients; else every kind of operation counts.
    ``exact_depth``: a reduction of k values takes ceil(log2 k) steps and a product one more; else log2 k.
    ``balanced_causal``: where a causal axis is split, all ranks do the mean, as under a zigzag layout they do anyway;
    else the rank with most work under contiguous slices is counted.
    ``balanced_routing``: every rank of a split expert axis serves its share of a token's active experts; else the rank
    that serves them all is counted.
    """

    name: str
    dot_product: str = "2k"
    causal: str = "half"
    gemm_only: bool = True
    exact_depth: bool = False
    balanced_causal: bool = True
    balanced_routing: bool = True


PAPER = CostModel("paper")
FULL = CostModel("full", dot_product="2k-1", causal="exact", gemm_only=False, exact_depth=True)
MODELS = {model.name: model for model in (PAPER, FULL)}
