"""The core needs no PyTorch: nothing imports it unasked, and who asks for it without having it is told what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules['torch'] = None; from derive.cli import main; main({})"


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    """A command where importing torch fails."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(words)], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--table", "VII", "--jobs", "1"],
        ["communication", "--scheme", "tensor"],
        ["memory", "--scheme", "zero-3"],
        ["import-torch", "--help"],
    ],
)
def test_a_command_works_where_pytorch_is_not_installed(words: list[str]) -> None:
    done = run(words)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_a_layer_without_pytorch_is_refused_with_the_mend() -> None:
    done = run(["import-torch", "layers:block"])
    assert done.returncode == 2
    assert done.stderr == "derive: PyTorch is not installed; install the extra: pip install 'rlm-workdepth[torch]'\n"
