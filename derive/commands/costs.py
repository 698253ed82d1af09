"""Commands about what a training step moves, holds and waits for."""

from __future__ import annotations

from dataclasses import replace

import click

from derive.commands.options import (
    AS_JSON,
    MODEL,
    RECOMPUTE,
    SCHEME_HELP,
    SIZES,
    one_sentence_errors,
    policies,
)


@click.command()
@click.option("--scheme", required=True, metavar="NAME|FILE", help=SCHEME_HELP)
@MODEL
@click.option("--algorithm", type=click.Choice(("ring", "tree", "central")), default="ring", show_default=True)
@click.option("--bytes", "widths", multiple=True, metavar="[ROLE=]WIDTH", help="Count bytes, of tensors this wide.")
@SIZES
@RECOMPUTE
@policies
@click.option("--micro-batches", is_flag=True, help="Accumulate gradients over n_mb micro-batches of B sequences.")
@click.option("--depth", is_flag=True, help="Also the longest path in alpha and beta; slow for 5D without numbers.")
@AS_JSON
@one_sentence_errors
def communication(
    scheme: str,
    model: str,
    algorithm: str,
    widths: tuple[str, ...],
    sizes: tuple[str, ...],
    recompute: str,
    gathered: str | None,
    accumulated: str | None,
    micro_batches: bool,
    depth: bool,
    as_json: bool,
) -> None:
    """What one training step exchanges: each collective and send, and totals per phase, per rank and global.

    Per rank is what the rank sends that sends most; global is what all ranks send.  Steps are rounds of messages, one
    after the other, in which a rank takes part: their number times the latency is the time that no bandwidth saves.
    """
    from derive import communication_report as texts
    from derive.communication import communication as exchanges
    from derive.options import asked, parse_sizes, recomputing
    from derive.report import to_json

    question = recomputing(asked(model, scheme, gathered, accumulated), recompute)
    question = replace(question, micro_batches=micro_batches)
    numbers = parse_sizes(sizes)
    found = exchanges(question, algorithm).at(numbers)
    longest = texts.depth_of(found, numbers) if depth else None
    data = texts.communication_report(found, texts.widths_given(widths), longest)
    click.echo(to_json({"model": model} | data) if as_json else texts.communication_text(data), nl=False)


@click.command()
@click.option("--scheme", default="none", metavar="NAME|FILE", help=f"On one rank. {SCHEME_HELP}")
@MODEL
@RECOMPUTE
@policies
@click.option("--dropout", is_flag=True, help="Blocks with dropout, whose masks are kept.")
@click.option("--bytes", "in_bytes", is_flag=True, help="Bytes of mixed-precision training instead of elements.")
@click.option(
    "--width", multiple=True, metavar="GROUP=N", help="Bytes of an element of weights, gradients, ...; implies --bytes."
)
@click.option("--copies", type=click.IntRange(1), help="Values kept of a parameter (default: 4; in bytes 5).")
@SIZES
@AS_JSON
@one_sentence_errors
def memory(
    scheme: str,
    model: str,
    recompute: str,
    gathered: str | None,
    accumulated: str | None,
    dropout: bool,
    in_bytes: bool,
    width: tuple[str, ...],
    copies: int | None,
    sizes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Derive what a training step holds between its passes: weights, gradients, optimizer state and saved values.

    In bytes, a parameter has a 16-bit weight and gradient and three 32-bit values of optimizer state: a master copy and
    Adam's moments.  Sizes are those of the text form (B, m, L, d, h, d_ff, V, P_t, ...); with values for some of them
    what is left of a formula stands behind it.
    """
    from derive.footprint import footprint, report, to_text
    from derive.options import asked, holding, parse_sizes, widths_of
    from derive.report import safe, to_json

    widths = widths_of(width) if in_bytes or width else None
    q = holding(
        asked(model, scheme, gathered, accumulated),
        recompute,
        dropout=dropout,
        copies=copies,
        in_bytes=widths is not None,
    )
    data = report(footprint(q, widths), parse_sizes(sizes), widths)
    click.echo(to_json(safe(data)) if as_json else to_text(data), nl=False)


@click.command()
@click.argument("schedule")
@click.option("--stages", type=int, required=True, help="Ranks of the pipeline, P_p.")
@click.option("--micro-batches", type=int, required=True, help="Micro-batches in a step, n_mb.")
@click.option("--virtual", type=int, default=1, help="Chunks of layers on each rank, n_vs (default: 1).")
@click.option("--forward", default="1", help="Time of a forward pass through a rank's layers (default: 1).")
@click.option("--backward", default="2", help="Time of the whole backward pass (default: 2).")
@click.option("--weight-gradient", help="The part of it that is the weight gradient (default: half).")
@click.option("--transfer", default="0", help="Time from one rank to another (default: 0).")
@click.option("--layers", help="Layers of each chunk, as in 4,4,3,5; durations are then for one layer.")
@click.option("--timeline", is_flag=True, help="Show what each rank does when.")
@AS_JSON
@one_sentence_errors
def pipeline(
    schedule: str,
    stages: int,
    micro_batches: int,
    virtual: int,
    forward: str,
    backward: str,
    weight_gradient: str | None,
    transfer: str,
    layers: str | None,
    timeline: bool,
    as_json: bool,
) -> None:
    """Time one training step under a pipeline SCHEDULE: gpipe, 1f1b, interleaved or zero-bubble.

    Durations are rational numbers such as 3/2.  Idle time is given per useful time (ideal) and per available time
    (total), and for each rank the most activations that it keeps at a time.
    """
    from derive.parsing import parse_rational, parse_whole
    from derive.render.pipeline import chart, to_data, to_text
    from derive.report import to_json
    from derive.schedules import Durations, run_step
    from graphs.schedules import Pipeline, schedule_named

    chosen = schedule_named(schedule)
    whole = parse_rational(backward, "--backward")
    durations = Durations(
        forward=parse_rational(forward, "--forward"),
        backward=whole,
        weight_gradient=whole / 2 if weight_gradient is None else parse_rational(weight_gradient, "--weight-gradient"),
        transfer=parse_rational(transfer, "--transfer"),
    )
    counts = None if layers is None else [parse_whole(n, "--layers") for n in layers.split(",")]
    step = run_step(chosen, Pipeline(stages, micro_batches, virtual), durations, counts)
    if as_json:
        click.echo(to_json(to_data(chosen, step, durations, timeline)), nl=False)
        return
    shown = f"\n{chart(step)}" if timeline else ""
    click.echo(to_text(chosen, step, durations) + shown, nl=False)


COMMANDS = (
    communication,
    memory,
    pipeline,
)
