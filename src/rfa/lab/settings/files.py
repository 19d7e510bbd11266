"""Settings in TOML files: one table for each group, or all names at the top level."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, cast

from rfa.lab.settings.fields import ConfigError
from rfa.lab.settings.groups import GROUPS
from rfa.lab.settings.settings import FIELDS, Settings


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file, with underscores in names.

    Raises:
        ConfigError: naming the file and the mistake.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"the settings in {path} cannot be read: {error}"
        raise ConfigError(msg) from None
    return {name.replace("-", "_"): value for name, value in values.items()}


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings in a TOML file by name, including those in its tables.

    Raises:
        ConfigError: naming the file and the mistake.
    """
    flat: dict[str, Any] = {}
    for name, value in read_toml(path).items():
        if name not in GROUPS or not isinstance(value, dict):
            flat[name] = value
            continue
        options = {field.attribute: field.name for field in FIELDS.values() if field.group == name}
        for attribute, inner in cast("dict[str, Any]", value).items():
            known = attribute.replace("-", "_")
            if known not in options:
                msg = f"{path}: [{name}] has no {attribute!r}: there are {', '.join(options)}"
                raise ConfigError(msg)
            flat[options[known]] = inner
    return flat


def write_settings(settings: Settings, path: Path) -> None:
    """Write all settings to a TOML file, each with its help text.

    Raises:
        ConfigError: naming the file, if it cannot be written.
    """
    lines: list[str] = []
    group = ""
    values = settings.flat
    for name, field in FIELDS.items():
        if field.group != group:
            group = field.group
            lines += ["", f"[{group}]"]
        lines += [f"# {field.help}", f"{field.attribute} = {_toml(values[name])}"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        msg = f"the settings cannot be written to {path}: {error}"
        raise ConfigError(msg) from None


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False)
