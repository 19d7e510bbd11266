"""Checks of arguments, with errors that name the value and what would be right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from rfa.errors import InvalidValueError


def check_number(name: str, value: Any, *, positive: bool = False) -> None:
    """Refuse what is not a finite number, or is negative.

    Raises:
        ValueError: naming the value.
    """
    usable = type(value) is not bool and isinstance(value, Real)
    if not usable or not 0 <= float(value) < math.inf or (positive and value == 0):
        wanted = "a positive number" if positive else "a number from 0 on"
        msg = f"{name} must be {wanted}, not {value!r}"
        raise InvalidValueError(msg)


def check_count(name: str, value: Any, *, least: int = 1) -> None:
    """Refuse what is not a whole number, or is less than the least.

    Raises:
        ValueError: naming the value.
    """
    if type(value) is bool or not isinstance(value, Integral) or int(value) < least:
        msg = f"{name} must be a whole number from {least} on, not {value!r}"
        raise InvalidValueError(msg)


def check_choice(name: str, value: Any, known: Sequence[str]) -> None:
    """Check that a value is one of some names.

    Raises:
        InvalidValueError: naming the value and the names.
    """
    if value not in known:
        msg = f"{name} must be one of {', '.join(known)}, not {value!r}"
        raise InvalidValueError(msg)
