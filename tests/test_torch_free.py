"""The core needs no PyTorch: nothing imports it unasked, and who asks for it without having it is told what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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


SKIPPING = """
import pytest
def test_that_leaves_itself_out():
    pytest.skip("on a whim")
"""


def outcome(directory: Path, *words: str) -> str:
    """The last line of a run of pytest where importing torch fails."""
    pytest_without = "import sys; sys.modules['torch'] = None; import pytest; sys.exit(pytest.main({}))"
    words = ("-c", "/dev/null", "-p", "no:cacheprovider", "-q", *words)
    done = subprocess.run(
        [sys.executable, "-c", pytest_without.format(list(words))],
        capture_output=True, text=True, check=False, timeout=120, cwd=ROOT,
    )  # fmt: skip
    return f"{done.returncode}: {done.stdout.strip().splitlines()[-1]}"


@pytest.mark.parametrize("file", ["tests/torch/test_strict.py", "tests/hf/test_outputs.py", "written"])
def test_what_is_skipped_fails_the_run_that_may_leave_nothing_out(file: str, tmp_path: Path) -> None:
    if file == "written":
        path = tmp_path / "test_written.py"
        path.write_text(SKIPPING, encoding="utf-8")
        file = str(path)
    assert "1 skipped" in outcome(tmp_path, file)
    strict = outcome(tmp_path, "-p", "tests.no_skips", file)
    assert strict.startswith(("1: 1 failed", "2: 1 error"))
