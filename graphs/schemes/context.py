"""Context parallelism: positions are cut; keys and values, being relabelled to an uncut axis, are gathered."""

from __future__ import annotations

from graphs.schemes.scheme import Mapping, Scheme

SCHEME = Scheme("Context", (Mapping("s", "P_c"),), source="row Context of Tables V-VIII")
