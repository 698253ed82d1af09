"""Commands about the printed tables: check, print, explain, record."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from derive.commands.options import AS_JSON, DIFFERS, FILE, FOLDER, JOBS, SCHEME_HELP, one_sentence_errors
from derive.commands.schemes import check_scheme, own_row

if TYPE_CHECKING:
    from derive.cell import Cell

TABLES = ("III", "IV", "V", "VI", "VII", "VIII", "IX")


@click.command()
@click.option("--table", type=click.Choice(TABLES), help="Only this table.")
@click.option("--drop", multiple=True, metavar="ASSUMPTION", help="Derive without an assumption; may be repeated.")
@click.option("--scheme", metavar="NAME|FILE", help=f"Only the row of this scheme. {SCHEME_HELP}")
@click.option("--claims", multiple=True, type=FILE, help="With --scheme: a TOML file of claims about its row to judge.")
@click.option("--published", is_flag=True, help="Forms that other papers and trainers print, and their residuals.")
@JOBS
@AS_JSON
@one_sentence_errors
def check(
    table: str | None,
    drop: tuple[str, ...],
    scheme: str | None,
    claims: tuple[Path, ...],
    published: bool,
    jobs: int,
    as_json: bool,
) -> None:
    """Print the verdict of every cell and compare with the recorded ones.

    Exit 0 when all are as recorded, 1 when one differs or is undecided, 2 on bad input.  With --drop or --scheme
    nothing is compared; with --claims exit 1 when one of them is refuted or undecided.
    """
    if published:
        if table or drop or scheme or claims:
            raise click.UsageError("--published has no tables, schemes or assumptions; give it --json alone")
        sys.exit(_check_published(as_json=as_json))
    if scheme or claims:
        sys.exit(check_scheme(scheme, claims, drop, table, jobs=jobs, as_json=as_json))
    from derive.check import check_all
    from derive.data import verdicts_file
    from derive.report import report, to_json

    cells = check_all(drop, table, jobs=jobs)
    if as_json:
        click.echo(to_json(report(cells)), nl=False)
    else:
        for cell in cells:
            click.echo(f"{cell.id:<24} {cell.verdict:<12} {cell.regime or ''}".rstrip())
    if not drop:
        sys.exit(_compared(cells, verdicts_file()))


def _check_published(*, as_json: bool) -> int:
    from derive.data import published_verdicts_file
    from derive.published_check import check_published
    from derive.report import ABOUT_PUBLISHED_FORMS, report, to_json

    cells = check_published()
    if as_json:
        click.echo(to_json(report(cells, ABOUT_PUBLISHED_FORMS)), nl=False)
    else:
        width = max(len(cell.id) for cell in cells)
        for cell in cells:
            residual = (cell.context or {})["residual"] or "nothing"
            where = f" where {cell.regime}" if cell.regime else ""
            click.echo(f"{cell.id:<{width}} {cell.verdict:<12} residual {residual}{where}")
    return _compared(cells, published_verdicts_file())


def _compared(cells: Sequence[Cell], record: Path) -> int:
    """The exit code, with a sentence for each cell that is not as recorded or undecided."""
    from derive.report import differences

    changed = differences(cells, record)
    undecided = [f"{c.id}: undecided" for c in cells if c.verdict == "UNDECIDED"]
    for line in (*changed, *undecided):
        click.echo(line, err=True)
    return DIFFERS if changed or undecided else 0


@click.command()
@click.option("--plain", is_flag=True, help="Leave verdict marks, legend and notes out, for pasting into a paper.")
@click.option("--out", type=FOLDER, help="Folder to write to (default: tables/out).")
@click.option("--scheme", metavar="NAME|FILE", help=f"Add the row of this scheme; needs --out. {SCHEME_HELP}")
@JOBS
@one_sentence_errors
def tables(plain: bool, out: Path | None, scheme: str | None, jobs: int) -> None:
    """Derive and check every cell; write the LaTeX tables, tables.tex and verdicts.json."""
    from derive.check import check_all, check_row
    from derive.data import output_folder
    from derive.files import write_atomically
    from derive.render import communication
    from derive.render.tables import write_tables
    from derive.report import report, to_json

    row = own_row(scheme, out)
    folder = out or output_folder()
    cells = check_all(jobs=jobs)
    cells += check_row(row, jobs=jobs) if row else []
    others = {communication.FILE: communication.communication_table()}
    for path in write_tables(cells, folder, plain=plain, others=others):
        click.echo(path)
    verdicts = folder / "verdicts.json"
    write_atomically(verdicts, to_json(report(cells)))
    click.echo(verdicts)


@click.command()
@click.argument("cell")
@click.option("--scheme", metavar="FILE", help="The Python file of the scheme whose row the cell is in (executed).")
@AS_JSON
@one_sentence_errors
def explain(cell: str, scheme: str | None, as_json: bool) -> None:
    """Show term by term what the cell or published form CELL is made of, and why its verdict is what it is."""
    from derive.explain import explanation, to_text
    from derive.options import tried
    from derive.report import to_json

    if scheme:
        tried(scheme)

    data = explanation(cell)
    click.echo(to_json(data) if as_json else to_text(data), nl=False)


@click.command()
@JOBS
@one_sentence_errors
def record(jobs: int) -> None:
    """Record the verdicts of today after a deliberate change, and print what changed."""
    from derive.check import check_all
    from derive.data import output_folder, published_verdicts_file, verdicts_file
    from derive.published_check import check_published
    from derive.report import differences, write_record

    output_folder()  # refuses outside a checkout
    records = [(check_all(jobs=jobs), verdicts_file()), (check_published(), published_verdicts_file())]
    changed = [line for cells, record in records for line in differences(cells, record)]
    for cells, record in records:
        write_record(cells, record)
    click.echo("\n".join(changed or ["nothing changed"]))


@click.command()
@JOBS
@AS_JSON
@one_sentence_errors
def ledger(jobs: int, as_json: bool) -> None:
    """List the assumptions and show which cells rest on which."""
    from derive.explain import ledger_report, ledger_text
    from derive.report import to_json

    data = ledger_report(jobs)
    click.echo(to_json(data) if as_json else ledger_text(data), nl=False)


COMMANDS = (
    check,
    tables,
    explain,
    record,
    ledger,
)
