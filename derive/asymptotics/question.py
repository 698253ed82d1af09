"""One question while it is worked on: the certificate's header, the setting of its proofs, a budget of steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from derive.asymptotics import checker
from derive.asymptotics.checker import Rejected, Setting, is_log
from derive.asymptotics.families import Finder
from derive.asymptotics.problem import Bound, Domain, Proved, Refuted, as_max
from derive.asymptotics.proofs import Prover
from derive.asymptotics.simplex import Budget
from derive.asymptotics.witnesses import accepted, illustrate, specialised
from derive.forms import Form, Max
from derive.sums import sizes_of

Names = tuple[str, str]
Value = Form | Max


class Question:
    """One claim about two expressions: the certificate's header, its setting, a budget."""

    def __init__(
        self,
        claim: str,
        f: Value,
        g: Value,
        domain: Domain,
        hypotheses: Iterable[Bound],
        names: Names,
        steps: int,
        refute: bool = True,
    ) -> None:
        self.refute = refute
        self.f, self.g = as_max(f), as_max(g)
        self.domain = domain
        self.header: dict[str, Any] = {
            "claim": claim,
            "f": self.f.text,
            "g": self.g.text,
            "f_is": names[0],
            "g_is": names[1],
            "factors": {name: form.text for name, form in sorted(domain.factors.items())},
            "least": dict(sorted(domain.least.items())),
            "hypotheses": [{"left": b.left.text, "right": b.right.text} for b in hypotheses],
        }
        self.setting = Setting(self.header)
        #: where f is to exceed g: another one only where sums of logs are bounded
        self.against = Setting(self.header, refute=True) if self.setting.reader.sums else self.setting
        self.budget = Budget(steps)
        self.prover = Prover(self.setting, self.budget)

    @property
    def names(self) -> list[str]:
        """Sizes of the claim, its hypotheses and the bounds of its domain, to be shown by a witness."""
        texts = {s for name in self.f.symbols | self.g.symbols for s in sizes_of(name)} | set(self.domain.least)
        for left, right in ((h["left"], h["right"]) for h in self.header["hypotheses"]):
            texts |= {
                g
                for p in checker.Reader({}).read(left) + checker.Reader({}).read(right)
                for m in p
                for g, _ in m
                if not is_log(g)
            }
        return sorted(texts)

    def proved(self, body: Mapping[str, Any]) -> Proved:
        certificate = {**self.header, **body}
        checker.check_certificate(certificate)
        return Proved(certificate)

    def witness(self, grow: bool = False) -> Refuted | None:
        """A family that refutes the claim, checked; none is looked for where only a proof is asked for."""
        if not self.refute:
            return None
        settings = [self.against] if grow else specialised(self.against)
        for free in (f for s in settings for f in Finder(s, self.budget, self.domain.typical, grow).families()):
            self.budget.spend()
            if not accepted(self.against, free, self.header["claim"]):
                continue
            witness = illustrate(self.against, self.header, free, self.names)
            if witness is not None:
                try:
                    checker.check_witness(witness)
                except Rejected:
                    continue
                return Refuted(witness)
        return None
