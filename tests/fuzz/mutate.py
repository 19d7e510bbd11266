"""Inputs that are almost right: bytes, messages and records with a few things changed."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from rfa.secagg.errors import SecAggError
from rfa.secagg.messages.opening import Message

COUNTS = (0, 1, 2, 3, 255, 256, 257, 1 << 14, 1 << 20, (1 << 20) + 1, 1 << 31, (1 << 32) - 1)
NUMBERS = (*COUNTS, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 128) - 1)
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 5e-324, 1e300, 1e38, math.nan, math.inf, -math.inf)


def mutate_bytes(  # noqa: C901 one case a change
    rng: Random, data: bytes, others: Sequence[bytes] = ()
) -> bytes:
    """Bytes with one to three changes: of bits, counts, numbers and pieces."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(changed) + 1)
        end = min(len(changed), at + rng.choice((1, 2, 4, 8, 16, 32, 33, 82)))
        match rng.randrange(9):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << rng.randrange(8)
            case 1 if changed:
                changed[at % len(changed)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                changed[at : at + 4] = rng.choice(COUNTS).to_bytes(4, "little")
            case 3:
                changed[at : at + 8] = struct.pack("<d", rng.choice(REALS))
            case 4:
                del changed[at:end]
            case 5:
                changed[at:at] = changed[at:end]
            case 6:
                changed[at:end] = rng.randbytes(rng.randrange(40))
            case 7:
                del changed[at:]
            case _ if others:
                other = rng.choice(others)
                cut = rng.randrange(len(other) + 1)
                changed[at:] = other[cut:]
            case _:
                pass
    return bytes(changed)


def mutate_value(rng: Random, value: Any) -> Any:  # noqa: PLR0911 one case a kind
    """A value of the same kind that is another one."""
    match value:
        case bool():
            return not value
        case int():
            return rng.choice((*NUMBERS, max(0, value - 1), value + 1, value ^ 1))
        case float():
            return rng.choice((*REALS, value * 2, value / 2, math.nextafter(value, 9)))
        case bytes():
            same = len(value) if rng.random() < 0.7 else rng.randrange(100)
            return rng.choice((mutate_bytes(rng, value)[:same], rng.randbytes(same), bytes(same)))
        case str():
            return rng.choice(("", value + "x", value[:-1], "\x00", "é" * 300, "../../etc"))
        case tuple() | list():
            return type(value)(_mutate_list(rng, list(value)))  # pyright: ignore
        case np.ndarray():
            return _mutate_array(rng, value)  # pyright: ignore
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return mutate_fields(rng, value)
        case _:
            return None


def mutate_fields(rng: Random, value: Any) -> Any:
    """A dataclass with one field changed, or two."""
    for _ in range(rng.choice((1, 1, 2))):
        names = [item.name for item in dataclasses.fields(value)]
        name = rng.choice(names if rng.random() < 0.1 else names[-len(names) + 1 :])
        value = dataclasses.replace(value, **{name: mutate_value(rng, getattr(value, name))})
    return value


def mutate_message(rng: Random, message: Message, others: Sequence[bytes]) -> bytes:
    """The bytes of a message that is almost this one, or of none."""
    if rng.random() < 0.5:
        try:
            return mutate_fields(rng, message).encode()
        except (ArithmeticError, AttributeError, SecAggError, TypeError, ValueError, struct.error):
            pass  # what cannot be written is no input
    return mutate_bytes(rng, message.encode(), others)


def _mutate_list(rng: Random, values: list[Any]) -> list[Any]:
    at = rng.randrange(len(values) + 1)
    match rng.randrange(6):
        case 0:
            return values[:at]
        case 1:
            return values[:at] + values[at + 1 :]
        case 2:
            return [*values[: at + 1], *values[at:]]
        case 3:
            return values[::-1]
        case _ if values:
            at %= len(values)
            return [*values[:at], mutate_value(rng, values[at]), *values[at + 1 :]]
        case _:
            return values


def _mutate_array(rng: Random, value: Any) -> Any:
    changed = value.copy()
    match rng.randrange(4):
        case 0:
            return changed[: rng.randrange(len(changed) + 1)]
        case 1:
            return np.concatenate([changed, changed])[: rng.randrange(2 * len(changed) + 1)]
        case 2 if len(changed) and changed.dtype.kind == "f":
            changed[rng.randrange(len(changed))] = rng.choice((math.nan, math.inf, 3e38, 0.0))
        case _:
            changed[...] = 0
    return changed
