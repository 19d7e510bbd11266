"""Packages whose names are loaded when they are used, so that importing them takes no time."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def names_on_use(
    package: str, homes: Mapping[str, Sequence[str]], rooms: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    Args:
        package: its name.
        homes: for each module the names that the package has from it.
        rooms: modules of the package that need no import of their own.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name in rooms:
            return importlib.import_module(f"{package}.{name}")
        if name not in home_of:
            msg = f"{package} has no {name!r}: it has {', '.join(home_of)}"
            raise AttributeError(msg, name=name, obj=sys.modules[package])
        value = getattr(importlib.import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(home_of)
