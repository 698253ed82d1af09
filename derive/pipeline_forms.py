"""What is printed about pipeline schedules, as forms: claims, to be compared with the traversal of derive.schedules.

They hold for stages of equal layers and free transfers.  ``t_F``, ``t_B`` are the times of a rank's forward and whole
backward pass of one micro-batch, ``t_W`` the part of the backward pass that is the weight gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from derive.forms import Form, Max, Scalar, symbol

P, N, V = symbol("P_p"), symbol("n_mb"), symbol("n_vs")
T_F, T_B, T_W = symbol("t_F"), symbol("t_B"), symbol("t_W")
USEFUL = N * (T_F + T_B)
ONE = Form.constant(1)


@dataclass(frozen=True)
class ClosedForm:
    """Useful and idle time of each rank; ``bubble`` is idle per useful time where it depends on no duration.

    ``least_batches`` is the least number of micro-batches for which it holds.
    """

    idle: Max
    bubble: Form | None
    source: str
    useful: Form = USEFUL
    least_batches: Form = ONE

    def makespan(self) -> Max:
        return self.idle + self.useful

    def over_ideal(self, sizes: Mapping[str, Scalar]) -> Fraction:
        """Idle per useful time."""
        return self.idle.evaluate(sizes) / self.useful.evaluate(sizes)

    def over_total(self, sizes: Mapping[str, Scalar]) -> Fraction:
        """Idle per makespan."""
        return self.idle.evaluate(sizes) / self.makespan().evaluate(sizes)


WHOLE_STAGES = (P - 1) * (T_F + T_B)
CLOSED_FORMS: dict[str, ClosedForm] = {
    "gpipe": ClosedForm(Max.of(WHOLE_STAGES), (P - 1) / N, "arXiv:2104.04473, Section 2.2.1"),
    "1f1b": ClosedForm(Max.of(WHOLE_STAGES), (P - 1) / N, "arXiv:2104.04473, Section 2.2.1"),
    "interleaved": ClosedForm(Max.of(WHOLE_STAGES / V), (P - 1) / (V * N), "arXiv:2104.04473, Section 2.2.2"),
    # The paper prints the first member, and assumes weight gradients no longer than either of the other two passes.
    "zero-bubble": ClosedForm(
        Max.of((P - 1) * (T_F + T_B - 2 * T_W), (P - 1) * (T_B - T_W), (P - 1) * T_F),
        None,
        "arXiv:2401.10241, Section 2.1 (ZB-H1)",
        least_batches=P,
    ),
}
