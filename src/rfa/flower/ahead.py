"""Rounds that begin with their first sum, among nodes that sent their keys in the round before.

The message that asks a node to train or evaluate carries the roster of the secure sum and its first
query; what the node answers is its masked input. This takes the same nodes as in the round before,
with the same metrics and run config, one part, and a semi-honest server. Where it comes to nothing
before a sum is opened, nodes are asked anew, and send their keys with what is ready.
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
    """Messages that ask nodes for work, with which the first requests of a sum travel.

    Attributes:
        messages: the messages, by node.
        like: what a node must have, or its masked input does not count.
        timeout: seconds to wait.
    """

    messages: Mapping[int, Message]
    like: records.Ready
    timeout: float

    def __call__(self, exchange: GridExchange, outbox: Outbox) -> Iterator[tuple[int, bytes]]:
        """Send them with the requests; who is not ready, or has something else, is lost.

        Only a node that refuses has masked nothing. Of another error nobody knows what came before.
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
        """Messages of their own: if this comes to nothing, those that were given are sent."""
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
        cohort: what they had in the round before.
        keys: their keys for the next one.
    """

    cohort: Cohort
    keys: Mapping[int, DeviceKeys] = field(repr=False)

    def fits(self, nodes: Collection[int], masked_sums: int) -> bool:
        """Whether these nodes, all of them, have keys for so many masked sums."""
        counts = {len(keys.mask_keys) for keys in self.keys.values()}
        return set(nodes) == set(self.keys) and counts == {masked_sums}


@dataclass
class KeysAhead:
    """The keys that a server has for the next round of each task, for one use.

    Attributes:
        ask: whether nodes are asked for them.
    """

    ask: bool = False
    _grid: Grid | None = None
    _prepared: dict[str, Prepared] = field(default_factory=dict[str, Prepared])
    _worth: dict[str, int] = field(default_factory=dict[str, int])

    def begin(self, grid: Grid) -> None:
        """Begin a run: on another grid without any, on the same one with those that there are."""
        if grid is not self._grid:
            self._grid = grid
            self.forget()

    def forget(self) -> None:
        """Go on without any."""
        self._prepared, self._worth = {}, {}

    def keep(self, cohort: Cohort, oracles: Sequence[PartOracle]) -> None:
        """Keep the keys that nodes sent in a round of one part."""
        if len(oracles) == 1 and oracles[0].keys_ahead:
            self._prepared[cohort.task] = Prepared(cohort, dict(oracles[0].keys_ahead))

    def take(self, task: str, nodes: Collection[int], masked_sums: int) -> Prepared | None:
        """The keys of all of these nodes; None if they are not at hand, or hardly worth a try.

        Whether they are taken or not, they are gone.
        """
        prepared = self._prepared.pop(task, None)
        if prepared is None or self._worth.get(task, 0) < 0:
            return None
        return prepared if prepared.fits(nodes, masked_sums) else None

    def count(self, task: str, *, worked: bool) -> None:
        """Count a round that began so: it is tried while it works as often as it does not."""
        self._worth[task] = self._worth.get(task, 0) + (1 if worked else -1)
