"""The command about the operation graphs of post-training."""

from __future__ import annotations

import click

from derive.commands.options import AS_JSON, SCHEME_HELP, one_sentence_errors
from derive.commands.stages import ALGORITHM, OPTION


@click.command()
@ALGORITHM
@OPTION
@click.option("--node", help="List the graph that carries out this node, such as advantages or update_actor.")
@click.option("--scheme", default="none", metavar="NAME|FILE", help=f"With --node: one rank's graph. {SCHEME_HELP}")
@click.option("--dot", is_flag=True, help="With --node: print Graphviz DOT instead of a list.")
@AS_JSON
@one_sentence_errors
def operations(
    algorithm: str, chosen: tuple[str, ...], node: str | None, scheme: str, dot: bool, as_json: bool
) -> None:
    """Show the operation graphs that carry out the stages of an algorithm, or one of them."""
    from derive.operations_report import operations_report, operations_text
    from derive.render.dot import listing, to_dot
    from derive.report import to_json
    from derive.stage_report import question
    from graphs.rl.links import operation
    from graphs.rl.links import operations as every
    from graphs.rl.settings import Settings
    from graphs.schemes import find
    from graphs.transforms.partition import partition

    settings = Settings(options=question(algorithm, chosen=chosen).options)
    if node is None:
        data = operations_report(algorithm, every(algorithm, settings))
        click.echo(to_json(data) if as_json else operations_text(data), nl=False)
        return
    graph = partition(operation(algorithm, node, settings).graph, find(scheme).scheme)
    click.echo(to_dot(graph) if dot else listing(graph), nl=False)


COMMANDS = (operations,)
