"""Operations that only place data: no arithmetic."""

from __future__ import annotations

from derive.costs.rule import FREE, Cost, Site, rule
from graphs.ops.constant import Broadcast, Constant
from graphs.ops.cross_entropy import OneHot
from graphs.ops.dispatch import Dispatch
from graphs.ops.fill import Fill
from graphs.ops.fold import Fold, Unfold
from graphs.ops.positions import Positions
from graphs.ops.relabel import Relabel
from graphs.ops.roll import Roll
from graphs.ops.select import Pad, Select
from graphs.ops.slice import Slice, Stack


@rule(
    Relabel,
    Fill,
    Unfold,
    Fold,
    Roll,
    Positions,
    Select,
    Pad,
    Constant,
    Broadcast,
    OneHot,
    Dispatch,
    Slice,
    Stack,
)
def movement(_site: Site) -> Cost:
    return FREE
