"""What the two parsers share: limits on the input, and lark's errors turned into one sentence with the position."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken, VisitError

from derive.expr import Expr
from graphs.symbols import is_size

MAX_DEPTH = 40
MAX_EXPONENT = 64
MAX_DIGITS = 40
INDICES = frozenset("tijk")


class ParseError(ValueError):
    """The text is not an expression; the message is one sentence that names the place."""


def shown(text: str, position: int) -> str:
    """Where it happened: the 1-based position and the text around it."""
    around = text[max(0, position - 12) : position + 12]
    return f"at position {position + 1} (near `{around.strip()}`)"


def check_limits(text: str, brackets: re.Pattern[str], max_length: int) -> None:
    """Named invariants of the raw text: not empty, not too long, not nested too deep."""
    if not text.strip():
        raise ParseError("the expression is empty")
    if len(text) > max_length:
        raise ParseError(f"the expression has {len(text)} characters; at most {max_length} are accepted")
    depth = 0
    for match in brackets.finditer(text):
        depth += 1 if match.lastgroup == "open" else -1
        if depth < 0:
            raise ParseError(f"`{match.group()}` closes no bracket {shown(text, match.start())}")
        if depth > MAX_DEPTH:
            raise ParseError(f"brackets are nested deeper than {MAX_DEPTH} {shown(text, match.start())}")


def check_name(name: str, text: str, position: int) -> str:
    """The name itself when it is a registered size or an index letter."""
    if not is_size(name) and name not in INDICES:
        raise ParseError(f"unknown symbol {name} {shown(text, position)}: sizes are registered in graphs/symbols.py")
    return name


def check_exponent(value: int, text: str, position: int) -> int:
    if abs(value) > MAX_EXPONENT:
        raise ParseError(f"the power {value} {shown(text, position)} is above the limit of {MAX_EXPONENT}")
    return value


def rational(token: Token, text: str) -> Fraction:
    if len(token) > MAX_DIGITS:
        raise ParseError(f"the number {shown(text, token.start_pos or 0)} has more than {MAX_DIGITS} digits")
    return Fraction(str(token))


def parse_rational(text: str, what: str) -> Fraction:
    """A number as a user types it: ``3``, ``3/2`` or ``1.5``; ``what`` names it in the error."""
    if not re.fullmatch(r"-?[0-9]+(\.[0-9]+|/0*[1-9][0-9]*)?", text.strip(), re.ASCII):
        raise ParseError(f"{what}: {text!r} is no rational number; write it like 3, 3/2 or 1.5")
    if len(text) > MAX_DIGITS:
        raise ParseError(f"{what}: a number of more than {MAX_DIGITS} characters is not accepted")
    return Fraction(text.strip())


def parse_whole(text: str, what: str) -> int:
    """A whole number as a user types it; ``what`` names it in the error."""
    number = parse_rational(text, what)
    if number.denominator != 1:
        raise ParseError(f"{what}: {text.strip()} is no whole number; write it like 3")
    return number.numerator


def run(parser: Lark, text: str, start: str, build: Transformer[Token, Expr], names: Mapping[str, str]) -> Any:
    """Parse and build; every failure becomes a `ParseError`."""
    try:
        return build.transform(parser.parse(text, start=start))
    except UnexpectedInput as error:
        raise ParseError(_sentence(error, text, names)) from None
    except VisitError as error:
        if isinstance(error.orig_exc, ParseError):
            raise error.orig_exc from None
        raise


def _sentence(error: UnexpectedInput, text: str, names: Mapping[str, str]) -> str:
    if isinstance(error, UnexpectedEOF) or (isinstance(error, UnexpectedToken) and error.token.type == "$END"):
        return f"the expression ends too early: expected {_wanted(error, names)} after `{text.strip()[-24:]}`"
    position = int(getattr(error, "pos_in_stream", 0) or 0)
    if isinstance(error, UnexpectedCharacters):
        match = re.match(r"\\[A-Za-z]+|\\.|.", text[position:], re.DOTALL)
        found = match.group() if match else ""
        kind = "unknown or misplaced command" if found.startswith("\\") and len(found) > 1 else "unexpected"
        return f"{kind} `{found}` {shown(text, position)}"
    found = str(getattr(error, "token", text[position : position + 1]))
    return f"unexpected `{found}` {shown(text, position)}{_hint(error, names)}"


def _hint(error: UnexpectedInput, names: Mapping[str, str]) -> str:
    """What could stand there, where the list is short enough to help."""
    wanted = _wanted(error, names)
    return f": expected {wanted}" if wanted.count(" or ") < 4 else ""


def _wanted(error: UnexpectedInput, names: Mapping[str, str]) -> str:
    """The expected tokens in words, without repeats, in a fixed order."""
    tokens = getattr(error, "expected", None) or ()
    words = sorted({names.get(t, "an operand") for t in tokens})
    return " or ".join(words) if words else "the end"
