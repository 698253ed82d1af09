"""What a user says on the command line: models, schemes, sizes and widths by name; parsed, never evaluated."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, replace
from decimal import Decimal, InvalidOperation

from derive.cells import refuse_other_schemes
from derive.claims import load
from derive.measure import Question
from derive.memory import ADAM_COPIES, MIXED_COPIES, Widths
from graphs.blocks.decoder import ATTENTIONS, FEED_FORWARDS, FeedForward
from graphs.blocks.dropout import NONE, USUAL
from graphs.errors import GraphError, shown
from graphs.gallery import tried as tried_on_a_step
from graphs.models.roles import ROLES, ModelRole
from graphs.schemes import Declaration, blaming, with_policies
from graphs.symbols import is_size
from graphs.transforms.recompute import Recompute

#: a number is shown in decimal, and so are products of a few of them
MOST_DIGITS = 200


def model_of(name: str) -> tuple[ModelRole, FeedForward | None]:
    """``policy``, ``policy-experts``, ...: a role, and a feed-forward layer where one is named."""
    role, _, variant = name.partition("-")
    layers = [layer for layer in FEED_FORWARDS if layer != "dense"]
    if role not in ROLES or variant not in ("", *layers):
        raise GraphError(
            f"no model is called {name!r}; choose one of {', '.join(ROLES)}, alone or with -{' or -'.join(layers)}"
        )
    return ROLES[role], FEED_FORWARDS[variant] if variant else None


def tried(word: str, gathered: str | None = None, accumulated: str | None = None) -> Declaration:
    """The scheme, after a trial (`graphs.gallery.tried`) and a look at what it assumes; errors name its place.

    Policies that are given take the place of the scheme's own.
    """
    one = tried_on_a_step(word)
    ledger = load().assumptions
    with blaming(one.place):
        for name in one.assumes:
            if name not in ledger:
                raise GraphError(f"ASSUMES has the unknown assumption {name!r}; choose from those of `derive ledger`")
        refuse_other_schemes(one)
    return with_policies(one, gathered, accumulated)


def asked(model: str, scheme: str, gathered: str | None = None, accumulated: str | None = None) -> Question:
    """The question about a training step; the scheme says which feed-forward layer, unless the model does."""
    one = tried(scheme, gathered, accumulated)
    role, layer = model_of(model)
    attention = ATTENTIONS[one.attention]
    return Question(role=role, ffn=layer or FEED_FORWARDS[one.ffn], attention=attention, scheme=one.scheme.name)


def recomputing(q: Question, recompute: str) -> Question:
    """The question where the backward pass computes so much again."""
    return replace(q, recompute=Recompute(recompute.replace("-", "_")))


def holding(
    q: Question, recompute: str, *, dropout: bool = False, copies: int | None = None, in_bytes: bool = False
) -> Question:
    """The question with a policy for what is held; in bytes with a master copy."""
    return replace(
        recomputing(q, recompute),
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
        if not _is_whole(number):
            raise GraphError(f"{shown(word)}: a width is a whole number of bytes; write {name}=4")
        out = replace(out, **{name: int(number)})
    return out


def _is_whole(number: str) -> bool:
    """Is it a whole number?  One of too many digits is refused."""
    if len(number) > MOST_DIGITS:
        raise GraphError(f"{shown(number)}: a number of more than {MOST_DIGITS} digits; write a smaller one")
    return number.isascii() and number.isdigit()


def parse_sizes(words: Iterable[str], costs: Collection[str] = ()) -> dict[str, int]:
    """``B=1``: a size, or one of these named costs, and a positive integer; GraphError for anything else."""
    out: dict[str, int] = {}
    for word in words:
        name, (value, *more) = parse_values(word, costs)
        if more:
            raise GraphError(f"{word!r}: one value is needed; write {name}=8")
        if name in out:
            raise GraphError(f"{word!r}: {name} has a value already; give it once")
        out[name] = value
    return out


def parse_values(word: str, costs: Collection[str] = ()) -> tuple[str, list[int]]:
    """``K=1,2,4``: a size, or one of these named costs, and positive integers; GraphError for anything else."""
    name, _, numbers = word.partition("=")
    if not is_size(name) and name not in costs:
        raise GraphError(f"{word!r}: no size is called {name!r}; known are those of graphs/symbols.py, such as B")
    values = numbers.split(",")
    if not all(_is_whole(n) and int(n) for n in values):
        raise GraphError(f"{shown(word)}: a size is a positive integer; write a whole number from 1, such as {name}=8")
    return name, [int(n) for n in values]


def parse_count(text: str) -> int:
    """A positive whole number, also as ``1e21``; GraphError for anything else."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal(0)
    if not value.is_finite() or not 1 <= value < Decimal("1e100") or value != int(value):
        raise GraphError(f"{text!r} is no positive whole number below 1e100; write one such as 1e21")
    return int(value)


def parse_numbers(words: Iterable[str], allowed: tuple[str, ...]) -> dict[str, int]:
    """The same for some sizes only."""
    out = parse_sizes(words)
    for name in out:
        if name not in allowed:
            raise GraphError(f"{name} follows from the rest here; give {', '.join(allowed)} alone")
    return out


UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def parse_amount(word: str) -> int:
    """``80GiB``: bytes; GraphError for anything else."""
    number = word.rstrip("".join({c for unit in UNITS for c in unit}))
    unit = word.removeprefix(number)
    if not _is_whole(number) or unit not in UNITS:
        known = ", ".join(u for u in UNITS if u)
        raise GraphError(f"{shown(word)}: an amount of memory is a whole number of bytes, or of {known}; write 80GiB")
    return int(number) * UNITS[unit]
