"""Names with parameters, as users write them: `rfa:budget=4`, `alie:z=1.5`, `module:NAME:a=1`.

>>> parse_spec("rfa:budget=4,nu=0.5")
Spec(name='rfa', parameters={'budget': 4, 'nu': 0.5})
>>> parse_spec("mine:Median:steps=2")
Spec(name='mine:Median', parameters={'steps': 2})
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rfa.errors import InvalidValueError, RfaError

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
        InvalidValueError: naming the part that is no name=value, or that is given twice.
    """
    *names, last = text.split(":")
    if not names or "=" not in last:
        return Spec(text, {})
    pairs = [_parameter(part, text) for part in last.split(",")]
    keys = [key for key, _ in pairs]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice:
        msg = f"{text!r} gives {twice} twice: give it once"
        raise InvalidValueError(msg)
    return Spec(":".join(names), dict(pairs))


def call_with(make: Callable[..., Made], values: Mapping[str, Any], name: str) -> Made:
    """What a class or function makes of parameters that a user gave.

    Raises:
        InvalidValueError: naming the parameter that it does not take or lacks.
        RfaError: what it raises itself, if that is one of ours.
    """
    signature = signature_of(make)
    taken = signature.parameters.values()
    known = [parameter.name for parameter in taken if parameter.kind is not parameter.VAR_KEYWORD]
    unknown = [key for key in values if key not in known]
    if unknown and len(known) == len(taken):
        msg = f"{name} cannot be made of {dict(values)}: it has no parameter {unknown[0]!r}, but "
        msg += ", ".join(known) or "none"
        raise InvalidValueError(msg)
    try:
        signature.bind(**values)
    except TypeError as error:
        msg = f"{name} cannot be made of {dict(values)}: {error}"
        raise InvalidValueError(msg) from None
    try:
        return make(**values)
    except RfaError:
        raise
    except (ValueError, TypeError, OverflowError) as error:  # an integer that no float holds
        msg = f"{name} cannot be made of {dict(values)}: {error}"
        raise InvalidValueError(msg) from error


def signature_of(make: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a class or function; kept, because it takes time to find."""
    has_hash = getattr(make, "__hash__", None) is not None
    return _kept_signature(make) if has_hash else inspect.signature(make)


_kept_signature = functools.lru_cache(maxsize=256)(inspect.signature)


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
