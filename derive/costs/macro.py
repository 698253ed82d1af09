"""Softmax, norms and cross-entropy are counted as their primitives; the GEMM-only convention leaves them out."""

from __future__ import annotations

from derive.costs.rule import FREE, Cost, Site, rule
from graphs.errors import GraphError
from graphs.ops.cross_entropy import CrossEntropy
from graphs.ops.norm import LayerNorm
from graphs.ops.rms_norm import RMSNorm
from graphs.ops.sink_softmax import SinkSoftmax
from graphs.ops.softmax import Softmax


@rule(Softmax, SinkSoftmax, LayerNorm, RMSNorm, CrossEntropy)
def macro(site: Site) -> Cost:
    if not site.model.gemm_only:
        raise GraphError(f"{site.node.name}: expand macros before counting every operation")
    return FREE
