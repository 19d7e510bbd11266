"""What nodes train or evaluate from, as a digest that the secure sum is bound to.

Everything that a node is sent counts: arrays with their names, types, shapes and bytes, in order;
every key of every other record with the type and the value that it has, rfa's own record (task,
example cap, weight and personal name) among them. A server that sends one node another model than
all others could else read that node's update off a sum in which the others are nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from flwr.app import ArrayRecord, Message, RecordDict

from rfa.errors import InvalidValueError
from rfa.flower.errors import FlowerError
from rfa.secagg.transcript import basis_digest, model_digest

Told = Callable[[RecordDict], RecordDict]
"""What of a message's content all nodes are told: all of it, unless it holds an address."""
Part = bytes | memoryview


class UnequalMessagesError(FlowerError, InvalidValueError):
    """The nodes of a round were to be sent different things."""


def basis_of(content: RecordDict) -> bytes:
    """The digest of all that a node is sent."""
    return _basis(content, model_of(content))


def model_of(content: RecordDict) -> bytes:
    """The digest of the arrays alone."""
    return model_digest(*_arrays(content))


def common_basis(messages: Iterable[tuple[int, Message]], told: Told) -> bytes:
    """The digest of what all nodes of a round are sent; each array is read once.

    Args:
        messages: the messages, each with its node.
        told: what of a message's content all nodes are told.

    Raises:
        UnequalMessagesError: naming two nodes that are sent different things, and the record.
    """
    models: dict[tuple[tuple[str, int], ...], tuple[RecordDict, bytes]] = {}
    first: tuple[int, RecordDict, bytes] | None = None
    for node, message in messages:
        content = told(message.content)
        if first and content is first[1]:
            continue
        same = tuple((name, id(record)) for name, record in content.array_records.items())
        if same not in models:  # with the content, so that no other record gets its id
            models[same] = content, model_of(content)
        basis = _basis(content, models[same][1])
        if first is None:
            first = node, content, basis
        elif basis != first[2]:
            odd = _odd(first[1], content)
            msg = (
                f"nodes {first[0]} and {node} are sent different records {odd!r}: all nodes of a "
                "round must be sent the same model and configs, or a sum could be about one of "
                "them alone; what differs between nodes belongs into their node configs"
            )
            raise UnequalMessagesError(msg)
    if first is None:
        msg = "a round without messages has no basis: let configure_train return some"
        raise UnequalMessagesError(msg)
    return first[2]


def _basis(content: RecordDict, model: bytes) -> bytes:
    return basis_digest(model, *_settings(content))


def _odd(one: RecordDict, other: RecordDict) -> str:
    """The first record in which two contents differ."""
    names = sorted({*one, *other})
    parts = ([_single(content, name) for name in names] for content in (one, other))
    return next((name for name, a, b in zip(names, *parts, strict=True) if a != b), "(their order)")


def _single(content: RecordDict, name: str) -> bytes | None:
    return basis_of(RecordDict({name: content[name]})) if name in content else None


def _arrays(content: RecordDict) -> Iterator[Part]:
    """The arrays of all records: these by name, in a record in the order that it has."""
    for name in sorted(content.array_records):
        record: ArrayRecord = content.array_records[name]
        yield from (name.encode(), _number(len(record)))
        for key, array in record.items():
            yield from (key.encode(), array.dtype.encode(), array.stype.encode())
            yield b"".join(_number(size) for size in array.shape)
            yield memoryview(array.data)


def _settings(content: RecordDict) -> Iterator[Part]:
    """All other records, and the values in them, by name."""
    others: dict[str, Any] = {**content.config_records, **content.metric_records}
    for name in sorted(others):
        record = others[name]
        yield from (name.encode(), type(record).__name__.encode(), _number(len(record)))
        for key in sorted(record):
            yield key.encode()
            yield from _value(record[key])


def _value(value: Any) -> Iterator[Part]:
    """A value, after its type."""
    match value:
        case bool():
            yield from (b"bool", bytes([value]))
        case int():
            yield from (b"int", str(int(value)).encode())
        case float():
            yield from (b"float", struct.pack("<d", value))
        case str():
            yield from (b"str", value.encode())
        case bytes():
            yield from (b"bytes", value)
        case _:
            several = list(cast("Iterable[Any]", value))
            yield from (b"list", _number(len(several)))
            for each in several:
                yield from _value(each)


def _number(value: int) -> bytes:
    return value.to_bytes(8, "big")
