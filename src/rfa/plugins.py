"""Things of the user's own, named on the command line as module:name."""

from __future__ import annotations

import importlib
import sys
from typing import Any


class PluginError(Exception):
    """Nothing can be loaded under that name. The message says why."""


def load_plugin(name: str, kinds: type | tuple[type, ...], wanted: str) -> Any:
    """What a module of the user's has under a name.

    Args:
        name: module:name; the module is looked for in the working directory first.
        kinds: what it must be.
        wanted: the same in words, for the error.

    Raises:
        PluginError: if it cannot be imported, is not there, or is something else.
    """
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:
        msg = f"{name!r}: {module} cannot be imported: {type(error).__name__}: {error}"
        raise PluginError(msg) from error
    if not isinstance(found, kinds):
        what = "there is no such name" if found is None else f"it is a {type(found).__name__}"
        msg = f"{name!r} must be {wanted}, but {what}"
        raise PluginError(msg)
    return found
