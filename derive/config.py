"""Configurations of models: config.json files, and those that come along (``derive/configs``)."""

from __future__ import annotations

import json
from pathlib import Path

from graphs.architectures.config import Config
from graphs.errors import GraphError

SHIPPED = Path(__file__).with_name("configs")


def shipped() -> dict[str, Path]:
    """Public configurations by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.json"))}


def load(word: str) -> Config:
    """The configuration in the file at that path, or the public one of that name; OSError where there is none."""
    if not word:
        raise GraphError("the name of the configuration is empty; name a config.json")
    path = Path(word)
    if not path.is_file() and word in shipped():
        path = shipped()[word]
    text = path.read_bytes()
    try:
        values = json.loads(text.decode("utf-8"), object_pairs_hook=_each_once)
    except UnicodeDecodeError as error:
        raise GraphError(f"{word}: not UTF-8 text; name a config.json") from error
    except RecursionError as error:
        raise GraphError(f"{word}: not valid JSON (nested too deeply); mend the file") from error
    except ValueError as error:
        raise GraphError(f"{word}: not valid JSON ({str(error).partition(';')[0]}); mend the file") from error
    if not isinstance(values, dict):
        raise GraphError(f"{word}: a configuration is one JSON object, with keys such as model_type; mend the file")
    return Config(values, word)


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object; of a key that is there twice nothing says which value holds."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} is there twice")
    return found
