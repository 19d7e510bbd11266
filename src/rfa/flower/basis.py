"""What nodes train or evaluate from, as a digest that the secure sum is bound to.

Everything that a server chooses for a node, and that an app may train by, counts: the type of the
message with its action, its group, and all records in the order in which they travel, which Flower
keeps: arrays with their names, types, shapes and bytes; every key of every other record with the
type and the value that it has, rfa's own record (task, example cap, weight and personal name) among
them. So does the run config, of which the server's side sees no more than the digests that nodes
send. A server that lets one node train from something else than all others could else read that
node's update off a sum in which the others are nothing.

What does not count are the ids and times of a message, which no two have in common, and what a node
has of its own: its node config, its data, and `context.state`. An app that keeps something there
which a message decides opens the same hole again, by messages after which no sum is asked for.
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
"""What of a message's content all nodes are told: all of it, unless it holds an address."""
Part = bytes | memoryview


class UnequalMessagesError(FlowerError, InvalidValueError):
    """The nodes of a round were to be sent different things."""


def basis_of(sent: bytes, run: bytes) -> bytes:
    """The digest of all that a node starts from: of what it is sent, and of its run config."""
    return basis_digest(sent, run)


def run_of(run_config: Mapping[str, Any]) -> bytes:
    """The digest of a run config by name: on its way through Flower it has no order."""
    return run_digest(*_entries(dict(sorted(run_config.items()))))


def model_of(content: RecordDict) -> bytes:
    """The digest of the numbers of a model alone: under other names or types it is the same."""
    return model_digest(values_of(content.array_records.values()).view(np.uint8).data)


def label_of(work: Work, layout: MetricLayout) -> bytes:
    """The digest of what the metrics of a device mean: their names, and how they are weighed."""
    entries = _entries(dataclasses.replace(work, again=False, opening=b"", unopened=0).record())
    layouts = (list(layout.names), list(layout.sizes))
    return meaning_digest(*entries, *(part for each in layouts for part in _value(each)))


def sent_of(message: Message, content: RecordDict) -> bytes:
    """The digest of a message, with the content that all nodes are told in place of its own."""
    return _Digests().sent(message, content)


def common_sent(messages: Iterable[tuple[int, Message]], told: Told) -> bytes:
    """The digest of what all nodes of a round are sent; each array is read once.

    Args:
        messages: the messages, each with its node.
        told: what of a message's content all nodes are told.

    Raises:
        UnequalMessagesError: naming two nodes that are sent different things, and what differs.
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
        """The digest of a message with a content."""
        return basis_digest(*_frame(message), *self._records(content))

    def _records(self, content: RecordDict) -> Iterator[Part]:
        """All records, in the order that they have."""
        for name, record in content.items():
            yield from (name.encode(), type(record).__name__.encode(), _number(len(record)))
            if isinstance(record, ArrayRecord):
                yield self._arrays(record)
            else:
                yield from _entries(record)

    def _arrays(self, record: ArrayRecord) -> bytes:
        if id(record) not in self._known:  # with the record, so that no other gets its id
            self._known[id(record)] = record, model_digest(*_arrays(record))
        return self._known[id(record)][1]


def _frame(message: Message) -> tuple[bytes, bytes]:
    """What is not in a message's content, and the same for all nodes."""
    return message.metadata.message_type.encode(), message.metadata.group_id.encode()


def _odd(one: tuple[Message, RecordDict], other: tuple[Message, RecordDict]) -> str:
    """In what two messages differ, with their contents: the first thing that does."""
    if _frame(one[0]) != _frame(other[0]):
        return "types of message, or groups"
    for name in sorted({*one[1], *other[1]}):
        if _single(*one, name) != _single(*other, name):
            return f"records {name!r}"
    return "orders of records"


def _single(message: Message, content: RecordDict, name: str) -> bytes | None:
    return sent_of(message, RecordDict({name: content[name]})) if name in content else None


def _arrays(record: ArrayRecord) -> Iterator[Part]:
    """The arrays of a record, in the order that they have."""
    for key, array in record.items():
        yield from (key.encode(), array.dtype.encode(), array.stype.encode())
        yield b"".join(_number(size) for size in array.shape)
        yield memoryview(array.data)


def _entries(record: Mapping[str, Any]) -> Iterator[Part]:
    """The keys and values of a record, in the order that they have."""
    for key, value in record.items():
        yield key.encode()
        yield from _value(value)


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
