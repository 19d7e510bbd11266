"""Rounds that begin with their first sum, among nodes that sent their keys in the round before.

The message that asks a node to train or evaluate also carries the roster of the secure sum and its
first query, and the node answers with its masked input. This requires the same nodes as in the
round before, with the same metrics and run config, one part, and a semi-honest server. If it fails
before a sum is opened, the server asks the nodes again, and they send new keys with their results.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from rfa.flower import records
from rfa.flower.parts import Cohort, PartOracle
from rfa.flower.transport import Addressed, GridExchange, send
from rfa.secagg.messages.decoding import is_abstention
from rfa.secagg.messages.round import DeviceKeys
from rfa.secagg.server.requests import Outbox, Requests

LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class FirstWork:
    """Messages that ask nodes for work and carry the first requests of a sum.

    Attributes:
        messages: the messages, by node.
        like: the metrics and run config that a node must have for its masked input to count.
        timeout: seconds to wait.
    """

    messages: Mapping[int, Message]
    like: records.Ready
    timeout: float

    def __call__(self, exchange: GridExchange, outbox: Outbox) -> Iterator[tuple[int, bytes]]:
        """Send them with the requests, and yield the masked inputs; other nodes are lost.

        Only a node that refuses has certainly masked nothing. After another error, nobody knows.
        """
        exchange.late |= self.messages.keys()
        for node, message in send(exchange.grid, self._addressed(outbox), self.timeout):
            try:
                found = records.read_ready(message, self.like.dim)
                reply = records.read_reply(message)
            except records.RecordError as error:
                if isinstance(error, records.RefusedError):
                    exchange.joined.discard(node)
                exchange.refused[node] = error
                LOG.info("\t> node %s is not ready: %s", node, error)
                continue
            if found != self.like:
                LOG.info("\t> node %s has other metrics, or another run config", node)
                continue
            exchange.late.discard(node)
            if is_abstention(reply):
                exchange.abstained.add(node)
            yield node, reply
        there = len(self.messages) - len(exchange.late)
        LOG.info("%s: %s of %s nodes are ready", exchange.task, there, len(self.messages))

    def _addressed(self, outbox: Outbox) -> Iterator[Addressed]:
        """Yield copies of the messages, so that the originals can be sent if this fails."""
        whom = outbox.whom if isinstance(outbox, Requests) else b""
        for node, request in outbox:
            message = self.messages[node]
            record = records.First(request, whom).record()
            content = RecordDict({**message.content, records.FIRST: record})
            about = message.metadata
            yield (
                node,
                Message(
                    content,
                    dst_node_id=about.dst_node_id,
                    message_type=about.message_type,
                    ttl=about.ttl,
                    group_id=about.group_id,
                ),
            )


@dataclass(frozen=True)
class Prepared:
    """Nodes that may begin the next round with its first sum.

    Attributes:
        cohort: the cohort of the round before.
        keys: their keys for the next one.
    """

    cohort: Cohort
    keys: Mapping[int, DeviceKeys] = field(repr=False)

    def fits(self, nodes: Collection[int], masked_sums: int) -> bool:
        """Return whether all of these nodes have keys for this number of masked sums."""
        counts = {len(keys.mask_keys) for keys in self.keys.values()}
        return set(nodes) == set(self.keys) and counts == {masked_sums}


@dataclass
class KeysAhead:
    """The server's keys for the next round of each task, for one use.

    Attributes:
        ask: whether to ask nodes for them.
    """

    ask: bool = False
    _grid: Grid | None = None
    _prepared: dict[str, Prepared] = field(default_factory=dict[str, Prepared])
    _worth: dict[str, int] = field(default_factory=dict[str, int])

    def begin(self, grid: Grid) -> None:
        """Begin a run: keep the keys if the grid is the same, and drop them otherwise."""
        if grid is not self._grid:
            self._grid = grid
            self.forget()

    def forget(self) -> None:
        """Drop all keys."""
        self._prepared, self._worth = {}, {}

    def keep(self, cohort: Cohort, oracles: Sequence[PartOracle]) -> None:
        """Keep the keys that nodes sent in a round of one part."""
        if len(oracles) == 1 and oracles[0].keys_ahead:
            self._prepared[cohort.task] = Prepared(cohort, dict(oracles[0].keys_ahead))

    def take(self, task: str, nodes: Collection[int], masked_sums: int) -> Prepared | None:
        """Return and drop the keys of all of these nodes; None if some are missing.

        It also returns None, and drops them, if earlier attempts mostly failed.
        """
        prepared = self._prepared.pop(task, None)
        if prepared is None or self._worth.get(task, 0) < 0:
            return None
        return prepared if prepared.fits(nodes, masked_sums) else None

    def count(self, task: str, *, worked: bool) -> None:
        """Count the result of a round that began with keys; it is tried while half of them work."""
        self._worth[task] = self._worth.get(task, 0) + (1 if worked else -1)
