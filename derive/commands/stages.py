"""Commands about the stages of a training iteration and where its models run."""

from __future__ import annotations

import click

from derive.commands.options import AS_JSON, one_sentence_errors

ALGORITHM = click.option(
    "--algorithm", default="ppo", show_default=True, metavar="NAME", help="ppo, grpo, dpo, or another in graphs/stages."
)
OPTION = click.option(
    "--option",
    "chosen",
    multiple=True,
    metavar="NAME",
    help="An option of the algorithm (shared-prefill, epochs, ...).",
)
EXPAND = click.option("--expand", is_flag=True, help="Put derived costs in place of named ones, where they exist.")


@click.command()
@AS_JSON
@one_sentence_errors
def placements(as_json: bool) -> None:
    """List the placements of models on device groups."""
    from derive.report import to_json
    from derive.stage_report import placements_report, placements_text

    data = placements_report()
    click.echo(to_json(data) if as_json else placements_text(data), nl=False)


@click.command()
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


@click.command()
@ALGORITHM
@click.option("--budget", metavar="NUMBER", help="Operations per iteration, such as 1e21; gives an iso-compute curve.")
@click.option("--over", default="K=1,2,4,8,16,32", show_default=True, metavar="NAME=LIST", help="The size to vary.")
@click.option("--for", "solve_for", default="B", show_default=True, help="The size to solve for.")
@click.option("--set", "given", multiple=True, metavar="NAME=NUMBER", help="Value of a size or of a named cost.")
@OPTION
@EXPAND
@AS_JSON
@one_sentence_errors
def split(
    algorithm: str,
    budget: str | None,
    over: str,
    solve_for: str,
    given: tuple[str, ...],
    chosen: tuple[str, ...],
    expand: bool,
    as_json: bool,
) -> None:
    """Show the cost of an iteration per prompt and per rollout, and which sizes cost the same."""
    from derive.options import parse_count
    from derive.report import to_json
    from derive.split_report import split_report, split_text
    from derive.stage_report import question

    within = None if budget is None else parse_count(budget)
    data = split_report(question(algorithm, chosen=chosen, expand=expand), within, over, solve_for, given)
    click.echo(to_json(data) if as_json else split_text(data), nl=False)


COMMANDS = (placements, stage, split)
