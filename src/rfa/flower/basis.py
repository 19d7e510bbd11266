"""The digest of everything that nodes train or evaluate from, to which the secure sum is bound.

The digest covers everything that a server chooses for a node and that an app may use in training.
This includes the type of the message with its action, its group, and all records in their order,
which Flower keeps: arrays with their names, types, shapes and bytes, and every key of every other
record with its type and value, including rfa's own record (task, example cap, weight and personal
name). It also covers the run config, of which the server only sees the digests that nodes send.
Without it, a server could let one node train from something else than all others, and read that
node's update off a sum in which the others contribute nothing.

The digest does not cover the ids and times of a message, which always differ, nor what a node has
itself: its node config, its data, and `context.state`. An app that keeps something in its state
that a message decides opens the same hole again, through messages that no sum follows.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict

from rfa.errors import InvalidValueError
from rfa.flower.arrays import values_of
from rfa.flower.errors import FlowerError
from rfa.flower.metrics import MetricLayout
from rfa.flower.records import Work
from rfa.secagg.transcript import basis_digest, meaning_digest, model_digest, run_digest

Told = Callable[[RecordDict], RecordDict]
"""Returns the part of a message's content that all nodes get: all of it, except an address."""
Part = bytes | memoryview


class UnequalMessagesError(FlowerError, InvalidValueError):
    """The nodes of a round would get different messages."""


def basis_of(sent: bytes, run: bytes) -> bytes:
    """Return the digest of all that a node starts from: its message, and its run config."""
    return basis_digest(sent, run)


def run_of(run_config: Mapping[str, Any]) -> bytes:
    """Return the digest of a run config, sorted by name because Flower does not keep its order."""
    return run_digest(*_entries(dict(sorted(run_config.items()))))


def model_of(content: RecordDict) -> bytes:
    """Return the digest of the numbers of a model, without their names and types."""
    return model_digest(values_of(content.array_records.values()).view(np.uint8).data)


def label_of(work: Work, layout: MetricLayout) -> bytes:
    """Return the digest of what a device's metrics mean: their names, and how they are weighted."""
    entries = _entries(dataclasses.replace(work, again=False, opening=b"", unopened=0).record())
    layouts = (list(layout.names), list(layout.sizes))
    return meaning_digest(*entries, *(part for each in layouts for part in _value(each)))


def sent_of(message: Message, content: RecordDict) -> bytes:
    """Return the digest of a message, with the content that all nodes get in place of its own."""
    return _Digests().sent(message, content)


def common_sent(messages: Iterable[tuple[int, Message]], told: Told) -> bytes:
    """Return the digest of what all nodes of a round get, reading each array once.

    Args:
        messages: the messages, each with its node.
        told: returns the part of a message's content that all nodes get.

    Raises:
        UnequalMessagesError: if two nodes get different messages; it names them, and what differs.
    """
    digests = _Digests()
    first: tuple[int, Message, RecordDict, bytes] | None = None
    for node, message in messages:
        content = told(message.content)
        sent = digests.sent(message, content)
        if first is None:
            first = node, message, content, sent
        elif sent != first[3]:
            odd = _odd(first[1:3], (message, content))
            msg = (
                f"nodes {first[0]} and {node} are sent different {odd}: all nodes of a "
                "round must be sent the same model and configs, or a sum could be about one of "
                "them alone; what differs between nodes belongs into their node configs"
            )
            raise UnequalMessagesError(msg)
    if first is None:
        msg = "a round without messages has no basis: let configure_train return some"
        raise UnequalMessagesError(msg)
    return first[3]


class _Digests:
    """Digests of messages that may share records: each ArrayRecord is read once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[ArrayRecord, bytes]] = {}

    def sent(self, message: Message, content: RecordDict) -> bytes:
        """Return the digest of a message with a content."""
        return basis_digest(*_frame(message), *self._records(content))

    def _records(self, content: RecordDict) -> Iterator[Part]:
        """Yield all records, in their order."""
        for name, record in content.items():
            yield from (name.encode(), type(record).__name__.encode(), _number(len(record)))
            if isinstance(record, ArrayRecord):
                yield self._arrays(record)
            else:
                yield from _entries(record)

    def _arrays(self, record: ArrayRecord) -> bytes:
        if id(record) not in self._known:  # kept with the record, so no other gets its id
            self._known[id(record)] = record, model_digest(*_arrays(record))
        return self._known[id(record)][1]


def _frame(message: Message) -> tuple[bytes, bytes]:
    """Return the part of a message outside its content, which is the same for all nodes."""
    return message.metadata.message_type.encode(), message.metadata.group_id.encode()


def _odd(one: tuple[Message, RecordDict], other: tuple[Message, RecordDict]) -> str:
    """Return the first difference between two messages with their contents."""
    if _frame(one[0]) != _frame(other[0]):
        return "types of message, or groups"
    for name in sorted({*one[1], *other[1]}):
        if _single(*one, name) != _single(*other, name):
            return f"records {name!r}"
    return "orders of records"


def _single(message: Message, content: RecordDict, name: str) -> bytes | None:
    return sent_of(message, RecordDict({name: content[name]})) if name in content else None


def _arrays(record: ArrayRecord) -> Iterator[Part]:
    """Yield the arrays of a record, in their order."""
    for key, array in record.items():
        yield from (key.encode(), array.dtype.encode(), array.stype.encode())
        yield b"".join(_number(size) for size in array.shape)
        yield memoryview(array.data)


def _entries(record: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the keys and values of a record, in their order."""
    for key, value in record.items():
        yield key.encode()
        yield from _value(value)


def _value(value: Any) -> Iterator[Part]:
    """Yield a value, after its type."""
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
