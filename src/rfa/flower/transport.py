"""Messages over a Flower grid: sent to all, and taken as they come."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from rfa.flower import records
from rfa.secagg.server.machine import Outbox

FIRST_WAIT, LONGEST_WAIT = 0.02, 0.5
"""Seconds between two looks for replies: short at first, then longer."""
FAREWELL = 30.0
"""Seconds to wait until nodes have forgotten a round that ended early."""
AT_ONCE = 16
"""Messages in memory at once."""
LOG = logging.getLogger("flwr")
_Item = TypeVar("_Item")
Addressed = tuple[int, Message]
"""Whom the reply will be from, a node or a device on it, and the message."""


def by_node(messages: Iterable[Message]) -> list[Addressed]:
    """Messages, each with its node."""
    return [(message.metadata.dst_node_id, message) for message in messages]


@dataclass
class GridExchange:
    """An exchange of the secure sum: nodes that are late, gone or talk nonsense cost themselves.

    Attributes:
        grid: Flower's grid.
        task: over what the sum is: train or evaluate.
        round: the round, for the logs of nodes.
        timeout: seconds to wait for the answers to a stage.
        refused: what nodes said in place of an answer, the last of each.
    """

    grid: Grid
    task: str
    round: int
    timeout: float
    refused: dict[int, records.RecordError] = field(default_factory=dict[int, records.RecordError])

    def __call__(self, outbox: Outbox) -> Iterator[tuple[int, bytes]]:
        """Send requests, and bring the replies that come in time, by node."""
        messages = (
            (node, self.message_for(node, records.Stage(self.task, request).content()))
            for node, request in outbox
        )
        for node, message in send(self.grid, messages, self.timeout):
            self.refused.pop(node, None)
            try:
                yield node, records.read_reply(message)
            except records.RecordError as error:
                self.refused[node] = error
                LOG.info("\t> node %s does not answer: %s", node, error)

    def tell_over(self, number: int, nodes: Iterable[int], *, opened: bool) -> None:
        """Tell nodes that a round of the sum has ended early, and wait a little for them."""
        content = records.Over(self.task, number, opened).content()
        messages = [(node, self.message_for(node, content)) for node in nodes]
        for _ in send(self.grid, messages, min(self.timeout, FAREWELL)):
            pass

    def message_for(self, node: int, content: RecordDict) -> Message:
        """A message that nobody delivers when its time is over."""
        return Message(
            content,
            dst_node_id=node,
            message_type=records.TRAIN,
            ttl=self.timeout,
            group_id=str(self.round),
        )


class SteadyGrid:
    """A grid whose list of nodes does not change while a round is configured.

    Flower's sampling waits without end for a node that left after it was counted.
    """

    def __init__(self, grid: Grid, nodes: list[int]) -> None:
        """Take a grid, and the nodes that were there."""
        self._grid, self._nodes = grid, nodes

    def get_node_ids(self) -> list[int]:
        """The nodes that were there."""
        return list(self._nodes)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the grid's."""
        return getattr(self._grid, name)


def send(
    grid: Grid,
    messages: Iterable[Addressed],
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[int, Message]]:
    """Send messages, and give each reply as soon as it is there, by name, until the time is up."""
    waiting = _push(grid, messages)
    end, wait = clock() + timeout, FIRST_WAIT
    while waiting:
        arrived = 0
        for some in _groups(list(waiting)):
            for message in grid.pull_messages(some):
                name = waiting.pop(message.metadata.reply_to_message_id, None)
                if name is not None:
                    arrived += 1
                    yield name, message
        if not waiting:
            return
        if clock() >= end:
            LOG.info("\t> %s nodes did not answer within %g s", len(waiting), timeout)
            return
        wait = FIRST_WAIT if arrived else min(2 * wait, LONGEST_WAIT)
        time.sleep(min(wait, max(0.0, end - clock())))


def _push(grid: Grid, messages: Iterable[Addressed]) -> dict[str, int]:
    """Send messages: for each that was taken, whom its reply will be from, by its id."""
    waiting: dict[str, int] = {}
    for some in _groups(messages):
        sent: Iterable[str | None] = grid.push_messages([message for _, message in some])
        waiting.update((key, name) for key, (name, _) in zip(sent, some, strict=False) if key)
    return waiting


def _groups(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    rest = iter(items)
    while some := list(itertools.islice(rest, AT_ONCE)):
        yield some
