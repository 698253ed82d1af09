"""Commands about certificates."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from derive.commands.options import FILE, FOLDER, one_sentence_errors


@click.command("verify-certificates")
@click.argument("file", type=FILE)
@one_sentence_errors
def verify_certificates(file: Path) -> None:
    """Check every certificate and witness in FILE with the small checker.

    Exit 0 when all hold, else 1 and the first that does not.
    """
    from derive.asymptotics import checker

    sys.exit(checker.main([str(file)]))


@click.command("export-smt")
@click.argument("file", type=FILE)
@click.option("--out", type=FOLDER, required=True, help="Folder to write the scripts to.")
@one_sentence_errors
def export_smt(file: Path, out: Path) -> None:
    """Write every lemma of the certificates in FILE as an SMT-LIB 2 script; a solver answers unsat to each.

    One .smt2 file per lemma, and index.json that lists them.  An earlier export in the folder is replaced.
    """
    from derive.asymptotics.smtlib import write
    from derive.asymptotics.smtterms import ExportError
    from derive.records import ClaimError

    try:
        click.echo(f"{write(file, out)} scripts in {out}")
    except ExportError as error:
        raise ClaimError(str(error)) from error


COMMANDS = (
    verify_certificates,
    export_smt,
)
