"""The bytes of messages: bounded, canonical, versioned.

A message is b"rfa", the version, its kind and three zeros, and its fields in order, with nothing
between or after them. Whole numbers are little-endian and of fixed width; lists and strings of
bytes are counted first, and a count is checked against what is left before anything is allocated.
There is one encoding of each message, and decoding anything else raises a `MessageError`.
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
    """Takes bytes apart from front to back, and never looks beyond their end."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._at

    def take(self, size: int) -> memoryview:
        """The next bytes, not copied."""
        if size > self.left:
            msg = f"a message ends too soon: {size} bytes are missing from byte {self._at} on"
            raise TruncatedError(msg)
        start = self._at
        self._at += size
        return self._data[start : self._at]

    def count(self, most: int, width: int) -> int:
        """A count of entries of some width, checked against what is left."""
        count = int.from_bytes(self.take(4), "little")
        _check_most(count, most)
        if count * width > self.left:
            msg = f"a message ends too soon: {count} entries of {width} bytes do not fit"
            raise TruncatedError(msg)
        return count


Buffer = bytes | memoryview


@dataclass(frozen=True)
class Field:
    """How one value is written and read.

    Attributes:
        write: its bytes.
        read: the value that comes next.
        width: the least number of bytes it takes.
        pieces: its bytes in pieces that need not be copied, where that saves something.
    """

    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]
    width: int
    pieces: Callable[[Any], list[Buffer]] | None = None


def integer(size: int) -> Field:
    """A whole number of some bytes."""
    return Field(
        lambda value: value.to_bytes(size, "little"),
        lambda reader: int.from_bytes(reader.take(size), "little"),
        size,
    )


def fixed(size: int) -> Field:
    """So many bytes."""

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
    """Some bytes, no more than so many."""

    def write(value: bytes) -> bytes:
        _check_most(len(value), most)
        return len(value).to_bytes(4, "little") + value

    return Field(write, lambda reader: bytes(reader.take(reader.count(most, 1))), 4)


def many(entry: Field, most: int = MANY) -> Field:
    """A tuple of entries, no more than so many."""

    def write(values: tuple[Any, ...]) -> bytes:
        _check_most(len(values), most)
        return len(values).to_bytes(4, "little") + b"".join(map(entry.write, values))

    def read(reader: Reader) -> tuple[Any, ...]:
        return tuple(entry.read(reader) for _ in range(reader.count(most, entry.width)))

    return Field(write, read, 4)


def rows(size: int, most: int = MANY) -> Field:
    """A tuple of strings of bytes, all of one size: a fast `many(fixed(size))`."""

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
    """A tuple of values, each of its own kind."""

    def write(values: tuple[Any, ...]) -> bytes:
        return b"".join(field.write(value) for field, value in zip(fields, values, strict=True))

    def read(reader: Reader) -> tuple[Any, ...]:
        return tuple(field.read(reader) for field in fields)

    return Field(write, read, sum(field.width for field in fields))


def record(kind: type[Any], *fields: Field) -> Field:
    """A dataclass, field by field."""
    row = group(*fields)
    names = [item.name for item in dataclasses.fields(kind)]
    return Field(
        lambda value: row.write(tuple(getattr(value, name) for name in names)),
        lambda reader: kind(*row.read(reader)),
        row.width,
    )


def array(kind: str) -> Field:
    """A vector of numbers of a numpy type; what is read is a view of the message."""
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
    """A message of some kind."""
    return b"".join([_header(kind), *_pieces(fields, values)])


class ReservedMessage:
    """A message of a kind of which one field, an array of words, is written in place.

    Nothing is copied: `finish` gives the memory in which the words were written.
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
            values: their values for now.
            count: how many words the array has.
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
        """The words; whoever holds them lets go of them before `finish`."""
        return np.frombuffer(self._bytes.getbuffer()[self._start : self._end], WORD)

    def finish(self, values: tuple[Any, ...]) -> bytes:
        """The bytes of the message, with final values before the array, of the same size."""
        self._bytes.seek(0)
        self._write(values)
        return self._bytes.getvalue()

    def _write(self, values: tuple[Any, ...]) -> None:
        self._bytes.write(_header(self._kind))
        self._bytes.writelines(_pieces(self._fields, values))


def _header(kind: int) -> bytes:
    """What a message begins with: 8 bytes, so that numbers in it are where processors like them."""
    return MAGIC + bytes([VERSION, kind]) + PADDING


def _pieces(fields: tuple[Field, ...], values: tuple[Any, ...]) -> list[Buffer]:
    pieces: list[Buffer] = []
    for field, value in zip(fields, values, strict=True):
        pieces += field.pieces(value) if field.pieces else [field.write(value)]
    return pieces


def read_message(
    data: bytes, kinds: dict[int, tuple[Field, ...]], most: int = LARGEST
) -> tuple[int, tuple[Any, ...]]:
    """The kind and the values of a message.

    Raises:
        MessageError: if it is none; nothing larger than the bytes themselves is allocated.
    """
    if len(data) > most:
        msg = f"a message of {len(data)} bytes is longer than {most}"
        raise OversizedError(msg)
    reader = Reader(data)
    if bytes(reader.take(len(MAGIC))) != MAGIC:
        msg = "the bytes are no message of rfa"
        raise UnknownVersionError(msg)
    version, kind = reader.take(2)
    if version != VERSION:
        msg = f"the message is of version {version}, and this is version {VERSION}"
        raise UnknownVersionError(msg)
    if kind not in kinds:
        msg = f"no message is of kind {kind}"
        raise UnknownKindError(msg)
    if bytes(reader.take(len(PADDING))) != PADDING:
        msg = "the three bytes after the kind of a message must be zero"
        raise NotCanonicalError(msg)
    values = tuple(field.read(reader) for field in kinds[kind])
    if reader.left:
        msg = f"a message has {reader.left} bytes too many"
        raise OversizedError(msg)
    return kind, values
