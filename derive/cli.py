"""The command line: derive, check, explain, print.  Heavy imports happen inside the commands that need them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

DIFFERS, BAD_INPUT = 1, 2
F = TypeVar("F", bound=Callable[..., Any])


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="rlm-workdepth", message="%(version)s")
def main() -> None:
    """Derive work, depth and memory from operation graphs and compare them with printed formulas."""


def one_sentence_errors(command: F) -> F:
    """Bad input is one sentence on standard error and exit code 2; other errors stay what they are."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from derive.claims import ClaimError
        from derive.parsing import ParseError
        from derive.report import RecordError
        from graphs.errors import GraphError

        try:
            return command(*args, **kwargs)
        except BrokenPipeError:
            raise
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            click.echo(f"derive: {place}{error.strerror or error}", err=True)
            sys.exit(BAD_INPUT)
        except (GraphError, ClaimError, ParseError, RecordError) as error:
            click.echo(f"derive: {' '.join(str(error).split())}", err=True)
            sys.exit(BAD_INPUT)

    return wrapped  # type: ignore[return-value]


JOBS = click.option(
    "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="Processes to use (default: all cores)."
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
TABLES = ("III", "IV", "V", "VI", "VII", "VIII", "IX")
GRAPHS = ("block", "block-experts", "policy", "policy-experts", "reward", "value", "training", "training-experts")


@main.command()
@click.option("--table", type=click.Choice(TABLES), help="Only this table.")
@click.option("--drop", multiple=True, metavar="ASSUMPTION", help="Derive without an assumption; may be repeated.")
@JOBS
@AS_JSON
@one_sentence_errors
def check(table: str | None, drop: tuple[str, ...], jobs: int, as_json: bool) -> None:
    """Print the verdict of every cell and compare with the recorded ones.

    Exit 0 when all are as recorded, 1 when one differs or is undecided, 2 on bad input.  With --drop nothing is
    compared.
    """
    from derive.check import check_all
    from derive.data import verdicts_file
    from derive.report import differences, report, to_json

    cells = check_all(drop, table, jobs=jobs)
    if as_json:
        click.echo(to_json(report(cells)), nl=False)
    else:
        for cell in cells:
            click.echo(f"{cell.id:<24} {cell.verdict:<12} {cell.regime or ''}".rstrip())
    if drop:
        return
    changed = differences(cells, verdicts_file())
    undecided = [f"{c.id}: undecided" for c in cells if c.verdict == "UNDECIDED"]
    for line in (*changed, *undecided):
        click.echo(line, err=True)
    sys.exit(DIFFERS if changed or undecided else 0)


@main.command()
@click.option("--plain", is_flag=True, help="Leave verdict marks, legend and notes out, for pasting into a paper.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder to write to (default: tables/out)."
)
@JOBS
@one_sentence_errors
def tables(plain: bool, out: Path | None, jobs: int) -> None:
    """Derive and check every cell; write the LaTeX tables, tables.tex and verdicts.json."""
    from derive.check import check_all
    from derive.data import output_folder
    from derive.files import write_atomically
    from derive.render.tables import write_tables
    from derive.report import report, to_json

    folder = out or output_folder()
    cells = check_all(jobs=jobs)
    for path in write_tables(cells, folder, plain=plain):
        click.echo(path)
    verdicts = folder / "verdicts.json"
    write_atomically(verdicts, to_json(report(cells)))
    click.echo(verdicts)


@main.command()
@click.argument("cell")
@AS_JSON
@one_sentence_errors
def explain(cell: str, as_json: bool) -> None:
    """Show term by term what the cell CELL is made of, and why its verdict is what it is."""
    from derive.explain import explanation, to_text
    from derive.report import to_json

    data = explanation(cell)
    click.echo(to_json(data) if as_json else to_text(data), nl=False)


@main.command()
@JOBS
@one_sentence_errors
def record(jobs: int) -> None:
    """Record the verdicts of today after a deliberate change, and print what changed."""
    from derive.check import check_all
    from derive.data import output_folder, verdicts_file
    from derive.report import differences, write_record

    output_folder()  # refuses outside a checkout
    cells = check_all(jobs=jobs)
    changed = differences(cells, verdicts_file())
    write_record(cells, verdicts_file())
    click.echo("\n".join(changed or ["nothing changed"]))


@main.command()
@AS_JSON
@one_sentence_errors
def schemes(as_json: bool) -> None:
    """List the parallelism schemes and what each maps to the mesh."""
    from derive.report import to_json
    from graphs.schemes import schemes as known

    if as_json:
        listed = [
            {"name": s.name.lower(), "mapping": {e.axis: e.mesh for e in s.entries}, "source": s.source}
            for s in known().values()
        ]
        click.echo(to_json({"schemes": listed}), nl=False)
        return
    for scheme in known().values():
        mapping = ", ".join(f"{e.axis} -> {e.mesh}" for e in scheme.entries) or "nothing is split"
        click.echo(f"{scheme.name.lower():<10} {mapping}\n{'':<10} {scheme.source}")


@main.command()
@AS_JSON
@one_sentence_errors
def placements(as_json: bool) -> None:
    """List the placements of models on device groups."""
    from derive.report import to_json
    from derive.stage_report import placements_report, placements_text

    data = placements_report()
    click.echo(to_json(data) if as_json else placements_text(data), nl=False)


ALGORITHM = click.option("--algorithm", type=click.Choice(("ppo", "grpo", "dpo")), default="ppo", show_default=True)
OPTION = click.option(
    "--option",
    "chosen",
    multiple=True,
    metavar="NAME",
    help="An option of the algorithm (shared-prefill, epochs, ...).",
)
EXPAND = click.option("--expand", is_flag=True, help="Put derived costs in place of named ones, where they exist.")


@main.command()
@ALGORITHM
@click.option("--placement", help="Where models run (default: baseline); `derive placements` lists them.")
@click.option("--preset", help="A framework's placement and schemes: trl, openrlhf, deepspeed-chat, ...")
@click.option("--staleness", type=click.IntRange(0), help="Updates that sampling may be behind, where it overlaps.")
@click.option("--waves", type=click.IntRange(1), help="Show generation and assessment of the batch in so many parts.")
@OPTION
@EXPAND
@AS_JSON
@one_sentence_errors
def stage(
    algorithm: str,
    placement: str | None,
    preset: str | None,
    staleness: int | None,
    waves: int | None,
    chosen: tuple[str, ...],
    expand: bool,
    as_json: bool,
) -> None:
    """Show work, depth and memory of each stage of a training iteration, and the iteration's period."""
    from derive.report import to_json
    from derive.stage_report import question, report_text, stage_report

    data = stage_report(question(algorithm, placement, preset, chosen, expand, staleness), waves)
    click.echo(to_json(data) if as_json else report_text(data), nl=False)


@main.command()
@ALGORITHM
@click.option("--budget", type=int, help="Operations per iteration; with it the points of an iso-compute curve.")
@click.option("--over", default="K=1,2,4,8,16,32", show_default=True, metavar="NAME=LIST", help="The size to vary.")
@click.option("--for", "solve_for", default="B", show_default=True, help="The size to solve for.")
@click.option("--set", "given", multiple=True, metavar="NAME=NUMBER", help="Value of a size or of a named cost.")
@OPTION
@EXPAND
@AS_JSON
@one_sentence_errors
def split(
    algorithm: str,
    budget: int | None,
    over: str,
    solve_for: str,
    given: tuple[str, ...],
    chosen: tuple[str, ...],
    expand: bool,
    as_json: bool,
) -> None:
    """Show the cost of an iteration per prompt and per rollout, and which sizes cost the same."""
    from derive.report import to_json
    from derive.split_report import split_report, split_text
    from derive.stage_report import question

    data = split_report(question(algorithm, chosen=chosen, expand=expand), budget, over, solve_for, given)
    click.echo(to_json(data) if as_json else split_text(data), nl=False)


@main.command()
@AS_JSON
@one_sentence_errors
def ledger(as_json: bool) -> None:
    """List the assumptions and show which cells rest on which."""
    from derive.explain import ledger_report, ledger_text
    from derive.report import to_json

    data = ledger_report()
    click.echo(to_json(data) if as_json else ledger_text(data), nl=False)


@main.command()
@click.argument("graph", type=click.Choice(GRAPHS))
@click.option("--scheme", default="none", help="Show one rank's graph under this scheme.")
@click.option("--dot", is_flag=True, help="Print Graphviz DOT instead of a list.")
@one_sentence_errors
def show(graph: str, scheme: str, dot: bool) -> None:
    """List the operations of a graph, or print it as Graphviz DOT."""
    from derive.render.dot import listing, to_dot
    from graphs.gallery import example

    found = example(graph, scheme)
    click.echo(to_dot(found) if dot else listing(found), nl=False)


@main.command("verify-certificates")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@one_sentence_errors
def verify_certificates(file: Path) -> None:
    """Check every certificate and witness in FILE with the small checker.

    Exit 0 when all hold, else 1 and the first that does not.
    """
    from derive.asymptotics import checker

    sys.exit(checker.main([str(file)]))


@main.command("export-smt")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder to write the scripts to."
)
@one_sentence_errors
def export_smt(file: Path, out: Path) -> None:
    """Write every lemma of the certificates in FILE as an SMT-LIB 2 script; a solver answers unsat to each.

    One .smt2 file per lemma, and index.json that lists them.  An earlier export in the folder is replaced.
    """
    from derive.asymptotics.smtlib import write
    from derive.asymptotics.smtterms import ExportError
    from derive.claims import ClaimError

    try:
        click.echo(f"{write(file, out)} scripts in {out}")
    except ExportError as error:
        raise ClaimError(str(error)) from error


if __name__ == "__main__":
    main()
