"""Forms that other papers and trainers print, loaded from ``tables/published/*.toml`` into frozen records.

A form is a claim as the paper's cells are, with the question that it answers: what is measured, how it is counted, and
what the form says it leaves out.  Its letters are the source's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from derive import records
from derive.answers import CAUSAL, DEPENDS, EMBEDDINGS, MEASURES, PER, RECOMPUTED, USES, Asked, scheme_names
from derive.claims import Claim
from derive.data import published_folder, published_verdicts_file
from derive.expr import Expr, free_symbols
from derive.forms import Form
from derive.latex import parse
from derive.memory import Widths
from derive.normal import single_form
from derive.parsing import ParseError
from derive.records import ClaimError
from derive.textform import parse_text
from graphs.errors import GraphError
from graphs.symbols import is_size

#: what a claim says for itself; all else may stand above the claims of a file and hold for all of them
OWN_KEYS = frozenset({"id", "place", "latex", "text"})
SHARED_KEYS = frozenset(
    {
        *("source", "letters", "counts", "relations", "kind", "measure", "per", "causal", "embedding", "scheme"),
        *("recompute", "dropout", "copies", "widths", "leaves_out"),
    }
)
KINDS = ("equal", "approx", "leading", "upper")
CHOICES: dict[str, tuple[str, ...]] = {
    "causal": CAUSAL,
    "embedding": tuple(EMBEDDINGS),
    "recompute": tuple(RECOMPUTED),
}


@dataclass(frozen=True)
class Published:
    """``counts`` says which parameters a letter counts, by their uses; ``relations`` hold between the sizes."""

    claim: Claim
    source: str
    place: str
    asked: Asked
    per: str
    counts: Mapping[str, tuple[str, ...]]
    relations: Mapping[str, Form]
    leaves_out: tuple[str, ...]

    @property
    def value(self) -> Form:
        """As printed: letters that count parameters stand for themselves, and no relation is used."""
        return single_form(self.claim.expr)


@lru_cache(maxsize=4)
def load(folder: Path | None = None) -> dict[str, Published]:
    """The forms of a folder of TOML files by id, in the order of the files."""
    folder = folder or published_folder()
    files = sorted(f for f in folder.glob("*.toml") if f.name != published_verdicts_file().name)
    found = [form for file in files for form in _forms(records.read(file), file)]
    if not found:
        raise ClaimError(f"{folder}: no published forms there, a folder with *.toml files of them is needed")
    records.refuse_duplicates((form.claim.id for form in found), f"{folder}: the claim")
    return {form.claim.id: form for form in found}


def _forms(data: dict[str, Any], file: Path) -> list[Published]:
    records.refuse_unknown_keys(data, SHARED_KEYS | {"claim"}, file.name)
    shared = {key: value for key, value in data.items() if key != "claim"}
    return [_form(shared, entry, file) for entry in records.entries(data, "claim", file.name)]


def _form(shared: dict[str, Any], own: dict[str, Any], file: Path) -> Published:
    name = records.text(own, "id", file.name)
    place = f"{file.name}, {name}"
    records.refuse_unknown_keys(own, OWN_KEYS | SHARED_KEYS, place)
    table, _, row = name.partition("/")
    if table != file.stem or not row:
        raise ClaimError(f"{place}: the id of a form of this file begins with {file.stem}/; write {file.stem}/{name}")
    entry = {**shared, **own}
    asked = _asked(entry, place)
    counts = {letter: _uses(uses, letter, place) for letter, uses in _table(entry, "counts", place).items()}
    printed, expr = _printed(entry, place)
    kind = records.one_of(entry.get("kind"), KINDS, "kind", place)
    claim = Claim(name, table, row, asked.measure, kind, printed, expr, None, free_symbols(expr))
    form = Published(
        claim,
        source=records.text(entry, "source", place),
        place=records.text(own, "place", place),
        asked=asked,
        per=records.one_of(entry.get("per", "batch"), tuple(PER), "per", place),
        counts=counts,
        relations=dict(_relation(text, place) for text in records.texts(entry, "relations", place)),
        leaves_out=records.texts(entry, "leaves_out", place),
    )
    try:
        _ = form.value
    except ValueError as error:
        raise ClaimError(f"{place}: {error}") from None
    return form


def _asked(entry: dict[str, Any], place: str) -> Asked:
    """The question; the counting of attention has no default, as sources differ, and nothing idle may be said."""
    measure = records.one_of(entry.get("measure"), tuple(MEASURES), "measure", place)
    others = {name for names in DEPENDS.values() for name in names} - {*DEPENDS[measure]}
    if idle := sorted(others & entry.keys()):
        raise ClaimError(f"{place}: `{idle[0]}` changes nothing in the {measure}; remove it")
    given: dict[str, Any] = {"measure": measure}
    for key, allowed in {**CHOICES, "scheme": tuple(scheme_names())}.items():
        if key in entry or (key == "causal" and key in DEPENDS[measure]):
            given[key] = records.one_of(entry.get(key), allowed, key, place)
    for key, kind, what in (("dropout", bool, "true or false"), ("copies", int, "a whole number from 1")):
        if key in entry:
            given[key] = entry[key]
            if type(entry[key]) is not kind or (kind is int and entry[key] < 1):
                raise ClaimError(f"{place}: `{key}` is {entry[key]!r}; give it {what}")
    return Asked(**given, widths=_widths(_table(entry, "widths", place), place))


def _widths(given: dict[str, Any], place: str) -> Widths:
    records.refuse_unknown_keys(given, frozenset(f.name for f in fields(Widths)), f"{place}, widths")
    if not all(type(width) is int for width in given.values()):
        raise ClaimError(f"{place}: `widths` must be whole numbers of bytes, such as {{ gradients = 4 }}")
    try:
        return Widths(**(asdict(Widths()) | given))
    except GraphError as error:
        raise ClaimError(f"{place}: {error}") from None


def _table(entry: dict[str, Any], key: str, place: str) -> dict[str, Any]:
    value = entry.get(key, {})
    if not isinstance(value, dict):
        raise ClaimError(f"{place}: `{key}` must be a table, such as {{ name = ... }}")
    return value


def _uses(value: object, letter: str, place: str) -> tuple[str, ...]:
    if not is_size(letter):
        raise ClaimError(f"{place}: the letter {letter} of `counts` is no size of graphs/symbols.py; write N")
    if not isinstance(value, list) or not value:
        raise ClaimError(f"{place}: `counts` must say what {letter} counts: a list of {', '.join(USES)}")
    return tuple(records.one_of(use, USES, f"what {letter} counts,", place) for use in value)


def _relation(text: str, place: str) -> tuple[str, Form]:
    """A size and its value, from ``d_ff = 4*d``."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not is_size(name):
        raise ClaimError(f"{place}: the relation `{text}` must give a size its value, as in d_ff = 4*d")
    try:
        form = single_form(parse_text(value))
    except ValueError as error:
        raise ClaimError(f"{place}: the relation `{text}`: {error}") from None
    if name in form.symbols:
        raise ClaimError(f"{place}: the relation `{text}` gives {name} by itself; name another size on its right")
    return name, form


def _printed(entry: dict[str, Any], place: str) -> tuple[str, Expr]:
    """What the source prints, as LaTeX, or in text form where it is a program."""
    if ("latex" in entry) == ("text" in entry):
        raise ClaimError(f"{place}: one of `latex` and `text` is needed, for what the source prints")
    key, read = ("latex", parse) if "latex" in entry else ("text", parse_text)
    letters = _table(entry, "letters", place)
    if wrong := sorted(name for name, size in letters.items() if not isinstance(size, str) or not is_size(size)):
        raise ClaimError(
            f"{place}: the letter {wrong[0]} stands for no size of graphs/symbols.py; write one, such as d"
        )
    printed = records.text(entry, key, place)
    try:
        expr = read(printed, letters)
    except ParseError as error:
        raise ClaimError(f"{place}: {error}") from None
    if loose := sorted(name for name in free_symbols(expr) if not is_size(name)):
        raise ClaimError(f"{place}: {loose[0]} is no size; say in `letters` which one it stands for")
    return printed, expr
