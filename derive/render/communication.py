"""The table of exchanges: per scheme and phase, what the busiest rank sends, in how many messages, and the total."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from derive import expr as ex
from derive.communication import POSITIONS, Communication, Item, communication
from derive.costs.counting import product
from derive.expr import Add, Div, Expr, Num, Sym
from derive.forms import Form, split_content, symbol, total
from derive.measure import Question
from derive.render.printer import latex
from derive.render.tables import render
from derive.render.typeset import display
from derive.units import ELEMENTS, MESSAGES, Quantity
from graphs.blocks.decoder import ATTENTIONS, FEED_FORWARDS
from graphs.errors import GraphError
from graphs.schemes import Scheme, declared, schemes

FILE = "communication.tex"
#: line of the table -> phases of the graph that it sums
LINES = {"forward": ("forward",), "backward": ("recompute", "backward"), "optimizer step": ("update",)}
LINES_PER_PAGE, LETTERS_PER_LINE = 14, 150  # of LaTeX
ZERO, ONE = Form.constant(0), Form.constant(1)


def communication_table() -> str:
    """LaTeX of all schemes that exchange something, by mesh dimension, on as many floats as it takes."""
    known = sorted(schemes().values(), key=lambda s: (len(s.meshes), s.meshes, s.name))
    rows = [row(s, found) for s, found in ((s, _measured(s)) for s in known) if found.items]
    return render(f"{FILE}.jinja", {"groups": list(pages(rows))})


def pages(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The rows in groups that each fit a page."""
    page: list[dict[str, Any]] = []
    for one in rows:
        if page and sum(height(r) for r in (*page, one)) > LINES_PER_PAGE:
            yield page
            page = []
        page.append(one)
    yield page


def _measured(scheme: Scheme) -> Communication:
    """The canonical decoder with a policy head and the feed-forward layer that the scheme's row speaks of."""
    one = declared()[scheme.name]
    ffn, attention = FEED_FORWARDS[one.ffn], ATTENTIONS[one.attention]
    return communication(Question(scheme=scheme.name, ffn=ffn, attention=attention))


def height(one: dict[str, Any]) -> int:
    """Printed lines of a row, about."""
    return sum(1 + max(map(len, cells)) // LETTERS_PER_LINE for _, *cells in one["lines"])


def row(scheme: Scheme, found: Communication) -> dict[str, Any]:
    known = {phase for phases in LINES.values() for phase in phases}
    if strange := sorted(set(found.phases) - known):
        raise GraphError(f"phase {strange[0]!r} has no line in the table of exchanges; add it in {__name__}")
    lines = [(name, found.during(*phases)) for name, phases in LINES.items()]
    return {"name": scheme.name, "lines": [(name, *_cells(c)) for name, c in lines if c.items]}


def _cells(found: Communication) -> list[str]:
    volume, messages = busiest(found, lambda i: i.sent, ELEMENTS), busiest(found, lambda i: i.messages, MESSAGES)
    return [f"${latex(e)}$" for e in (volume, messages, by_mesh(found.items, lambda i: i.total))]


def busiest(found: Communication, of: Callable[[Item], Quantity], unit: str) -> Expr:
    """Sum on the busiest rank: what all ranks send, and the largest of what only some stages do."""
    shared = [i for i in found.items if i.positions == POSITIONS]
    stages = found.busiest(of, unit)
    if len(stages) == 1:
        return by_mesh(found.at_stage(stages[0]).items, of)
    bound = [[i for i in found.at_stage(stage).items if i.positions != POSITIONS] for stage in stages]
    largest = ex.Max(tuple(by_mesh(own, of) for own in bound))
    return ex.add(by_mesh(shared, of), largest) if shared else largest


def by_mesh(items: Sequence[Item], of: Callable[[Item], Quantity]) -> Expr:
    """The sum over the items, by mesh dimension P, with P - 1 taken out of those that it divides."""
    groups: dict[tuple[tuple[str, ...], bool], Form] = {}
    for item in items:
        form = _form(item, of)
        key = (item.meshes, divided(form, item.meshes) is not None)
        groups[key] = groups.get(key, ZERO) + form
    return ex.add(*(_taken_out(form, meshes) if even else display(form) for (meshes, even), form in groups.items()))


def _form(item: Item, of: Callable[[Item], Quantity]) -> Form:
    (form,) = of(item).amount.members
    return form


def _taken_out(form: Form, meshes: tuple[str, ...]) -> Expr:
    """c (P-1)/P or c (P-1) times the rest, with whole numbers c in front; P is the product of the degrees."""
    rest = divided(form, meshes)
    if not rest:
        return display(form)
    number, _ = split_content(rest)
    ((_, c),) = number.terms.items()
    rest = rest / c
    degree = ex.mul(*map(Sym, meshes))
    less_one = Add((degree, Num(Fraction(-1))))
    head: Expr = less_one if c == 1 else ex.mul(Num(c), less_one)
    if all(dict(m).get(mesh, 0) < 0 for m in rest.terms for mesh in meshes):
        head, rest = Div(head, degree), rest * product(map(symbol, meshes))
    return head if rest == ONE else ex.mul(head, display(rest))


def divided(form: Form, meshes: tuple[str, ...]) -> Form | None:
    """form / (P - 1), by Horner's rule in P, the product of the degrees; None where that leaves a rest."""
    parts: dict[int, Form] = {}
    for monomial, c in form.terms.items():
        powers = {dict(monomial).get(mesh, 0) for mesh in meshes}
        if len(powers) > 1:
            return None
        (power,) = powers
        without = tuple((x, p) for x, p in monomial if x not in meshes)
        parts[power] = parts.get(power, ZERO) + Form({without: c})
    carry, out = ZERO, []
    for power in range(max(parts), min(parts), -1):
        carry = carry + parts.get(power, ZERO)
        out.append(carry * product(map(symbol, meshes)) ** (power - 1))
    return None if carry + parts[min(parts)] else total(out)
