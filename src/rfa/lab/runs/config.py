"""Settings from the paper, from TOML files and from the user, and the name of a run."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rfa._specs import parse_spec
from rfa.errors import InvalidValueError
from rfa.lab.settings.settings import FIELDS, Settings, text_of
from rfa.lab.tasks.registry import find_task


class ConfigError(InvalidValueError):
    """Settings that make no sense, or a file that cannot be read. The message says which."""


def resolve(given: Mapping[str, Any]) -> Settings:
    """The settings of a run: what was given, and the paper's values for the rest.

    Raises:
        ConfigError: naming the setting that is wrong.
    """
    unknown = sorted(set(given) - set(FIELDS))
    if unknown:
        msg = f"no setting is called {unknown[0]!r}: there are {', '.join(FIELDS)}"
        raise ConfigError(msg)
    if "task" not in given:
        msg = "no task is given: `rfa tasks` lists them"
        raise ConfigError(msg)
    try:
        aggregator = text_of(given.get("aggregator", FIELDS["aggregator"].default))
        texts = {**given, "aggregator": aggregator}
        checked = {name: _cast(name, value) for name, value in texts.items()}
        task = find_task(checked["task"])
        return Settings(**task.settings_for(checked["aggregator"]) | checked)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file.

    Raises:
        ConfigError: naming the file and what is wrong with it.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"the settings in {path} cannot be read: {error}"
        raise ConfigError(msg) from None
    return {name.replace("-", "_"): value for name, value in values.items()}


def write_toml(settings: Settings, path: Path) -> None:
    """Write all settings to a TOML file, each with its help text."""
    lines: list[str] = []
    for name, field in FIELDS.items():
        lines += [f"# {field.metadata['help']}", f"{name} = {_toml(getattr(settings, name))}"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        msg = f"the settings cannot be written to {path}: {error}"
        raise ConfigError(msg) from None


def run_name(settings: Settings) -> str:
    """The name of a run: what gives the same numbers has the same name."""
    text = json.dumps(settings.identity, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    parts = (settings.task, parse_spec(settings.aggregator).name, digest)
    return ".".join(part.replace(":", "-") for part in parts)  # it is the name of a folder, too


def _cast(name: str, value: Any) -> Any:
    """Whole numbers may stand for floats, and nothing else for anything else."""
    kind = {"int": int, "float": float, "bool": bool, "str": str}[str(FIELDS[name].type)]
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        article = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        msg = f"{name} must be {article[kind]}, not {value!r}"
        raise InvalidValueError(msg)
    return value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False)
