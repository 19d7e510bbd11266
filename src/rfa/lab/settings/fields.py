"""A setting: a field with a help text and one name everywhere."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from rfa._checks import check_choice, check_count, check_number, to_float
from rfa.errors import InvalidValueError

LARGEST = 2**62
"""The largest whole number that a setting may be."""
_KINDS = {"int": int, "float": float, "bool": bool, "str": str}
_ARTICLES = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}


class ConfigError(InvalidValueError):
    """Settings that make no sense, or a file that cannot be read. The message says which."""


@dataclass(frozen=True)
class Setting:
    """One setting, the same in Python, on the command line and in files.

    Attributes:
        name: its name as an option and as a keyword.
        group: the group that it belongs to; "" for those of the run as such.
        attribute: its name within the group.
        kind: int, float, bool or str.
        default: its value if neither the user nor the task gives another.
        help: what it means.
        choices: the values that it may have, if there are few.
    """

    name: str
    group: str
    attribute: str
    kind: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> Any:
        """The value, of the right type; whole numbers may stand for floats, and nothing else.

        Raises:
            InvalidValueError: naming the setting and the value.
        """
        if isinstance(value, np.generic):
            value = cast("Any", value).item()
        if self.kind == "float" and type(value) is int:
            value = to_float(self.name, value)
        if type(value) is not _KINDS[self.kind]:
            msg = f"{self.name} must be {_ARTICLES[self.kind]}, not {value!r}"
            raise InvalidValueError(msg)
        if isinstance(value, int) and value > LARGEST:
            msg = f"{self.name} must be at most {LARGEST}, not {value}"
            raise InvalidValueError(msg)
        if self.choices:
            check_choice(self.name, value, self.choices)
        return value


def setting(default: Any, text: str, *, option: str = "", choices: tuple[str, ...] = ()) -> Any:
    """A field that is a setting.

    Args:
        default: its default.
        text: its help text.
        option: its name as an option, where that is not the field's.
        choices: the values that it may have, if there are few.
    """
    about = {"help": text, "option": option, "choices": choices}
    return dataclasses.field(default=default, metadata=about)


@functools.cache
def settings_of(group: str, kind: type[Any]) -> Mapping[str, Setting]:
    """The settings among the fields of a class, by name."""
    listed = [
        Setting(
            name=field.metadata["option"] or field.name,
            group=group,
            attribute=field.name,
            kind=str(field.type),
            default=field.default,
            help=field.metadata["help"],
            choices=field.metadata["choices"],
        )
        for field in dataclasses.fields(kind)
        if "option" in field.metadata
    ]
    return {known.name: known for known in listed}


@functools.cache
def _options(kind: type[Any]) -> Mapping[str, str]:
    """The names as options of the settings of a class, by its fields."""
    return {known.attribute: known.name for known in settings_of("", kind).values()}


class Group:
    """Settings that belong together; each class of them checks its own values."""

    def applied(self) -> dict[str, Any]:
        """The values that make a difference: what tells a run from others."""
        return self.to_dict()

    def to_dict(self) -> dict[str, Any]:
        """All values by the names of their fields."""
        return {known: getattr(self, known) for known in self._attributes()}

    def _check_types(self) -> None:
        for known in settings_of("", type(self)).values():
            value = known.check(getattr(self, known.attribute))
            object.__setattr__(self, known.attribute, value)

    def _check_counts(self, *attributes: str, least: int = 1) -> None:
        for attribute in attributes:
            check_count(self._option(attribute), getattr(self, attribute), least=least)

    def _check_numbers(self, *attributes: str, positive: bool = False) -> None:
        for attribute in attributes:
            check_number(self._option(attribute), getattr(self, attribute), positive=positive)

    def _check_fractions(self, *attributes: str, below: float = 1) -> None:
        for attribute in attributes:
            name, value = self._option(attribute), getattr(self, attribute)
            check_number(name, value)
            if value >= below:
                msg = f"{name} must be below {below}, not {value!r}"
                raise InvalidValueError(msg)

    def _attributes(self) -> list[str]:
        return [known.attribute for known in settings_of("", type(self)).values()]

    def _option(self, attribute: str) -> str:
        return _options(type(self))[attribute]
