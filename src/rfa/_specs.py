"""Names with parameters, as users write them: `rfa:budget=4`, `alie:z=1.5`, `module:NAME:a=1`.

>>> parse_spec("rfa:budget=4,nu=0.5")
Spec(name='rfa', parameters={'budget': 4, 'nu': 0.5})
>>> parse_spec("mine:Median:steps=2")
Spec(name='mine:Median', parameters={'steps': 2})
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from rfa.errors import InvalidValueError, PluginError, RfaError

Made = TypeVar("Made")
WORDS: dict[str, Any] = {"true": True, "yes": True, "false": False, "no": False, "none": None}


@dataclass(frozen=True)
class Spec:
    """A name and its parameters.

    Attributes:
        name: a name that is known, or module:NAME.
        parameters: their values, by name.
    """

    name: str
    parameters: Mapping[str, Any]

    @property
    def is_plugin(self) -> bool:
        """Whether it names something of the user's own."""
        return ":" in self.name

    def __str__(self) -> str:
        """The text that it was read from, or one like it."""
        listed = ",".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.name}:{listed}" if listed else self.name

    def with_parameters(self, **parameters: Any) -> Spec:
        """The same with more parameters, which replace those of the same name."""
        return Spec(self.name, {**self.parameters, **parameters})


def parse_spec(text: str) -> Spec:
    """Read a name and its parameters.

    Raises:
        InvalidValueError: naming the part that is no name=value.
    """
    *names, last = text.split(":")
    if not names or "=" not in last:
        return Spec(text, {})
    return Spec(":".join(names), dict(_parameter(part, text) for part in last.split(",")))


def call_with(make: Callable[..., Made], values: Mapping[str, Any], name: str) -> Made:
    """What a class or function makes of parameters that a user gave.

    Raises:
        InvalidValueError: naming the parameter that it does not take or lacks.
        RfaError: what it raises itself, if that is one of ours.
    """
    try:
        inspect.signature(make).bind(**values)
    except TypeError as error:
        msg = f"{name} cannot be made of {dict(values)}: {error}"
        raise InvalidValueError(msg) from None
    try:
        return make(**values)
    except RfaError:
        raise
    except (ValueError, TypeError) as error:
        msg = f"{name} cannot be made of {dict(values)}: {error}"
        raise InvalidValueError(msg) from error


def spec_of_own(value: Any) -> Spec:
    """How a value of a user's own class is named: by its module, its class and its fields.

    Raises:
        PluginError: if other processes could not make it again from such a name.
    """
    kind = cast("type[Any]", type(value))
    module = sys.modules.get(kind.__module__)
    for name, other in vars(module).items() if module else ():
        if other is value:
            return Spec(f"{kind.__module__}:{name}", {})
    if getattr(module, kind.__qualname__, None) is not kind:
        msg = f"{value!r} has no name: put its class at the top level of a module"
        raise PluginError(msg)
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    values = {field.name: getattr(value, field.name) for field in fields if field.init}
    spec = Spec(f"{kind.__module__}:{kind.__name__}", values)
    if parse_spec(str(spec)) != spec or (not fields and vars(value)):
        msg = f"{value!r} cannot be made from {str(spec)!r}: give it a name in its module, "
        msg += f"as in NAME = {kind.__name__}(...)"
        raise PluginError(msg)
    return spec


def _parameter(part: str, text: str) -> tuple[str, Any]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    name = name.replace("-", "_")
    if not equals or not name.isidentifier() or not value:
        msg = f"{part!r} in {text!r} is no parameter: write name=value"
        raise InvalidValueError(msg)
    return name, _value(value)


def _value(text: str) -> Any:
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
