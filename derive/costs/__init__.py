"""Cost rules, one file per kind of operation with the stem of ``graphs/ops``."""
