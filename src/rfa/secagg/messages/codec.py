"""The bytes of messages: bounded, canonical, versioned.

A message is b"rfa", the version, its kind and three zeros, and its fields in order, with nothing
between or after them. Whole numbers are little-endian with a fixed width. Lists and byte strings
begin with their count, which is checked against the bytes left before anything is allocated. Each
message has one encoding, and decoding anything else raises a `MessageError`.
"""

from __future__ import annotations

import dataclasses
import io
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rfa.secagg.errors import (
    NotCanonicalError,
    OversizedError,
    TruncatedError,
    UnknownKindError,
    UnknownVersionError,
)
from rfa.secagg.words import WORD, Words

MAGIC, PADDING = b"rfa", bytes(3)
VERSION = 5
MANY = 1 << 20
"""The most entries of any list."""
LARGEST = 1 << 33
"""The most bytes of any message."""


class Reader:
    """Reads bytes from front to back, and never beyond their end."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    @property
    def left(self) -> int:
        """The number of bytes left."""
        return len(self._data) - self._at

    def take(self, size: int) -> memoryview:
        """Return the next bytes without a copy."""
        if size > self.left:
            msg = f"a message ends too soon: {size} bytes are missing from byte {self._at} on"
            raise TruncatedError(msg)
        start = self._at
        self._at += size
        return self._data[start : self._at]

    def count(self, most: int, width: int) -> int:
        """Return a count of entries of some width, checked against the bytes left."""
        count = int.from_bytes(self.take(4), "little")
        _check_most(count, most)
        if count * width > self.left:
            msg = f"a message ends too soon: {count} entries of {width} bytes do not fit"
            raise TruncatedError(msg)
        return count


Buffer = bytes | memoryview


@dataclass(frozen=True)
class Field:
    """The way one value is written and read.

    Attributes:
        write: returns the bytes of a value.
        read: reads the next value.
        width: the least number of bytes of a value.
        pieces: returns the bytes in pieces without a copy, where that saves time.
    """

    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]
    width: int
    pieces: Callable[[Any], list[Buffer]] | None = None


def integer(size: int) -> Field:
    """Return the field of a whole number with this many bytes."""
    return Field(
        lambda value: value.to_bytes(size, "little"),
        lambda reader: int.from_bytes(reader.take(size), "little"),
        size,
    )


def fixed(size: int) -> Field:
    """Return the field of a byte string of this size."""

    def write(value: bytes) -> bytes:
        if len(value) != size:
            msg = f"{size} bytes are wanted, not {len(value)}"
            raise NotCanonicalError(msg)
        return value

    return Field(write, lambda reader: bytes(reader.take(size)), size)


def _check_most(count: int, most: int) -> None:
    if count > most:
        msg = f"a list of {count} entries is longer than {most}"
        raise OversizedError(msg)


def blob(most: int) -> Field:
    """Return the field of a byte string of at most this size."""

    def write(value: bytes) -> bytes:
        _check_most(len(value), most)
        return len(value).to_bytes(4, "little") + value

    return Field(write, lambda reader: bytes(reader.take(reader.count(most, 1))), 4)


def many(entry: Field, most: int = MANY) -> Field:
    """Return the field of a tuple of at most this many entries."""

    def write(values: tuple[Any, ...]) -> bytes:
        _check_most(len(values), most)
        return len(values).to_bytes(4, "little") + b"".join(map(entry.write, values))

    def read(reader: Reader) -> tuple[Any, ...]:
        return tuple(entry.read(reader) for _ in range(reader.count(most, entry.width)))

    return Field(write, read, 4)


def rows(size: int, most: int = MANY) -> Field:
    """Return the field of byte strings that all have one size: a fast `many(fixed(size))`."""

    def write(values: tuple[bytes, ...]) -> bytes:
        _check_most(len(values), most)
        joined = b"".join(values)
        if any(len(value) != size for value in values):
            msg = f"{size} bytes are wanted for each of {len(values)} entries"
            raise NotCanonicalError(msg)
        return len(values).to_bytes(4, "little") + joined

    def read(reader: Reader) -> tuple[bytes, ...]:
        joined = bytes(reader.take(size * reader.count(most, size)))
        return tuple([joined[at : at + size] for at in range(0, len(joined), size)])

    return Field(write, read, 4)


def group(*fields: Field) -> Field:
    """Return the field of a tuple of values, each with its own field."""

    def write(values: tuple[Any, ...]) -> bytes:
        return b"".join(field.write(value) for field, value in zip(fields, values, strict=True))

    def read(reader: Reader) -> tuple[Any, ...]:
        return tuple(field.read(reader) for field in fields)

    return Field(write, read, sum(field.width for field in fields))


def record(kind: type[Any], *fields: Field) -> Field:
    """Return the field of a dataclass, field by field."""
    row = group(*fields)
    names = [item.name for item in dataclasses.fields(kind)]
    return Field(
        lambda value: row.write(tuple(getattr(value, name) for name in names)),
        lambda reader: kind(*row.read(reader)),
        row.width,
    )


def array(kind: str) -> Field:
    """Return the field of a vector of a numpy type; reading gives a view of the message."""
    dtype = np.dtype(kind)

    def pieces(value: Any) -> list[Buffer]:
        numbers = np.ascontiguousarray(value, dtype)
        return [len(numbers).to_bytes(4, "little"), numbers.data.cast("B")]

    def read(reader: Reader) -> Any:
        count = reader.count((1 << 32) - 1, dtype.itemsize)
        return np.frombuffer(reader.take(count * dtype.itemsize), dtype)

    return Field(lambda value: b"".join(pieces(value)), read, 4, pieces)


def _read_real(reader: Reader) -> float:
    (value,) = struct.unpack("<d", reader.take(8))
    if not math.isfinite(value) or (value == 0 and math.copysign(1, value) < 0):
        msg = f"a number must be finite and zero must be positive, not {value}"
        raise NotCanonicalError(msg)
    return value


U8, U32, U64, U128 = integer(1), integer(4), integer(8), integer(16)
REAL = Field(lambda value: struct.pack("<d", value + 0.0), _read_real, 8)
KEY = fixed(32)


def write_message(kind: int, fields: tuple[Field, ...], values: tuple[Any, ...]) -> bytes:
    """Return the bytes of a message of some kind."""
    return b"".join([_header(kind), *_pieces(fields, values)])


class ReservedMessage:
    """A message with one array of words that is written in place.

    Nothing is copied: `finish` returns the memory that holds the words.
    """

    def __init__(
        self,
        kind: int,
        fields: tuple[Field, ...],
        values: tuple[Any, ...],
        count: int,
        *,
        rest: bytes = b"",
    ) -> None:
        """Lay out a message.

        Args:
            kind: its kind.
            fields: the fields before the array.
            values: their provisional values.
            count: the number of words in the array.
            rest: the bytes after it.
        """
        self._kind, self._fields = kind, fields
        self._bytes = io.BytesIO()
        self._write(values)
        self._bytes.write(count.to_bytes(4, "little"))
        self._start = self._bytes.tell()
        self._end = self._start + count * WORD.itemsize
        if count:
            self._bytes.seek(self._end - 1)
            self._bytes.write(b"\0")
        self._bytes.write(rest)

    def words(self) -> Words:
        """Return the words; release the array before `finish`."""
        return np.frombuffer(self._bytes.getbuffer()[self._start : self._end], WORD)

    def finish(self, values: tuple[Any, ...]) -> bytes:
        """Return the bytes of the message, with final values of the same size before the array."""
        self._bytes.seek(0)
        self._write(values)
        return self._bytes.getvalue()

    def _write(self, values: tuple[Any, ...]) -> None:
        self._bytes.write(_header(self._kind))
        self._bytes.writelines(_pieces(self._fields, values))


def _header(kind: int) -> bytes:
    """Return the first 8 bytes of a message; this length keeps the numbers after it aligned."""
    return MAGIC + bytes([VERSION, kind]) + PADDING


def _pieces(fields: tuple[Field, ...], values: tuple[Any, ...]) -> list[Buffer]:
    pieces: list[Buffer] = []
    for field, value in zip(fields, values, strict=True):
        pieces += field.pieces(value) if field.pieces else [field.write(value)]
    return pieces


def read_message(
    data: bytes, kinds: dict[int, tuple[Field, ...]], most: int = LARGEST
) -> tuple[int, tuple[Any, ...]]:
    """Return the kind and the values of a message.

    Raises:
        MessageError: if it is not valid. Nothing larger than the bytes themselves is allocated.
    """
    if len(data) > most:
        msg = f"a message of {len(data)} bytes is longer than {most}"
        raise OversizedError(msg)
    reader = Reader(data)
    if bytes(reader.take(len(MAGIC))) != MAGIC:
        msg = "the bytes are not a message of rfa"
        raise UnknownVersionError(msg)
    version, kind = reader.take(2)
    if version != VERSION:
        msg = f"the message is of version {version}, and this is version {VERSION}"
        raise UnknownVersionError(msg)
    if kind not in kinds:
        msg = f"there is no message of kind {kind}"
        raise UnknownKindError(msg)
    if bytes(reader.take(len(PADDING))) != PADDING:
        msg = "the three bytes after the kind of a message must be zero"
        raise NotCanonicalError(msg)
    values = tuple(field.read(reader) for field in kinds[kind])
    if reader.left:
        msg = f"a message has {reader.left} bytes too many"
        raise OversizedError(msg)
    return kind, values
