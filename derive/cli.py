"""The command line.  Heavy imports happen inside the commands that need them."""

from __future__ import annotations

import click

from derive.commands import costs, evaluate, operations, proofs, schemes, stages, tables, torch
from derive.commands.options import OneSentenceGroup


@click.group(cls=OneSentenceGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="rlm-workdepth", message="%(version)s")
def main() -> None:
    """Derive work, depth, memory and communication from operation graphs; compare them with printed formulas."""


for module in (tables, schemes, stages, operations, costs, evaluate, proofs, torch):
    for command in module.COMMANDS:
        main.add_command(command)

if __name__ == "__main__":
    main()
