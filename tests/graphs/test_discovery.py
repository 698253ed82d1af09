"""A folder whose files each declare one thing: a broken file is named in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphs.discovery import declarations
from graphs.errors import GraphError


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def (", "SyntaxError"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("from graphs.errors import GraphError\nraise GraphError('two groups')", "broken.py: two groups; mend or"),
        ("OTHER = 1", "declares no THING; add one, or remove the file"),
    ],
)
def test_a_broken_file_is_named(text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = f"folder_{abs(hash(text))}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").touch()
    (tmp_path / package / "a_good_one.py").write_text("THING = 7")
    (tmp_path / package / "broken.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = declarations(package, "THING")
    assert next(found) == 7
    with pytest.raises(GraphError, match=r"broken\.py") as error:
        next(found)
    assert says in str(error.value)
    assert len(str(error.value).splitlines()) == 1
