"""Pipeline parallelism: every rank has a contiguous run of layers; embedding first, head last.  Meant for P_p >= 2."""

from __future__ import annotations

from graphs.schemes.scheme import Mapping, Scheme

SCHEME = Scheme("Pipeline", (Mapping("layer", "P_p"),), source="row Pipeline of Tables V-VIII")
