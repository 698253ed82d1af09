"""No parallelism: one device does everything."""

from __future__ import annotations

from graphs.schemes.scheme import Scheme

SCHEME = Scheme("None", (), source="row None of Tables V-VIII")
