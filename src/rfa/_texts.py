"""The texts that name objects of a user's own, wherever rfa takes a name.

What a module has under a name is `module:NAME`, and a value of such a class with plain fields is
`module:Class:field=value`. All else, as what a notebook cell defines, is kept in this process under
a text that tells its content: `rfa._plugins.define`.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import types
from collections.abc import Iterator
from typing import Any, cast

from rfa._code import CONTENT, attributes_of
from rfa._plugins import MAIN, define, text_of_defined
from rfa._sources import own_modules
from rfa._specs import Spec, parse_spec
from rfa.errors import PluginError, RfaError

PLAIN = (str, int, float, bool, type(None))
"""What a text can hold as the value of a parameter."""


def text_of(value: Any, *, define: bool = True) -> str:
    """The text that names an object; a text is returned as it is.

    Args:
        value: a function, a class, or a value.
        define: keep what no module has under a name, so that this process, and those that do its
            runs, find it by the text.

    Raises:
        PluginError: if no text names it: it cannot be told from others by its content, or it has
            no name yet and shall not be defined.
    """
    if isinstance(value, str):
        return value
    text = _name_in_module(value) or _text_of_made(value, define)
    return text or _define(value, define)


def _define(value: Any, allowed: bool) -> str:
    if allowed:
        return define(value, _short_name(value))
    text = text_of_defined(value)
    if not text:
        msg = f"{value!r} has no name: give it one at the top level of a module"
        raise PluginError(msg)
    return text


def _name_in_module(value: Any) -> str:
    """The module:NAME of an object, or nothing if no module has it now."""
    for module in _modules(value):
        hint = getattr(value, "__name__", "")
        if hint and vars(module).get(hint) is value:
            return f"{module.__name__}:{hint}"
        for name, other in vars(module).items():
            if other is value:
                return f"{module.__name__}:{name}"
    return ""


def _modules(value: Any) -> Iterator[types.ModuleType]:
    """The modules that may have an object: first where it, its class or its code was written."""
    if isinstance(value, type | types.FunctionType):
        written: list[str] = [value.__module__]
    else:
        kind = cast("type[Any]", type(value))
        written = [part.__module__ for part in (*_functions(value), kind)]
    if MAIN in written:
        return  # whatever has it now, other processes would find another there
    yield from (sys.modules[name] for name in written if name in sys.modules)
    if not isinstance(value, type | types.FunctionType):
        yield from (sys.modules[name] for name in own_modules())


def _functions(value: Any) -> list[types.FunctionType]:
    parts = attributes_of(value).values()
    return [part for part in parts if isinstance(part, types.FunctionType)]


def _text_of_made(value: Any, define: bool) -> str:
    """The text of a value that its class makes from plain fields, or nothing."""
    kind = cast("type[Any]", type(value))
    if isinstance(value, type | types.FunctionType) or _hides(kind):
        return ""
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else None
    if fields is None and attributes_of(value):
        return ""
    values = {field.name: getattr(value, field.name) for field in fields or () if field.init}
    if not all(isinstance(part, PLAIN) for part in values.values()):
        return ""
    spec = Spec("module:Class", values)
    try:
        is_written = parse_spec(str(spec)) == spec
    except RfaError:
        is_written = False
    return str(Spec(_name_in_module(kind) or _define(kind, define), values)) if is_written else ""


def _hides(kind: type[Any]) -> bool:
    """Whether values of a class have a state besides their attributes, as lists and partials."""
    return any(
        name in vars(base) for base in kind.__mro__[:-1] for name in ("__reduce__", "__reduce_ex__")
    ) or issubclass(kind, CONTENT)


def _short_name(value: Any) -> str:
    """A name for an object, from what it says of itself."""
    name: Any = getattr(value, "__name__", None) or getattr(value, "name", None)
    if not isinstance(name, str):
        inner: list[Any] = [*_functions(value), getattr(value, "func", None), type(value)]
        name = next(part.__name__ for part in inner if hasattr(part, "__name__"))
    text = re.sub(r"\W+", "_", name).strip("_") or "object"
    return text if text.isidentifier() else f"_{text}"
