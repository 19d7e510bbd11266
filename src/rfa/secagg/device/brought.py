"""The input of a device to a round, as its store keeps it."""

from __future__ import annotations

from rfa.secagg.fixed_point import Contribution
from rfa.secagg.messages.codec import KEY, REAL, U8, array, many, read_message, rows, write_message
from rfa.secagg.messages.opening import MAX_METRICS, NO_BASIS

_KIND = 201
_LAYOUT = (U8, U8, REAL, many(REAL, MAX_METRICS), KEY, rows(32, 1), array("<f4"))
_ABSENT = (0, 0, 0.0, (), NO_BASIS, (), ())


def write_brought(contribution: Contribution | None) -> bytes:
    """Return the bytes of an input."""
    if contribution is None:
        return write_message(_KIND, _LAYOUT, _ABSENT)
    brought = contribution
    mark = () if brought.mark is None else (brought.mark,)
    said = (brought.weight, brought.metrics, brought.basis, mark, brought.update)
    return write_message(_KIND, _LAYOUT, (1, int(brought.equal_weights), *said))


def read_brought(stored: bytes) -> Contribution | None:
    """Return the input from its bytes.

    Raises:
        MessageError, ValueError: if they are damaged.
    """
    _, (there, equal, *said) = read_message(stored, {_KIND: _LAYOUT})
    if not there:
        return None
    weight, metrics, basis, mark, update = said
    return Contribution(update, weight, metrics, basis, *mark, equal_weights=bool(equal))
