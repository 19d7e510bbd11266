"""Messages over a Flower grid: sent to all nodes, with replies in any order."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from rfa.flower import records
from rfa.flower.arrays import own_copy
from rfa.flower.refusals import ABSTAINS, check_refusals
from rfa.secagg.messages.decoding import is_abstention
from rfa.secagg.server.requests import Outbox, Requests

FIRST_WAIT, LONGEST_WAIT = 0.02, 0.5
"""Seconds between two checks for replies: short at first, then longer."""
FAREWELL = 30.0
"""Seconds to wait until nodes have forgotten a round that ended early."""
AT_ONCE = 16
"""The number of messages in memory at a time."""
LOG = logging.getLogger("flwr")
_Item = TypeVar("_Item")
Addressed = tuple[int, Message]
"""The sender of the reply, which is a node or a device on it, and the message."""


def by_node(messages: Iterable[Message]) -> list[Addressed]:
    """Return messages with their nodes, each with its own content.

    Flower's strategies give all messages of a round the same content. If a strategy changes it for
    one node before it makes the message for the next, only that node gets the change.
    """
    addressed: list[Addressed] = []
    for message in messages:
        content = message.content.items()
        message.content = RecordDict({name: own_copy(record) for name, record in content})
        addressed.append((message.metadata.dst_node_id, message))
    return addressed


Work = Callable[["GridExchange", Outbox], Iterator[tuple[int, bytes]]]
"""Sends requests with other messages, and yields the replies."""


@dataclass
class GridExchange:
    """An exchange of the secure sum, in which late, lost or faulty nodes only lose their own place.

    Attributes:
        grid: Flower's grid.
        task: the task of the sum: train or evaluate.
        round: the round, for the logs of nodes.
        timeout: seconds to wait for the answers to a stage.
        refused: the last refusal of each node.
        grace: seconds to wait for the others once enough nodes have answered.
        joined: the nodes that have answered a stage.
        silent: those of them that did not answer a later one before the timeout.
        late: those that had not answered one when it closed before the timeout.
        abstained: those that abstained.
        work: sends the first requests in other messages, if they carry them.
    """

    grid: Grid
    task: str
    round: int
    timeout: float
    refused: dict[int, records.RecordError] = field(default_factory=dict[int, records.RecordError])
    grace: float = math.inf
    joined: set[int] = field(default_factory=set[int])
    silent: set[int] = field(default_factory=set[int])
    late: set[int] = field(default_factory=set[int])
    abstained: set[int] = field(default_factory=set[int])
    work: Work | None = None

    def __call__(self, outbox: Outbox) -> Iterator[tuple[int, bytes]]:
        """Send requests, and yield the replies that arrive in time, by node."""
        work, self.work = self.work, None
        if work:
            yield from work(self, outbox)
            return
        asked: set[int] = set()
        closing = Closing(outbox if isinstance(outbox, Requests) else None, self.grace)
        messages = self._messages(outbox, asked)
        for node, message in send(self.grid, messages, self.timeout, closing=closing):
            self.refused.pop(node, None)
            try:
                reply = records.read_reply(message)
            except records.RecordError as error:
                closing.count_spoilt()
                self.refused[node] = error
                LOG.info("\t> node %s does not answer: %s", node, error)
            else:
                asked.discard(node)
                self.joined.add(node)
                if is_abstention(reply):
                    self.abstained.add(node)
                yield node, reply
        lost = asked & self.joined
        slow = lost - self.refused.keys() if closing.early else set[int]()
        self.late |= slow
        self.silent |= lost - slow

    def hear_adverts(self, adverts: Mapping[int, bytes]) -> None:
        """Record the nodes that joined with keys in the reply to another message."""
        self.joined |= adverts.keys()
        self.abstained |= {node for node, reply in adverts.items() if is_abstention(reply)}

    def _messages(self, outbox: Outbox, asked: set[int]) -> Iterator[Addressed]:
        """Yield requests as messages, and record the nodes that are asked."""
        whom = outbox.whom if isinstance(outbox, Requests) else b""
        for node, request in outbox:
            asked.add(node)
            yield node, self.message_for(node, records.Stage(self.task, request, whom).content())

    def check_refusals(self, nodes: Iterable[int]) -> None:
        """End a round without a sum if all of its nodes refuse.

        Raises:
            AllRefusedError: if all of them do; the message says why.
        """
        said = dict.fromkeys(self.abstained, ABSTAINS)
        check_refusals(nodes, said | {node: str(why) for node, why in self.refused.items()})

    def tell_over(self, number: int, nodes: Iterable[int], *, opened: bool) -> None:
        """Tell nodes that a round of the sum has ended early, and wait a little for them."""
        content = records.Over(self.task, number, opened).content()
        messages = [(node, self.message_for(node, content)) for node in nodes]
        for _ in send(self.grid, messages, min(self.timeout, FAREWELL)):
            pass

    def message_for(self, node: int, content: RecordDict) -> Message:
        """Return a message that expires after the timeout.

        It has the type of the task, for which the app has a function.
        """
        return Message(
            content,
            dst_node_id=node,
            message_type=self.task,
            ttl=self.timeout,
            group_id=str(self.round),
        )


@dataclass
class Closing:
    """Closes a stage before its timeout: a grace time after enough good answers.

    Attributes:
        requests: the requests, with the number of answers that are enough; None to wait for all.
        grace: seconds to wait for the others then.
        early: whether the stage closes before its timeout.
    """

    requests: Requests | None = None
    grace: float = math.inf
    early: bool = False

    def count_spoilt(self) -> None:
        """Count an invalid answer."""
        if self.requests:
            self.requests.spoilt += 1

    def end(self, answers: int, now: float, end: float) -> float:
        """Return when to stop waiting, after this number of answers."""
        stage = self.requests
        if stage is None or answers - stage.spoilt < stage.enough or now + self.grace >= end:
            return end
        self.early = True
        return now + self.grace


def send(
    grid: Grid,
    messages: Iterable[Addressed],
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    closing: Closing | None = None,
) -> Iterator[tuple[int, Message]]:
    """Send messages, and yield each reply with its sender when it arrives, until the timeout.

    The timeout is `timeout` seconds after all are sent, or sooner, as `closing` says.
    """
    waiting = _push(grid, messages)
    asked, began, closing = len(waiting), clock(), closing or Closing()
    end, wait = began + timeout, FIRST_WAIT
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
        now = clock()
        end = closing.end(asked - len(waiting), now, end)
        if now >= end:
            LOG.info("\t> %s nodes did not answer within %.3g s", len(waiting), now - began)
            return
        wait = FIRST_WAIT if arrived else min(2 * wait, LONGEST_WAIT)
        time.sleep(min(wait, max(0.0, end - clock())))


def _push(grid: Grid, messages: Iterable[Addressed]) -> dict[str, int]:
    """Send messages; return the sender of the reply for each accepted message, by its id."""
    waiting: dict[str, int] = {}
    for some in _groups(messages):
        sent: Iterable[str | None] = grid.push_messages([message for _, message in some])
        waiting.update((key, name) for key, (name, _) in zip(sent, some, strict=False) if key)
    return waiting


def _groups(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    rest = iter(items)
    while some := list(itertools.islice(rest, AT_ONCE)):
        yield some
