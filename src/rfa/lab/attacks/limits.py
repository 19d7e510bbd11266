"""Which values the parameters of attacks may have: annotations of the functions that take them.

    def forge(attack, *, scale: Annotated[float, positive] = 1.0): ...

So that a wrong value is refused with the settings, and not in a round of some run of many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias, get_type_hints

from rfa._checks import check_choice, check_count, check_number
from rfa._specs import signature_of
from rfa.errors import InvalidValueError

Check: TypeAlias = Callable[[str, Any], None]
"""(name, value): raises InvalidValueError, naming both."""


def finite(name: str, value: Any) -> None:
    """Refuse a value that is no finite number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        msg = f"{name} must be a number, not {value!r}"
        raise InvalidValueError(msg)


def positive(name: str, value: Any) -> None:
    """Refuse a value that is no positive number."""
    check_number(name, value, positive=True)


def above_one(name: str, value: Any) -> None:
    """Refuse a factor that is not above 1."""
    check_number(name, value)
    if value <= 1:
        msg = f"{name} must be above 1, not {value!r}: values are drawn between an honest one and "
        raise InvalidValueError(msg + f"{name} times it")


def below_one(name: str, value: Any) -> None:
    """Refuse a fraction that is not below 1."""
    check_number(name, value)
    if value >= 1:
        msg = f"{name} must be below 1, not {value!r}: nothing would be left of the update"
        raise InvalidValueError(msg)


def share(name: str, value: Any) -> None:
    """Refuse a value that is no fraction from 0 to 1."""
    check_number(name, value)
    if value > 1:
        msg = f"{name} must be at most 1, not {value!r}: it is a fraction"
        raise InvalidValueError(msg)


def positive_share(name: str, value: Any) -> None:
    """Refuse a value that is no fraction above 0 and up to 1."""
    positive(name, value)
    share(name, value)


def count(name: str, value: Any) -> None:
    """Refuse a value that is no whole number from 1 on."""
    check_count(name, value)


def one_of(names: Sequence[str]) -> Check:
    """A check that refuses other texts than these."""
    return lambda name, value: check_choice(name, value, names)


def check_parameters(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Check the values of some parameters of an attack by its annotations.

    None is fine where it is the default.

    Raises:
        InvalidValueError: naming the first that is wrong, and what would be right.
    """
    hints = get_type_hints(function, include_extras=True)
    taken = signature_of(function).parameters
    for name, value in given.items():
        if value is None and taken[name].default is None:
            continue
        for check in getattr(hints.get(name), "__metadata__", ()):
            check(name, value)
