"""The wheel is whole: what it installs works outside the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files in a folder of their own."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def run(installed: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed), **settings}
    command = [sys.executable, "-m", "derive.cli", *words]
    return subprocess.run(command, cwd=installed.parent, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_carries_claims_templates_and_the_record(installed: Path) -> None:
    data = installed / "derive" / "data"
    for folder in ("paper", "published"):
        files = {p.name for p in (ROOT / "tables" / folder).glob("*.toml")}
        assert {p.name for p in (data / folder).glob("*.toml")} == files
    assert list((data / "templates").glob("*.jinja"))
    assert (data / "verdicts.toml").exists()


def test_an_installed_check_agrees_with_the_record(installed: Path) -> None:
    for words in (["--table", "III"], ["--published"]):
        done = run(installed, "check", *words)
        assert (done.returncode, done.stderr) == (0, "")


def test_an_installed_tables_needs_a_folder_to_write_to(installed: Path) -> None:
    refused = run(installed, "tables")
    assert refused.returncode == 2
    assert "name a folder with --out" in refused.stderr


def test_an_installed_tables_writes_the_committed_bytes_under_any_hash_seed(installed: Path, tmp_path: Path) -> None:
    """The seed of this process is another one, and what it writes is compared with what is committed too."""
    assert "table_vii.tex" in run(installed, "tables", "--out", str(tmp_path), PYTHONHASHSEED="1").stdout
    committed = {p.name: p.read_bytes() for p in (ROOT / "tables" / "out").iterdir()}
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == committed
