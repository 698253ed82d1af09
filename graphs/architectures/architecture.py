"""What the file of one architecture declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graphs.architectures.config import Config
from graphs.models.transformer import Transformer

#: what the tests compare with the `transformers` library of Hugging Face
COMPARED = ("outputs", "gradients", "FLOPs", "saved elements", "decoding", "parameters")


@dataclass(frozen=True)
class Architecture:
    """One or more model types that a configuration may have, and how their models are built.

    ``parts`` says in words what their layers are made of; ``tiny`` is a configuration that runs in no time;
    ``left_out`` is what the real model has besides, none of which is a matrix product or a parameter that is trained.
    ``compared`` is what the tests compare with `transformers`.
    """

    name: str
    model_types: tuple[str, ...]
    read: Callable[[Config], Transformer]
    parts: tuple[str, ...]
    tiny: Mapping[str, object]
    source: str
    left_out: tuple[str, ...] = ()
    compared: tuple[str, ...] = COMPARED

    def example(self) -> Transformer:
        """The tiny configuration's model."""
        return self.read(Config(self.tiny, f"the tiny {self.name}"))
