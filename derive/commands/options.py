"""What the commands of the command line share: options, exit codes, and errors as one sentence."""

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

JOBS = click.option(
    "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="Processes to use (default: all cores)."
)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
MODELS = tuple(f"{role}{layer}" for role in ("policy", "reward", "value") for layer in ("", "-experts", "-dispatched"))
MODEL = click.option(
    "--model",
    type=click.Choice(MODELS),
    default="policy",
    help="Which model (default: policy, with the feed-forward layer of the scheme's row).",
)
SIZES = click.option(
    "--set", "sizes", multiple=True, metavar="SIZE=N", help="A number for a size, as in m=1024; may be repeated."
)
SCHEME_HELP = "A scheme by name, or a Python file that declares one (the file is executed)."


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
