"""Sentences from elsewhere in LaTeX: special characters spelt out, formulas in text form set as mathematics."""

from __future__ import annotations

import re

from derive.parsing import INDICES, ParseError
from derive.render.printer import latex
from derive.textform import parse_text
from graphs.symbols import is_size

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''",
}  # fmt: skip
SIGNS = {"<=": r"\leq ", ">=": r"\geq "}
RELATION = re.compile(r"\s*(<=|>=|=|<|>)\s*")
FUNCTIONS = frozenset({"log", "ceil_log", "Max", "Min", "Sum", "O"})
FORMULA_WORD = re.compile(r"(?:[A-Za-z]\w*|\d+|[-+*/()<>=,])+")


def escape(text: str) -> str:
    """Plain text for LaTeX; line breaks and control characters become spaces."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    return "".join(SPECIAL.get(c, c) for c in clean)


def prose(text: str) -> str:
    """A sentence with its formulas as mathematics: those in backticks, and runs of words that read as one."""
    pieces = re.split(r"`([^`]*)`", text)
    return "".join(_formula(p) or escape(p) if i % 2 else _sentence(p) for i, p in enumerate(pieces))


def _sentence(text: str) -> str:
    words = re.split(r"(\s+)", text)
    out: list[str] = []
    run: list[str] = []
    for word in words:
        if run and word.isspace():
            run.append(word)
            continue
        if not _is_formula_word(word.rstrip(",;:.")):
            out += [_run(run), escape(word)]
            run = []
            continue
        if word.startswith("(") and _closed(run):
            out.append(_run(run))
            run = []
        run.append(word)
        if word[-1] in ",;:." and _closed(run):
            out.append(_run(run))
            run = []
    return "".join([*out, _run(run)])


def _run(words: list[str]) -> str:
    """Words that may be a formula, with the punctuation, spaces and lone brackets around it."""
    text = "".join(words)
    body = text.rstrip().rstrip(",;:.")
    lone = body.count("(") - body.count(")")
    start = lone if lone > 0 and body.startswith("(" * lone) else 0
    stop = len(body) + lone if lone < 0 and body.endswith(")" * -lone) else len(body)
    inner = body[start:stop]
    return escape(text[:start]) + (_formula(inner) or escape(inner)) + escape(text[stop:])


def _closed(words: list[str]) -> bool:
    text = "".join(words)
    return text.count("(") <= text.count(")")


def _is_formula_word(word: str) -> bool:
    names = re.findall(r"[A-Za-z]\w*", word)
    known = all(is_size(n) or n in FUNCTIONS or n in INDICES for n in names)
    return bool(FORMULA_WORD.fullmatch(word)) and known


def _formula(text: str) -> str:
    """A formula or a relation between formulas as mathematics; empty where the text is neither."""
    pieces = RELATION.split(text.strip())
    if pieces == [""] or text.strip().isdigit():
        return ""
    try:
        return f"${''.join(SIGNS.get(p, p) if i % 2 else latex(parse_text(p)) for i, p in enumerate(pieces))}$"
    except ParseError:
        return ""
