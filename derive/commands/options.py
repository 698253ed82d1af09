"""What the commands of the command line share: options, exit codes, and errors as one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

DIFFERS, BAD_INPUT = 1, 2
F = TypeVar("F", bound=Callable[..., Any])


class OneSentence(click.ClickException):
    """A misuse of the command line, said like all other bad input."""

    exit_code = BAD_INPUT

    def show(self, file: Any = None) -> None:
        """One line on standard error."""
        click.echo(f"derive: {' '.join(self.message.split())}", file=file, err=file is None)


@contextmanager
def _one_sentence() -> Iterator[None]:
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        said, of = error.format_message().rstrip("."), error.ctx.command_path if error.ctx else "derive"
        raise OneSentence(f"{said[:1].lower()}{said[1:]}; `{of} --help` says what it takes") from error


class OneSentenceGroup(click.Group):
    """Commands whose usage errors are one sentence too."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the words before the command."""
        with _one_sentence():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the other words and run the command."""
        with _one_sentence():
            return super().invoke(ctx)


class Named(click.Path):
    """A path that is not the empty word, which would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; a usage error where there is no name."""
        if not str(value):
            self.fail("the name is empty; write the name of a file or folder", param, ctx)
        return super().convert(value, param, ctx)


JOBS = click.option(
    "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="Processes to use (default: all cores)."
)
FILE = Named(dir_okay=False, path_type=Path)
FOLDER = Named(file_okay=False, path_type=Path)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
MODELS = tuple(
    f"{role}{layer}" for role in ("policy", "reward", "value", "shared") for layer in ("", "-experts", "-dispatched")
)
MODEL = click.option(
    "--model",
    type=click.Choice(MODELS),
    default="policy",
    help="Which model (default: policy, with the feed-forward layer of the scheme's row).",
)
SIZES = click.option(
    "--set", "sizes", multiple=True, metavar="SIZE=N", help="A number for a size, as in m=1024; may be repeated."
)
#: what the backward pass may compute again, and the policies of a scheme: the words of the graphs, which load slowly
RECOMPUTES = ("none", "selective", "layer-boundary")
GATHERED, ACCUMULATED = ("again", "kept"), ("shards", "partial")
RECOMPUTE = click.option(
    "--recompute", type=click.Choice(RECOMPUTES), default="none", help="What the backward pass computes again."
)
_GATHERED = click.option(
    "--gathered",
    type=click.Choice(GATHERED),
    help="What the forward pass gathered: is gathered again backward, or kept (default: as the scheme says).",
)
_ACCUMULATED = click.option(
    "--accumulated",
    type=click.Choice(ACCUMULATED),
    help="Gradients of a micro-batch: are added to stored shards, or to partial sums (default: as the scheme says).",
)
SCHEME_HELP = "A scheme by name, or a Python file that declares one (the file is executed)."


def policies(command: F) -> F:
    """The options that change a scheme's policies."""
    return _GATHERED(_ACCUMULATED(command))


def one_sentence_errors(command: F) -> F:
    """Bad input is one sentence on standard error and exit code 2; other errors stay what they are."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from derive.parsing import ParseError
        from derive.records import ClaimError
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
