"""Commands about parallelism schemes: list them, run one, check one's row of the tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from derive.commands.options import AS_JSON, DIFFERS, SCHEME_HELP, SIZES, one_sentence_errors, policies

if TYPE_CHECKING:
    from graphs.schemes import Mapping

MODELS = ("policy", "value", "reward", "shared")
GRAPHS = (
    *(
        f"{stem}{variant}"
        for stem in ("block", "policy", "training")
        for variant in ("", "-experts", "-dispatched", "-ring")
    ),
    "reward",
    "value",
    "generation",
    "generation-experts",
)


@click.command()
@click.option("--scheme", metavar="NAME|FILE", help=f"Only this one. {SCHEME_HELP}")
@AS_JSON
@one_sentence_errors
def schemes(scheme: str | None, as_json: bool) -> None:
    """List the parallelism schemes and what each maps to the mesh."""
    from derive.options import tried
    from derive.report import to_json
    from graphs.schemes import schemes as known

    shown = [tried(scheme).scheme] if scheme else list(known().values())
    if as_json:
        listed = [
            {
                "name": s.name.lower(),
                "mapping": _mapping(s.entries),
                "source": s.source,
                "mesh": list(s.meshes),
                "entries": [asdict(e) for e in s.entries],
                "nesting": {axis: list(meshes) for axis, meshes in s.nesting},
                "policies": {"gathered": s.gathered, "accumulated": s.accumulated},
            }
            for s in shown
        ]
        click.echo(to_json({"schemes": listed}), nl=False)
        return
    for s in shown:
        mapping = ", ".join(_entry(e) for e in s.entries) or "nothing is split"
        nesting = [f"{axis} is cut over {', then '.join(meshes)}" for axis, meshes in s.nesting]
        rules = [*nesting, f"gathered {s.gathered}", f"accumulated {s.accumulated}"]
        first, *others = (mapping, "; ".join(rules), s.source)
        click.echo("\n".join([f"{s.name.lower():<10} {first}", *(f"{'':<10} {line}" for line in others)]))


def _entry(entry: Mapping) -> str:
    """``c -> P_y (priority 1)``; what is as usual is not said."""
    said = (
        "" if entry.where == "everywhere" else entry.where,
        "" if entry.layout == "contiguous" else entry.layout,
        f"priority {entry.priority}" if entry.priority else "",
    )
    remarks = ", ".join(filter(None, said))
    return f"{entry.axis} -> {entry.mesh}" + (f" ({remarks})" if remarks else "")


def _mapping(entries: Sequence[Mapping]) -> dict[str, str]:
    """Axis -> mesh dimension, or several of them joined by commas."""
    out: dict[str, str] = {}
    for entry in entries:
        out[entry.axis] = f"{out[entry.axis]}, {entry.mesh}" if entry.axis in out else entry.mesh
    return out


@click.command()
@click.option("--scheme", required=True, metavar="NAME|FILE", help=SCHEME_HELP)
@click.option("--degree", multiple=True, metavar="P_x=N", help="A degree of parallelism (default 2); may be repeated.")
@SIZES
@click.option("--model", type=click.Choice(MODELS), default=MODELS[0], help="Which model is trained.")
@click.option("--experts", is_flag=True, help="With a mixture of experts, also where the scheme speaks of none.")
@policies
@AS_JSON
@one_sentence_errors
def simulate(
    scheme: str,
    degree: tuple[str, ...],
    sizes: tuple[str, ...],
    model: str,
    experts: bool,
    gathered: str | None,
    accumulated: str | None,
    as_json: bool,
) -> None:
    """Run one training step sequentially and rank by rank with its collectives, and compare the results.

    Sizes are small unless set, and such that the degrees divide them.  Inputs are random with a fixed seed.  Exit 0
    when loss and all gradients agree, 1 when one does not, 2 on bad input.
    """
    from derive.options import parse_sizes, tried
    from derive.report import to_json
    from derive.simulate import simulate as run
    from derive.simulate import to_text

    one = tried(scheme, gathered, accumulated)
    found = run(one, model, "experts" if experts else one.ffn, parse_sizes(degree), parse_sizes(sizes))
    click.echo(to_json(found.json()) if as_json else to_text(found), nl=False)
    sys.exit(0 if found.agrees else DIFFERS)


@click.command()
@click.argument("graph", metavar="GRAPH", type=click.Choice(GRAPHS))
@click.option("--scheme", default="none", metavar="NAME|FILE", help=f"Show one rank's graph. {SCHEME_HELP}")
@click.option("--dot", is_flag=True, help="Print Graphviz DOT instead of a list.")
@one_sentence_errors
def show(graph: str, scheme: str, dot: bool) -> None:
    """List the operations of a graph, or print it as Graphviz DOT.

    Where the name of the graph says no layers (-experts, -dispatched, -ring), they are those of the scheme's row.
    """
    from derive.render.dot import listing, to_dot
    from graphs.gallery import example

    found = example(graph, scheme)
    click.echo(to_dot(found) if dot else listing(found), nl=False)


def check_scheme(
    scheme: str | None, claims: Sequence[Path], drop: Iterable[str], table: str | None, *, jobs: int, as_json: bool
) -> int:
    """Print the row of one scheme, as derived or, where there are claims, as judged; the exit code."""
    from derive.cells import row_ids
    from derive.check import check_row
    from derive.claims import load, with_claims
    from derive.options import tried
    from derive.records import ClaimError
    from derive.report import report, to_json

    if scheme is None:
        raise ClaimError("--claims are about the row of a scheme; name it with --scheme")
    row, book = tried(scheme).scheme.name, load()
    for file in claims:
        book = with_claims(book, file, row, row_ids(row))
    cells = check_row(row, drop, table, book, jobs)
    if as_json:
        click.echo(to_json(report(cells)), nl=False)
    else:
        width = max(len(cell.id) for cell in cells)
        for cell in cells:
            click.echo(f"{cell.id:<{width}} {cell.verdict:<12} {cell.derived_order or cell.derived}")
            if cell.regime:
                click.echo(f"{'':<{width}} if {cell.regime}")
    failed = [c for c in cells if claims and c.verdict in ("REFUTED", "UNDECIDED")]
    for cell in failed:
        click.echo(f"{cell.id}: {cell.verdict.lower()}: {cell.detail}", err=True)
    return DIFFERS if failed else 0


def own_row(scheme: str | None, out: Path | None) -> str | None:
    """The row that a scheme adds to the tables; none where the paper has it already."""
    from derive.cells import ROWS
    from derive.options import tried
    from graphs.errors import GraphError

    if scheme is None:
        return None
    if out is None:
        raise GraphError("tables/out holds the paper's rows; name another folder with --out")
    name = tried(scheme).scheme.name
    return None if name in ROWS else name


COMMANDS = (schemes, simulate, show)
