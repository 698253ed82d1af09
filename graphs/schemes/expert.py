"""Expert parallelism: experts are cut; the tokens stay with every rank, which works on those of its own experts."""

from __future__ import annotations

from graphs.schemes.scheme import Mapping, Scheme

SCHEME = Scheme("Expert", (Mapping("e", "P_e"),), source="row Expert of Tables V-VIII")
FFN = "experts"
