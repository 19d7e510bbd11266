"""A stand-in until the branch `objects` is merged."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle


def own_sources(module: ModuleType) -> dict[str, bytes]:
    """The sources of a module and of those that it uses."""
    sources: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        each = waiting.pop()
        file = getattr(each, "__file__", None)
        name = each.__name__
        if (
            name in sources
            or not file
            or "site-packages" in file
            or file.startswith(sys.base_prefix)
        ):
            continue
        if name.split(".")[0] == "rfa":
            continue
        sources[name] = Path(file).read_bytes()
        for value in vars(each).values():
            other = (
                value
                if isinstance(value, ModuleType)
                else sys.modules.get(getattr(value, "__module__", None) or "")
            )
            if other is not None:
                waiting.append(other)
    return sources


def fingerprint(value: Any) -> str:
    """A digest."""
    return hashlib.sha256(repr(_plain(value)).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return type(value).__qualname__, [
            (f.name, _plain(getattr(value, f.name))) for f in dataclasses.fields(value)
        ]
    if isinstance(value, dict):
        return [(k, _plain(v)) for k, v in sorted(value.items())]
    if value is None or isinstance(value, (int, float, str, bytes)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    module = sys.modules.get(type(value).__module__)
    if module is not None and hasattr(value, "__dict__") and not isinstance(value, type):
        return [_plain(vars(value)), own_sources(module)]
    return hashlib.sha256(cloudpickle.dumps(value)).hexdigest()
