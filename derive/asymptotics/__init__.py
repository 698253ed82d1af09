"""Growth of costs: questions with proofs and witnesses that a small checker verifies."""

from derive.asymptotics.problem import Answer, Bound, Domain, Proved, Refuted, Regime, Undecided
from derive.asymptotics.prove import at_most, equal, leading, order

__all__ = [
    "Answer",
    "Bound",
    "Domain",
    "Proved",
    "Refuted",
    "Regime",
    "Undecided",
    "at_most",
    "equal",
    "leading",
    "order",
]
