"""What a module says about a scheme, and the laws that a module must keep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from graphs.blocks.decoder import ATTENTIONS, FEED_FORWARDS
from graphs.errors import GraphError
from graphs.schemes.scheme import Scheme

#: the mesh dimension whose degree is the number of blocks that attention works through
BLOCKS = {"ring": "P_c"}


@dataclass(frozen=True)
class Declaration:
    """A scheme, and what its row in Tables V-VIII speaks of.

    ``ffn`` and ``attention`` are the feed-forward layer and the kind of attention of that row.  ``assumes`` are ids of
    the ledger that hold for it although they do not hold for every row, such as balanced-routing.  ``place`` is where
    it is declared, for messages.
    """

    scheme: Scheme
    ffn: str = "dense"
    assumes: tuple[str, ...] = ()
    attention: str = "plain"
    place: str = ""


@contextmanager
def blaming(place: str) -> Iterator[None]:
    """What goes wrong inside is the fault of what is declared at this place, which the message names once."""
    try:
        yield
    except GraphError as error:
        if str(error).startswith(place):
            raise
        raise GraphError(f"{place}: {error}") from error


def declaration_in(found: object, place: str) -> Declaration:
    """The declaration of a module with a ``SCHEME``, or of a scheme by itself."""
    scheme = found if isinstance(found, Scheme) else getattr(found, "SCHEME", None)
    if scheme is None:
        raise GraphError(f"{place}: declares no SCHEME; write SCHEME = Scheme(name, entries, source)")
    if not isinstance(scheme, Scheme):
        raise GraphError(f"{place}: SCHEME is a {type(scheme).__name__}; make it a graphs.schemes.Scheme")
    ffn = getattr(found, "FFN", Declaration.ffn)
    if not isinstance(ffn, str) or ffn not in FEED_FORWARDS:
        raise GraphError(f"{place}: FFN is {ffn!r}; use one of {', '.join(FEED_FORWARDS)}")
    attention = getattr(found, "ATTENTION", Declaration.attention)
    if not isinstance(attention, str) or attention not in ATTENTIONS:
        raise GraphError(f"{place}: ATTENTION is {attention!r}; use one of {', '.join(ATTENTIONS)}")
    blocks = BLOCKS.get(attention)
    if blocks and blocks not in scheme.meshes:
        raise GraphError(
            f"{place}: ATTENTION is {attention!r}, whose blocks are the ranks of {blocks}; map axis 's' to it, or "
            "leave ATTENTION out"
        )
    assumes = getattr(found, "ASSUMES", ())
    if not isinstance(assumes, tuple) or not all(isinstance(name, str) for name in assumes):
        raise GraphError(f"{place}: ASSUMES is {assumes!r}; make it a tuple of ids that `derive ledger` lists")
    return Declaration(scheme, ffn, assumes, attention, place)
