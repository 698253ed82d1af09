"""Where claims, templates and recorded verdicts are: the checkout's ``tables/``, or the copy that the wheel carries."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def data_root() -> Path:
    """The folder with ``paper/`` and ``templates/`` in it; FileNotFoundError where neither place has one."""
    places = (PACKAGE.parent / "tables", PACKAGE / "data")
    for folder in places:
        if (folder / "paper").is_dir():
            return folder
    raise FileNotFoundError(f"no claims found: neither {places[0]} nor {places[1]} has a folder paper/")


def paper_folder() -> Path:
    return data_root() / "paper"


def templates_folder() -> Path:
    return data_root() / "templates"


def published_folder() -> Path:
    return data_root() / "published"


def published_verdicts_file() -> Path:
    return published_folder() / "verdicts.toml"


def verdicts_file() -> Path:
    return data_root() / "verdicts.toml"


def output_folder() -> Path:
    """``tables/out`` of the checkout; FileNotFoundError where the package is installed without one."""
    root = data_root()
    if root != PACKAGE.parent / "tables":
        raise FileNotFoundError("outside a checkout there is no tables/out to write to: name a folder with --out")
    return root / "out"
