"""Multi-token prediction (DeepSeek-V3, section 2.2): modules that go on from the last layer to tokens further ahead.

Module k joins what the one before it made of a position with the embedding of the token k further on, runs one more
layer, and reads logits off the table that the model reads them off.  Modules are trained with the model and dropped, or
used to draft, when it generates.
"""

from __future__ import annotations

from graphs.axes import Role
from graphs.blocks.scope import Scope
from graphs.ir import Value
from graphs.ops.lookup import Lookup
from graphs.ops.relabel import Relabel


def joined(at: Scope, x: Value, table: Value, k: int) -> Value:
    """x[b,s,c] and ``ids_k``[b,s], the tokens k further on -> [b,s,c], the input of module k's layer.

    The matrix that takes both together to the width of the model is written as one for each.
    """
    ids = at.build.input(f"ids_{k}", at.shape.tensor("b s", Role.INDEX))
    (e,) = at.build.add(Lookup("v"), table, ids, name=f"{at.prefix}embedding")
    x = at.project(at.rms_norm(x, "gain_h", "c", "norm_h"), "W_h", "c", "onto", "join_h")
    e = at.project(at.rms_norm(e, "gain_e", "c", "norm_e"), "W_t", "c", "onto", "join_t")
    both = at.apply("add", x, e, name="join")
    return at.build.add(Relabel("onto", "c"), both, name=f"{at.prefix}joined")[0]
