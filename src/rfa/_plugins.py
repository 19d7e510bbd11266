"""What users write themselves: named as module:NAME, or defined in a notebook or a script.

What a notebook cell or a script defines is in no module that other processes could import. It is
kept here under a text that tells its name and its content, `__main__:NAME@DIGEST`, so that another
definition has another text, and the same one the same in every process.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rfa._code import check_as_imported
from rfa._fingerprint import fingerprint
from rfa._sources import own_sources, search_working_directory
from rfa.errors import PluginError

MAIN = "__main__"
DIGITS = 10
"""Hexadecimal digits of a fingerprint in a text."""


@dataclass(frozen=True)
class _Defined:
    """An object that has a text; from_elsewhere if another process defined and named it."""

    value: Any
    from_elsewhere: bool


_defined: dict[str, _Defined] = {}


def define(value: Any, name: str) -> str:
    """Keep an object of a notebook or a script, and return its text `__main__:NAME@DIGEST`.

    Raises:
        PluginError: if it cannot be told from others by its content.
    """
    received = text_of_defined(value)
    if received and _defined[received].from_elsewhere:
        return received
    text = f"{MAIN}:{name}@{fingerprint(value)[:DIGITS]}"
    _defined.pop(text, None)  # so that the last comes last
    _defined[text] = _Defined(value, from_elsewhere=False)
    return text


def receive(value: Any, text: str) -> None:
    """Keep an object that another process defined, under the text that it has there.

    It counts as it was there: some of what makes its content, such as its module, is not here.
    """
    _defined[text] = _Defined(value, from_elsewhere=True)


def text_of_defined(value: Any) -> str:
    """The text that an object was given last, or nothing."""
    texts = reversed(_defined)
    return next((text for text in texts if _defined[text].value is value), "")


def is_defined_here(name: str) -> bool:
    """Whether a name is one of an object of a notebook or a script."""
    return name.partition(":")[0] == MAIN


def defined(name: str) -> Any:
    """The object of a notebook or a script that has this name, as it was when it was named.

    Raises:
        PluginError: if this process has none, or it has changed since.
    """
    known = _known(name)
    if not known.from_elsewhere and fingerprint(known.value)[:DIGITS] != name.rpartition("@")[2]:
        msg = f"{name!r} has changed since it was given, or something that it uses: give it again"
        raise PluginError(msg)
    return known.value


def load_plugin(name: str, kinds: type | tuple[type, ...], wanted: str) -> Any:
    """Load what a user's module has under a name, or what a notebook or a script defined.

    Args:
        name: module:NAME; the module is looked for in the working directory first. Or
            `__main__:NAME@DIGEST`, which `define` returned.
        kinds: what it must be.
        wanted: the same in words, for the error.

    Raises:
        PluginError: if it cannot be imported, is not there, or is something else.
    """
    value = _known(name).value if is_defined_here(name) else _imported(name)
    if not isinstance(value, kinds):
        what = "there is no such name" if value is None else f"it is a {type(value).__name__}"
        msg = f"{name!r} must be {wanted}, but {what}"
        raise PluginError(msg)
    return value


def plugin_digest(name: str) -> bytes:
    """What tells one version of the user's own code from another; nothing for built-in objects.

    It covers the module that has a plugin, and all of the user's own modules that it imports.

    Raises:
        PluginError: if the code has changed since this process read it.
    """
    if ":" not in name:
        return b""
    if is_defined_here(name):
        defined(name)
        return name.encode()
    search_working_directory()
    sources = own_sources(name.partition(":")[0])
    check_as_imported(sources)
    digest = hashlib.sha256()
    for part in (part for pair in sources.items() for part in pair):
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data) + data)
    return digest.digest()


def describe_failure(error: BaseException) -> str:
    """An error of the user's own code, with the place where it happened."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    search_working_directory()
    is_new = module not in sys.modules
    try:
        value = getattr(importlib.import_module(module), attribute, None)
    except (Exception, SystemExit) as error:
        msg = f"{name!r}: {module} cannot be imported: {describe_failure(error)}"
        raise PluginError(msg) from error
    if is_new:
        check_as_imported(own_sources(module))
    return value


def _known(name: str) -> _Defined:
    if name not in _defined:
        msg = f"{name!r} was defined in a notebook or a script, which other processes do not know: "
        msg += "give the object itself from there, or put it into a module and give module:NAME"
        raise PluginError(msg)
    return _defined[name]
