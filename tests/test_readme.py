"""Every command that the README shows runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from derive.cli import main

ROOT = Path(__file__).parent.parent
README = "\n".join(
    file.read_text(encoding="utf-8") for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
)
INLINE = re.findall(r"`(make [a-z-]+|derive [a-z][^`]*|python [^`]*)`", README)
BLOCKS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
LINES = [line.removeprefix(".venv/bin/") for line in [*INLINE, *BLOCKS] if line.strip()]
COMMANDS = sorted({shlex.join(shlex.split(line, comments=True)) for line in LINES})
#: these run the tests, write into the checkout or compare everything: a dry run, or the same command tested elsewhere
DRY = ("make", "derive record")
ELSEWHERE = ("derive check",)


def test_the_readme_shows_commands() -> None:
    assert "make tables" in COMMANDS
    assert any(c.startswith("derive check") for c in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_readme_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(command)
    if command.startswith(DRY) or command in ELSEWHERE:
        words = ["make", "--dry-run", words[1]] if words[0] == "make" else [*words, "--help"]
    if "FILE" in words:
        pytest.skip("a pattern, shown with files elsewhere")
    if "--out" in words:
        words[words.index("--out") + 1] = str(tmp_path)
    monkeypatch.chdir(ROOT)
    if words[0] == "derive":  # in this process, where much is derived already
        found = CliRunner().invoke(main, words[1:])
        assert found.exit_code == 0, found.stderr
    else:
        words[0] = words[0].replace("python", sys.executable)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


PATHS = re.findall(r"(?:`|src=\")((?:graphs|derive|tables|docs)/[\w/.]+\.\w+)[`\"]", README)


@pytest.mark.parametrize("path", PATHS)
def test_files_that_the_readme_names_exist(path: str) -> None:
    assert (ROOT / path).exists()
