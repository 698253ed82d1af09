"""Commands about models as they are configured: what one costs at numbers, and which architectures are known."""

from __future__ import annotations

import click

from derive.commands.options import AS_JSON, one_sentence_errors

RECOMPUTE = ("none", "selective", "layer-boundary")


@click.command()
@click.option("--config", required=True, metavar="FILE|NAME", help="A config.json, or a public one by name.")
@click.option("--set", "sizes", multiple=True, metavar="SIZE=N", help="B, S or T (default: B=1, S=1024, T=1024).")
@click.option("--algorithm", metavar="NAME", help="Also an iteration of ppo, grpo or dpo; --set K=8 for rollouts.")
@click.option("--degree", multiple=True, metavar="P_x=N", help="A degree of parallelism: P_d, P_p, P_t, P_c or P_e.")
@click.option("--causal", type=click.Choice(("exact", "half", "dense")), default="exact", show_default=True)
@click.option("--recompute", type=click.Choice(RECOMPUTE), default="none", help="What the backward pass does again.")
@click.option("--multi-token", is_flag=True, help="With the modules that predict further tokens in training.")
@click.option("--lora", type=click.IntRange(1), metavar="RANK", help="Train adapters of projections; freeze the rest.")
@click.option("--dtype-bytes", type=click.IntRange(1), default=2, show_default=True, help="Bytes of most elements.")
@click.option("--width", multiple=True, metavar="GROUP=N", help="Of weights, gradients, optimizer (4), ...")
@click.option("--cache-bytes", type=click.IntRange(1), help="Of the key-value cache (default: as --dtype-bytes).")
@click.option("--device-memory", metavar="BYTES", help="Say if a training step fits: bytes, or as in 80GiB or 80GB.")
@AS_JSON
@one_sentence_errors
def evaluate(
    config: str,
    sizes: tuple[str, ...],
    algorithm: str | None,
    degree: tuple[str, ...],
    causal: str,
    recompute: str,
    multi_token: bool,
    lora: int | None,
    dtype_bytes: int,
    width: tuple[str, ...],
    cache_bytes: int | None,
    device_memory: str | None,
    as_json: bool,
) -> None:
    """Evaluate a model at numbers: parameters, work, depth, memory and key-value cache, per rank and global.

    A forward pass and a training step are over B sequences of S+T tokens; generation is of T tokens from S.
    """
    from derive.config import load
    from derive.evaluate import Setting
    from derive.evaluate_report import report, to_text
    from derive.iteration import Iteration
    from derive.options import parse_amount, parse_numbers, parse_sizes, widths_of
    from derive.report import to_json
    from graphs.architectures import model_of
    from graphs.transforms.recompute import Recompute

    model = model_of(load(config))
    model = model.predicting() if multi_token else model
    model = model if lora is None else model.at(rank=lora)
    usual = [f"{group}={dtype_bytes}" for group in ("weights", "gradients", "activations")]
    numbers = parse_numbers(sizes, ("B", "S", "T") if algorithm is None else ("B", "K", "S", "T"))
    rollouts = numbers.pop("K", 1)
    setting = Setting(
        model,
        **numbers,
        causal=causal,
        degrees=parse_sizes(degree),
        recompute=Recompute(recompute.replace("-", "_")),
        widths=widths_of([*usual, *width]),
        cache_width=cache_bytes or dtype_bytes,
    )
    iteration = None if algorithm is None else Iteration(setting, algorithm, rollouts)
    data = report(setting, None if device_memory is None else parse_amount(device_memory), iteration)
    click.echo(to_json(data) if as_json else to_text(data), nl=False)


@click.command()
@AS_JSON
@one_sentence_errors
def architectures(as_json: bool) -> None:
    """List the architectures that configurations may have, what they are made of, and public configurations."""
    from derive.config import shipped
    from derive.report import to_json
    from graphs.architectures import architectures as known

    if as_json:
        listed = [
            {
                "name": a.name,
                "model_types": list(a.model_types),
                "parts": list(a.parts),
                "left_out": list(a.left_out),
                "source": a.source,
            }
            for a in known()
        ]
        click.echo(to_json({"architectures": listed, "configurations": list(shipped())}), nl=False)
        return
    for a in known():
        click.echo(f"{a.name:<10} {', '.join(a.model_types)}: {', '.join(a.parts)}\n{'':<10} {a.source}")
    click.echo(f"public configurations: {', '.join(shipped())}")


COMMANDS = (
    evaluate,
    architectures,
)
