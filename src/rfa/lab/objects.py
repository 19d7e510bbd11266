"""Objects that a notebook or a script defines, on their way to the processes that do its runs.

They travel by cloudpickle, and only from a process to those that it started itself, through their
standard input: what comes from a file or a network is never unpickled.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rfa._plugins import defined, describe_failure, is_defined_here, receive
from rfa._specs import parse_spec
from rfa.errors import PluginError
from rfa.lab.datasets.dataset import lab_module

if TYPE_CHECKING:
    from rfa.lab.settings.settings import Settings

_received: dict[str, str] = {}
"""What came packed from the process that started this one, for those that this one starts."""


def texts_of(settings: Settings) -> tuple[str, ...]:
    """The texts of settings that may name something of the user's own."""
    return (
        settings.task,
        settings.aggregator,
        settings.attack.corruption,
        settings.training.partition,
    )


def names_of(settings: Settings) -> tuple[str, ...]:
    """The same without parameters."""
    return tuple(parse_spec(text).name for text in texts_of(settings))


def pack(texts: Iterable[str]) -> dict[str, str]:
    """The objects of a notebook or a script that texts name, each as text, by its name.

    Raises:
        PluginError: naming an object that cannot be sent, or that is not known here.
    """
    names = (parse_spec(text).name for text in texts)
    return {name: _packed(name) for name in names if is_defined_here(name)}


def unpack(packed: Mapping[str, str]) -> None:
    """Make the objects that `pack` packed known to this process.

    Raises:
        PluginError: naming an object that cannot be made here.
    """
    for name, text in packed.items():
        try:
            value = _pickling().loads(base64.b64decode(text))
        except Exception as error:
            msg = f"{name!r} cannot be made in a worker process: {describe_failure(error)}"
            raise PluginError(msg) from error
        receive(value, name)
        _received[name] = text


def _packed(name: str) -> str:
    if name in _received:
        return _received[name]
    value = defined(name)
    try:
        return base64.b64encode(_pickling().dumps(value)).decode()
    except Exception as error:
        msg = f"{name!r} cannot be sent to worker processes: {describe_failure(error)}: let the "
        msg += "code make what cannot be sent when it runs, or put it into a module and give "
        msg += "module:NAME"
        raise PluginError(msg) from error


def _pickling() -> Any:
    return lab_module("cloudpickle")
