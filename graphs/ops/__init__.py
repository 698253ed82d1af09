"""Kinds of operation, one file each; the cost rule of ``graphs/ops/x.py`` is ``derive/costs/x.py``."""
