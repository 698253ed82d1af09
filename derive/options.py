"""What a user says on the command line: models, schemes, sizes and widths by name; parsed, never evaluated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

from derive.measure import Question
from derive.memory import ADAM_COPIES, MIXED_COPIES, Widths
from graphs.blocks.decoder import DENSE, EXPERTS
from graphs.blocks.dropout import NONE, USUAL
from graphs.errors import GraphError
from graphs.models.roles import ROLES
from graphs.schemes import schemes
from graphs.symbols import is_size
from graphs.transforms.backward import Recompute


def question(
    model: str, scheme: str, recompute: str, dropout: bool, copies: int | None, *, in_bytes: bool = False
) -> Question:
    """The question about a training step of ``policy``, ``policy-experts``, ...; in bytes with a master copy."""
    known = {s.lower(): s for s in schemes()}
    if scheme.lower() not in known:
        raise GraphError(f"no scheme is called {scheme!r}; choose one of {', '.join(known)}")
    role, _, variant = model.partition("-")
    if role not in ROLES or variant not in ("", "experts"):
        raise GraphError(f"no model is called {model!r}; choose one of {', '.join(ROLES)}, with or without -experts")
    return Question(
        role=ROLES[role],
        ffn=EXPERTS if variant else DENSE,
        scheme=known[scheme.lower()],
        recompute=Recompute(recompute.replace("-", "_")),
        copies=copies or (MIXED_COPIES if in_bytes else ADAM_COPIES),
        dropout=USUAL if dropout else NONE,
    )


def widths_of(words: Iterable[str]) -> Widths:
    """``gradients=4``: the usual widths with some changed; GraphError for an unknown group or no number."""
    out = Widths()
    for word in words:
        name, _, number = word.partition("=")
        if name not in asdict(out):
            raise GraphError(f"{word!r}: nothing kept is called {name!r}; use one of {', '.join(asdict(out))}")
        if not (number.isascii() and number.isdigit()):
            raise GraphError(f"{word!r}: a width is a whole number of bytes; write {name}=4")
        out = replace(out, **{name: int(number)})
    return out


def parse_sizes(words: Iterable[str]) -> dict[str, int]:
    """``B=1``: a size and a positive integer; GraphError for anything else."""
    out: dict[str, int] = {}
    for word in words:
        name, _, number = word.partition("=")
        if not is_size(name):
            raise GraphError(f"{word!r}: no size is called {name!r}; known are those of graphs/symbols.py, such as B")
        if not (number.isascii() and number.isdigit() and int(number)):
            raise GraphError(f"{word!r}: a size is a positive integer; write {name}=1")
        if name in out:
            raise GraphError(f"{word!r}: {name} has a value already; give it once")
        out[name] = int(number)
    return out
