"""3D parallelism: data, pipeline and tensor together, each on a mesh dimension of its own."""

from __future__ import annotations

from graphs.schemes.data import SCHEME as DATA
from graphs.schemes.pipeline import SCHEME as PIPELINE
from graphs.schemes.scheme import Scheme
from graphs.schemes.tensor import SCHEME as TENSOR

SCHEME = Scheme("3D", DATA.entries + PIPELINE.entries + TENSOR.entries, source="row 3D of Tables V-VIII")
