"""Data parallelism: every rank has all parameters and a share of the sequences."""

from __future__ import annotations

from graphs.schemes.scheme import Mapping, Scheme

SCHEME = Scheme("Data", (Mapping("b", "P_d"),), source="row Data of Tables V-VIII")
