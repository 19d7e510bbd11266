"""Checks of arguments, with errors that name the value and what would be right."""

from __future__ import annotations

import errno
import math
import stat
import sys
from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from rfa.errors import InvalidValueError


def check_number(name: str, value: Any, *, positive: bool = False) -> None:
    """Refuse a value that is not a finite number, or is negative.

    Raises:
        ValueError: naming the value.
    """
    wanted = "a positive number" if positive else "a number from 0 on"
    usable = type(value) is not bool and isinstance(value, Real)
    number = to_float(name, value, wanted) if usable else math.nan
    if not 0 <= number < math.inf or (positive and value == 0):
        msg = f"{name} must be {wanted}, not {value!r}"
        raise InvalidValueError(msg)


def to_float(name: str, value: Any, wanted: str = "a number") -> float:
    """Return a number as a float.

    Raises:
        InvalidValueError: if no float is as large, which only whole numbers and fractions can be.
    """
    try:
        return float(value)
    except OverflowError:
        msg = f"{name} must be {wanted} below {sys.float_info.max:.2g}"
        raise InvalidValueError(msg) from None


def check_count(name: str, value: Any, *, least: int = 1) -> None:
    """Refuse a value that is not a whole number, or is less than the least.

    Raises:
        ValueError: naming the value.
    """
    if type(value) is bool or not isinstance(value, Integral) or int(value) < least:
        msg = f"{name} must be a whole number from {least} on, not {value!r}"
        raise InvalidValueError(msg)


def check_flag(name: str, value: Any) -> None:
    """Refuse a value that is not True or False: a text such as "no" would count as True.

    Raises:
        InvalidValueError: naming the value.
    """
    if type(value) is not bool:
        msg = f"{name} must be True or False, not {value!r}"
        raise InvalidValueError(msg)


def check_regular(path: Path) -> None:
    """Refuse a path that is no regular file: a pipe or a device could be waited for without end.

    Raises:
        OSError: if there is nothing of the name, or a folder, a pipe, a socket or a device.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        text = "it is no regular file, but a folder, a pipe or a device"
        raise OSError(errno.EINVAL, text, str(path))


def check_choice(name: str, value: Any, known: Sequence[str]) -> None:
    """Check that a value is one of some names.

    Raises:
        InvalidValueError: naming the value and the names.
    """
    if value not in known:
        msg = f"{name} must be one of {', '.join(known)}, not {value!r}"
        raise InvalidValueError(msg)
