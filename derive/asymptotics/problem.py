"""Questions about growth and their answers.

A question is asked on a `Domain` (sizes are products of free factors >= 1) under hypotheses `left = O(right)`.
``f = O(g)`` means: for every constant in the hypotheses there is one constant C with ``f <= C*g`` on the whole domain
where ``g`` is bounded below by a positive constant, else ``f <= C*(1 + g)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from derive.forms import Form, Max


@dataclass(frozen=True)
class Domain:
    """Where the sizes live.

    ``factors`` writes a size as a product of free factors (``d`` as ``P_t*h_1*d_h``); a size it does not list is a free
    factor itself.  Every free factor is at least 1, and ``least`` bounds sizes or free factors from below (``m >= 2``).
    ``typical`` gives powers of two that a witness should use, where it can, for free factors which it keeps constant
    (``d_h = 128``); it has no influence on any answer.
    """

    factors: Mapping[str, Form] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)
    typical: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Bound:
    """The hypothesis ``left = O(right)``, about sizes (``h*m = O(d)``) or logs (``log V = O(log d)``)."""

    left: Form
    right: Form

    @property
    def text(self) -> str:
        return f"{self.left.text} = O({self.right.text})"


@dataclass(frozen=True)
class Proved:
    """The claim holds; ``certificate`` has passed the checker and proves it from JSON alone.

    Answers are remembered and shared: copy a certificate or witness before changing it.
    """

    certificate: dict[str, Any]


@dataclass(frozen=True)
class Refuted:
    """The claim fails; ``witness`` (a family of sizes, or a point for exact claims) has passed the checker."""

    witness: dict[str, Any]


@dataclass(frozen=True)
class Undecided:
    """Neither a proof nor a witness was found; ``reason`` says what was tried or which limit was hit."""

    reason: str


Answer = Proved | Refuted | Undecided


@dataclass(frozen=True)
class Regime:
    """A set of hypotheses under which a claim is proved, with its own certificate.

    ``weakest`` says that every regime under which the claim holds implies this one.
    """

    bounds: tuple[Bound, ...]
    certificate: dict[str, Any]
    weakest: bool = False

    @property
    def text(self) -> str:
        return " and ".join(b.text for b in self.bounds)


def as_max(value: Form | Max) -> Max:
    return value if isinstance(value, Max) else Max.of(value)
