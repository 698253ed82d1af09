"""What each PyTorch operation is here: a contraction, or of which nature.  One that is in no list has no rule.

PyTorch itself marks views, pointwise operations and reductions; the tables add what it leaves unmarked.
"""

from __future__ import annotations

from typing import Any

from torch import Tag

#: contraction -> (its axes in the manner of einsum, position of its first factor); an operand before it is added
CONTRACTIONS: dict[str, tuple[str, int]] = {
    "mm": ("ik,kj->ij", 0),
    "addmm": ("ik,kj->ij", 1),
    "bmm": ("nik,nkj->nij", 0),
    "baddbmm": ("nik,nkj->nij", 1),
    "mv": ("ik,k->i", 0),
    "addmv": ("ik,k->i", 1),
    "dot": ("k,k->", 0),
    "vdot": ("k,k->", 0),
}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: softmax, norms and losses among them
REDUCTIONS = _words(
    """
    _batch_norm_with_update _fused_rms_norm _fused_rms_norm_backward _log_softmax _log_softmax_backward_data
    _native_batch_norm_legit _safe_softmax _softmax _softmax_backward_data cumprod cumsum logcumsumexp max median
    min mse_loss mse_loss_backward native_batch_norm native_batch_norm_backward native_group_norm
    native_group_norm_backward native_layer_norm native_layer_norm_backward nll_loss_backward nll_loss_forward sort
    topk
    """
)

#: copies, selections, new tensors and random ones
MOVEMENTS = _words(
    """
    _reshape_copy _to_copy _unsafe_index _unsafe_view arange cat constant_pad_nd copy embedding
    embedding_dense_backward empty empty_like empty_strided eye fill flip full full_like gather index index_add
    index_copy index_put index_select lift_fresh_copy masked_scatter new_empty new_empty_strided new_full new_ones
    new_zeros normal ones ones_like rand rand_like randint randn randn_like repeat roll scalar_tensor scatter
    scatter_add select_backward select_scatter slice_backward slice_scatter stack tril triu unfold_backward uniform
    zero zeros zeros_like
    """
)

#: what PyTorch leaves unmarked
POINTWISE = _words("bernoulli binary_cross_entropy native_dropout")


def name_of(target: Any) -> str:
    """The name of an operation without its namespace and overload; in-place ones without their underscore."""
    name = str(target).removeprefix("aten.").split(".")[0]
    return name[:-1] if name.endswith("_") and not name.startswith("__") else name


def nature(target: Any) -> str | None:
    """Contraction, pointwise, reduction or movement; None where no rule says."""
    if getattr(target, "namespace", None) != "aten":
        return None
    name, tags = name_of(target), target.tags
    if name in CONTRACTIONS:
        return "contraction"
    if target.is_view or name in MOVEMENTS:
        return "movement"
    if Tag.pointwise in tags or name in POINTWISE:
        return "pointwise"
    return "reduction" if Tag.reduction in tags or name in REDUCTIONS else None
