"""What users write themselves, named as module:NAME."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

from rfa.errors import PluginError


def load_plugin(name: str, kinds: type | tuple[type, ...], wanted: str) -> Any:
    """Load what a user's module has under a name.

    Args:
        name: module:NAME; the module is looked for in the working directory first.
        kinds: what it must be.
        wanted: the same in words, for the error.

    Raises:
        PluginError: if it cannot be imported, is not there, or is something else.
    """
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        value = getattr(importlib.import_module(module), attribute, None)
    except (Exception, SystemExit) as error:
        msg = f"{name!r}: {module} cannot be imported: {describe_failure(error)}"
        raise PluginError(msg) from error
    if not isinstance(value, kinds):
        what = "there is no such name" if value is None else f"it is a {type(value).__name__}"
        msg = f"{name!r} must be {wanted}, but {what}"
        raise PluginError(msg)
    return value


def plugin_source(name: str) -> bytes:
    """The source of the module that has a plugin: what tells one version of it from another."""
    if ":" not in name:
        return b""
    spec = importlib.util.find_spec(name.partition(":")[0])
    return Path(spec.origin).read_bytes() if spec and spec.origin else b""


def describe_failure(error: BaseException) -> str:
    """An error of the user's own code, with the place where it happened."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
