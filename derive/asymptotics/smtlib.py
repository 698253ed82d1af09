"""Certificates as SMT-LIB 2 scripts that any solver can refute the negation of: proof objects for outsiders.

A raw claim (polynomials in ten sizes with logs, and a constant to be found) is beyond today's solvers.  Exported are
the lemmas that the certificate consists of, each small and decidable: identities of polynomials; linear forms in logs
that are nonnegative (Farkas); weighted means, which in log space are linear; convex combinations; that cases cover
everything; that the certificate's two sides are the cell's two expressions; and that the closed form of a sum grows by
its summand.  What joins the lemmas is no formula: the inequality of weighted means, that a log is below every positive
power, that differences telescope, and which lemmas a claim needs.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from derive.asymptotics.smtfacts import Context
from derive.asymptotics.smtproofs import Lemmas, fraction
from derive.asymptotics.smtscripts import Quotient, Script, Sheet, declared, log_of, normal_term, raw_term
from derive.asymptotics.smtterms import (
    ClosedSum,
    ExportError,
    Mono,
    Poly,
    Texts,
    add,
    combine,
    linear_term,
    lowest_powers,
    mul,
    parsed,
    poly_term,
    poly_text,
    quoted,
    times,
)

Node = Mapping[str, Any]
INDEX = "index.json"


# -- claims ------------------------------------------------------------------------------------------------------------
def order(cert: Node, context: Context, sheet: Sheet) -> None:
    lemmas = Lemmas(context, sheet)
    lemmas.positive(context.g, cert["positive"])
    for poly, node in paired(context.f, cert["proofs"]):
        lemmas.prove(node, poly, {}, context.g)


def leading(cert: Node, context: Context, sheet: Sheet) -> None:
    lemmas = Lemmas(context, sheet)
    lemmas.positive(context.g, cert["positive"])
    for side, mine, others in (("upper", context.f, context.g), ("lower", context.g, context.f)):
        for poly, entry in paired(mine, cert[side]):
            pieces = [context.texts.one(piece["text"]) for piece in entry["pieces"]]
            gap = add((1, others[int(entry["against"])]), *((1, piece) for piece in pieces), (-1, poly))
            sheet.cover("One side plus the lower-order terms, minus the other side, has no negative term.", gap)
            for piece, data in paired(pieces, entry["pieces"]):
                spell_out(data["text"], context, sheet)
                for way in data["directions"]:
                    direction(way, piece, lemmas)


def direction(way: Node, piece: Poly, lemmas: Lemmas) -> None:
    """The lower-order term times a power (or the log) of a size is still O(g)."""
    context = lemmas.context
    symbol = context.texts.mono(way["symbol"])
    power = Fraction(1) if way.get("log") else fraction(way["power"])
    says = f"{way['symbol']} to the power {power} grows with {way['symbol']}."
    growth = combine((power, log_of(symbol)))
    positive = {f"log({s})": Fraction(1) for s, _ in symbol}
    body = [*declared(positive, "1.0"), f"(assert (<= {linear_term(growth)} 0.0))"]
    lemmas.sheet.put("direction", says, "QF_LRA", body)
    if way.get("log"):
        lemmas.prove(way["proof"], mul(piece, context.texts.log({symbol: Fraction(1)})), {}, context.g)
    else:
        lemmas.prove(way["proof"], piece, {s: p * power for s, p in symbol}, context.g)


def equal(cert: Node, context: Context, sheet: Sheet) -> None:
    left, right = (raw_term(parsed(cert[side]), context.texts) for side in "fg")
    same(f"Both sides are the same function: {cert['f']}", left, right, context, sheet)


def at_most(cert: Node, context: Context, sheet: Sheet) -> None:
    lemmas = Lemmas(context, sheet)
    for poly, node in paired(context.f, cert["proofs"]):
        gap = add((1, lemmas.average(context.g, node["combine"])), (-1, poly))
        shift = dict(node.get("shift", {}))
        clear: Mono = tuple(sorted((g, -p) for g, p in lowest_powers(gap).items() if p < 0))
        moved = shifted(gap, clear, shift)
        sheet.shift(gap, clear, moved, {s: (value, context.least.get(s, 1)) for s, value in shift.items()})
        lemmas.lower(moved, node.get("lower", {}), exact=shift)


def shifted(gap: Poly, clear: Mono, shift: Mapping[str, int]) -> Poly:
    out: Poly = {}
    for mono, c in gap.items():
        term: Poly = {(): c}
        for gen, power in times(mono, clear):
            for _ in range(power):
                term = mul(term, add((1, {((gen, 1),): Fraction(1)}), (shift.get(gen, 0), {(): Fraction(1)})))
        out = add((1, out), (1, term))
    return out


def paired(ours: Sequence[Any], theirs: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    if len(ours) != len(theirs):
        raise ExportError(f"{len(theirs)} entries where {len(ours)} are needed")
    return zip(ours, theirs, strict=True)


# -- identities --------------------------------------------------------------------------------------------------------
def same(says: str, left: Quotient, right: Quotient, context: Context, sheet: Sheet) -> None:
    """The two terms are the same function; ``d`` and the like are defined as their products of free factors."""
    products = {quoted(n): poly_term(poly) for n, poly in context.texts.named.items()}
    body = [f"(define-fun {n} () Real {term})" for n, term in products.items() if n in left[0] + right[0]]
    sheet.identity(says, body, left, right)


def spell_out(text: str, context: Context, sheet: Sheet) -> None:
    """The text is what the lemmas take it for: a sum of products of free factors and logs of them."""
    normal = normal_term(context.texts.read(text))
    same(f"In free factors: {text}", raw_term(parsed(text), context.texts), normal, context, sheet)


def tie(cell: Node, cert: Node, sheet: Sheet) -> None:
    """The certificate's sides are the cell's derived and printed expressions, whatever their written form."""
    derived = [text for text in (cell.get("derived"), cell.get("rescued")) if text]
    sides = {"derived": derived, "printed": [cell["printed_expr"]]}
    for side in "fg":
        choices = sides[cert[f"{side}_is"]]
        same = [c for c in choices if normal(c, cell) == normal(cert[side], cell)]
        one_tie((same or choices)[0], cert[side], cert[f"{side}_is"], cell, sheet)


def reader(cell: Node, sequence: bool) -> Texts:
    """Named costs are spelled out; with ``sequence`` S + T is m."""
    texts = Texts({"T": {(("m", 1),): Fraction(1), (("S", 1),): Fraction(-1)}} if sequence else {})
    reads = cell.get("reads") or {}
    texts.named |= {name: texts.one(value) for name, value in reads.items()}
    texts.spelled = {name: parsed(value) for name, value in reads.items()}
    return texts


def readings(text: str, cell: Node) -> Iterator[tuple[Texts, list[Poly]]]:
    for sequence in (True, False):  # log(T) alone has no reading with T = m - S
        try:
            texts = reader(cell, sequence)
            yield texts, texts.read(text)
        except ExportError:
            if not sequence:
                raise


def normal(text: str, cell: Node) -> set[str]:
    return {poly_text(poly) for poly in next(readings(text, cell))[1]}


def one_tie(text: str, stated: str, side: str, cell: Node, sheet: Sheet) -> None:
    texts = next(readings(text, cell))[0]
    telescope(text, texts, sheet)
    left, right = raw_term(parsed(text), texts), raw_term(parsed(stated), texts)
    sequence = "T" in texts.named and "|T|" in left[0] + right[0]
    body = ["(define-fun |T| () Real (- |m| |S|))"] if sequence else []
    sheet.identity(f"The cell's {side} expression is the one in this proof: {text}", body, left, right)


def telescope(text: str, texts: Texts, sheet: Sheet) -> None:
    """The closed form of every sum in the text grows by the summand from one value of the index to the next."""
    for tree in (parsed(text), *texts.spelled.values()):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Sum":
                closed = ClosedSum.of(node, texts)
                says = f"The closed form of this sum telescopes: {ast.unparse(node)}"
                sheet.identity(says, [], normal_term([closed.step]), raw_term(closed.summand, texts))


# -- files -------------------------------------------------------------------------------------------------------------
CLAIMS: dict[str, Callable[[Node, Context, Sheet], None]] = {
    "order": order, "leading": leading, "equal": equal, "at_most": at_most,
}  # fmt: skip


def certificates(data: Any, path: str = "certificate") -> Iterator[tuple[str, Node]]:
    if isinstance(data, dict) and "claim" in data:
        yield path, data
    elif isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from certificates(value, f"{path}.{key}")


def scripts_of(cert: Node, cell: str = "?", proof: str = "certificate") -> list[Script]:
    """The lemmas of one certificate."""
    sheet = Sheet(cell, proof)
    context = Context(cert)
    if cert["claim"] not in CLAIMS:
        raise ExportError(f"the claim {cert['claim']!r} has no export")
    if cert["claim"] != "equal":
        for text in (cert["f"], cert["g"], *(h[s] for h in cert.get("hypotheses", ()) for s in ("left", "right"))):
            spell_out(text, context, sheet)
    CLAIMS[cert["claim"]](cert, context, sheet)
    return sheet.scripts


def export_cell(cell: Node, name: str, place: str = "certificate") -> Iterator[Script]:
    for proof, cert in certificates(cell.get("certificate"), place):
        sheet = Sheet(name, proof)
        if cell.get("printed_expr") and "f_is" in cert:
            tie(cell, cert, sheet)
        yield from (*sheet.scripts, *scripts_of(cert, name, proof))
    for i, reading in enumerate(cell.get("readings") or ()):
        yield from export_cell(reading, name, f"readings.{i}")


def export(data: Any) -> list[Script]:
    """All lemmas of a verdict file, in its order."""
    if not isinstance(data, dict) or not isinstance(data.get("cells"), list):
        raise ExportError("the file has no list of cells")
    out: list[Script] = []
    for cell in data["cells"]:
        name = cell.get("id") if isinstance(cell, dict) else None
        try:
            out += export_cell(cell, str(name))
        except ExportError as error:
            raise ExportError(f"{name}: {error}") from error
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ExportError(f"{name}: the certificate is malformed ({type(error).__name__} {error})") from error
    return out


def named(scripts: Sequence[Script]) -> dict[str, Script]:
    """Deterministic file names: the cell, a running number within it, the lemma."""
    count: Counter[str] = Counter()
    out = {}
    for script in scripts:
        stem = re.sub(r"[^A-Za-z0-9_-]+", ".", script.cell)
        count[stem] += 1
        out[f"{stem}.{count[stem]:03d}.{script.lemma.replace(' ', '-')}.smt2"] = script
    return out


def write(file: Path, folder: Path) -> int:
    """Export a verdict file to a folder, whole or not at all; the number of scripts."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ExportError(f"{file} is not JSON: {error}") from error
    if folder.exists() and not replaceable(folder):
        raise ExportError(f"{folder} is not empty and holds no earlier export: name another folder")
    scripts = named(export(data))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        new.mkdir()
        for name, script in scripts.items():
            (new / name).write_text(script.text, encoding="utf-8")
        entries = [{"file": n, "cell": s.cell, "proof": s.proof, "lemma": s.lemma, "says": s.says, "logic": s.logic,
                    "expected": "unsat"} for n, s in scripts.items()]  # fmt: skip
        index = {"scripts": entries}
        (new / INDEX).write_text(json.dumps(index, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    return len(scripts)


def replaceable(folder: Path) -> bool:
    """An empty folder, or one with an index and nothing but scripts beside it."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    return not names or (INDEX in names and all(n == INDEX or n.endswith(".smt2") for n in names))
