"""Secure sums over the nodes of a Flower grid: which nodes are ready, and an oracle over them.

No code here holds an update, an example count or a metric of a single node.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.serverapp import Grid

from rfa.errors import OracleStoppedError
from rfa.flower import records
from rfa.flower.basis import Told, basis_of, common_sent
from rfa.flower.histograms import LEAST_NODES
from rfa.flower.parts import Cohort, PartOracle
from rfa.flower.ready import check_repeat, most_of
from rfa.flower.refusals import RoundSkippedError, check_refusals, describe_refusals
from rfa.flower.transport import Addressed, GridExchange, send
from rfa.secagg.errors import ParameterError, TooFewDevicesError
from rfa.secagg.messages.opening import MAX_METRICS, OpenRound
from rfa.secagg.oracle import SecureOracle, open_round
from rfa.secagg.security.cohort import Identities
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.recorder import Recorder
from rfa.secagg.transcript import repeated_basis
from rfa.secagg.weights import EQUAL

LOG = logging.getLogger("flwr")


def split(devices: Sequence[int], parts: int) -> list[list[int]]:
    """Split devices at random into parts of about the same size; nobody can choose a part."""
    order = sorted(devices, key=lambda _: os.urandom(16))
    return [sorted(order[first::parts]) for first in range(parts)]


@dataclass(frozen=True)
class SumPlan:
    """What a round asks of each part of its nodes.

    Attributes:
        queries: the number of sums.
        statistics: the names of the totals that are summed beside the updates.
        max_share: the largest share of a node in a sum; 0 for no limit.
        fast: whether nodes send their keys with their results, and the first masked input with
            their shares, which takes fewer exchanges.
        block: the number of coordinates that share a radius; 0 for one radius.
    """

    queries: int
    statistics: Collection[str] = ()
    max_share: float = 0.0
    fast: bool = True
    block: int = 0

    def open(self, terms: Terms, *, dim: int, metrics: int = 0, **how: Any) -> OpenRound:
        """Return the opening of a round, as `open_round` does."""
        return open_round(
            time.time_ns() // 1000,
            terms,
            queries=self.queries,
            dim=dim,
            metrics=metrics,
            max_share=self.max_share,
            statistics=self.statistics,
            fast=self.fast and not self.max_share,
            block=self.block,
            **how,
        )


@dataclass(frozen=True)
class GridSums:
    """How sums are taken over a grid.

    Attributes:
        grid: Flower's grid.
        terms: the terms of the secure sum.
        plan: what a round asks.
        identities: the public identities of devices, if they do not trust the server.
        told: returns the part of a message's content that all devices get.
        recorders: a list that gets the recorder of each part, in order; None for no receipt.
        hear: is called with the replies of nodes that are not ready.
        ask_ahead: whether to ask nodes for their keys of the next round.
    """

    grid: Grid
    terms: Terms
    plan: SumPlan
    identities: Identities | None = None
    told: Told = lambda content: content
    recorders: list[Recorder] | None = None
    hear: Callable[[Mapping[int, str]], None] = lambda _: None
    ask_ahead: bool = False

    def asking(self, queries: int) -> GridSums:
        """Return the same with another number of sums per round."""
        return dataclasses.replace(self, plan=dataclasses.replace(self.plan, queries=queries))

    def gather(
        self, work: records.Work, messages: list[Addressed], t: int, timeout: float, dim: int
    ) -> Cohort:
        """Let devices train or evaluate, and return those that are ready for a sum.

        Args:
            work: the request for work.
            messages: the messages that carry it, by device: the same for all of them.
            t: the round.
            timeout: seconds to wait.
            dim: the length of their updates; devices with another length are not ready.

        Raises:
            RoundSkippedError: if no device is ready.
            UnequalMessagesError: if devices would get different messages.
        """
        opening = self._template(work, dim)
        work = dataclasses.replace(work, opening=opening.encode() if opening else b"")
        adverts: dict[int, bytes] = {}
        sent, ready = self._ask(work, messages, t, timeout, dim, adverts)
        like = most_of(ready)
        cohort = tuple(sorted(ready[like]))
        odd = tuple(name for other, names in ready.items() if other != like for name in names)
        basis = basis_of(sent, like.run)
        if like.again:
            check_repeat(work.task, cohort, like.again)
            basis = repeated_basis(basis, like.again)
        gathered = Cohort(
            work.task,
            t,
            cohort,
            like.layout,
            dim,
            basis,
            odd,
            work.histograms.within(like.layout),
            equal_weights=work.weights == EQUAL,
            cap=work.cap,
            noise=work.noise,
            adverts={name: adverts[name] for name in cohort if name in adverts},
            run=like.run,
        )
        if opening:
            row = gathered.plain + gathered.histograms.count
            opening = dataclasses.replace(opening, metrics=row, basis=basis)
        return dataclasses.replace(gathered, opening=opening)

    def address(
        self, work: records.Work, messages: list[Addressed], t: int, timeout: float
    ) -> bytes:
        """Write the request for work into messages, and return the digest of their content.

        Raises:
            UnequalMessagesError: if devices would get different messages.
        """
        for _, message in messages:
            message.content[records.KEY] = work.record()
            message.metadata.ttl, message.metadata.group_id = timeout, str(t)
        return common_sent(messages, self.told)

    def _template(self, work: records.Work, dim: int) -> OpenRound | None:
        """Return the opening of the secure sum, if devices get it with their work."""
        if not self.plan.fast:
            return None
        return self.plan.open(
            self.terms, dim=dim, equal_weights=work.weights == EQUAL, noise=work.noise
        )

    def _ask(  # noqa: PLR0913, PLR0917
        self,
        work: records.Work,
        messages: list[Addressed],
        t: int,
        timeout: float,
        dim: int,
        adverts: dict[int, bytes],
    ) -> tuple[bytes, dict[records.Ready, list[int]]]:
        """Return the digest of the messages, and the devices by what they have.

        Their keys go to `adverts`.
        """
        ready: dict[records.Ready, list[int]] = {}
        refused: dict[int, str] = {}
        sent = self.address(work, messages, t, timeout)
        for name, reply in send(self.grid, messages, timeout):
            try:
                found = records.read_ready(reply, dim)
                if work.opening:
                    adverts[name] = records.read_reply(reply)
                ready.setdefault(found, []).append(name)
            except records.RecordError as error:
                refused[name] = str(error)
                LOG.info("\t> node %s is not ready: %s", name, error)
        self.hear(refused)
        count = sum(map(len, ready.values()))
        LOG.info("%s: %s of %s nodes are ready", work.task, count, len(messages))
        if not ready:
            check_refusals((name for name, _ in messages), refused)
            told = describe_refusals(refused) or "none of them answers"
            msg = f"none of {len(messages)} nodes is ready: {told}"
            raise RoundSkippedError(msg)
        return sent, ready

    @contextlib.contextmanager
    def over_parts(
        self, cohort: Cohort, exchange: GridExchange, parts: Sequence[Sequence[int]]
    ) -> Generator[list[PartOracle]]:
        """Yield an oracle over each part of a cohort; one without a sum if it has too few devices.

        Raises:
            OracleStoppedError: if there is only one part, and it gives no sum.
        """
        with contextlib.ExitStack() as stack:
            oracles: list[PartOracle] = []
            for number, devices in enumerate(parts):
                odd = () if number else cohort.odd
                part = dataclasses.replace(cohort, devices=tuple(devices), odd=odd)
                try:
                    oracles.append(stack.enter_context(self.over(part, exchange)))
                except OracleStoppedError as error:
                    if len(parts) == 1:
                        raise
                    LOG.info("\t> part %s of %s gives no sum: %s", number + 1, len(parts), error)
                    oracles.append(PartOracle(error, part))
            yield oracles

    @contextlib.contextmanager
    def over(self, cohort: Cohort, exchange: GridExchange) -> Generator[PartOracle]:
        """Yield an oracle over a cohort; tell devices if it ends before all sums are taken.

        Raises:
            OracleStoppedError: if there are too few devices, or none that can be asked.
        """
        metrics = self._count_metrics(cohort)
        opening, adverts = self._open(cohort, metrics)
        part: PartOracle | None = None
        recorder = Recorder(opening) if self.recorders is not None else None
        if self.recorders is not None and recorder:
            self.recorders.append(recorder)
        try:
            oracle = SecureOracle(
                opening,
                self.terms,
                cohort.devices,
                exchange,
                self.identities,
                recorder=recorder,
                adverts=adverts,
                keys_ahead=cohort.keys or None,
                ask_ahead=self.ask_ahead,
            )
            if metrics > cohort.plain:
                _require_many(oracle, recorder)
            part = PartOracle(oracle, cohort)
            yield part
        finally:
            short = part is None or part.answers < self.plan.queries
            if gone := (*cohort.odd, *(cohort.devices if short else ())):
                opened = part is not None and part.opened
                exchange.tell_over(opening.round, gone, opened=opened)

    def _open(self, cohort: Cohort, metrics: int) -> tuple[OpenRound, Mapping[int, bytes] | None]:
        """Return the round of the secure sum, and who has joined; None to open it first."""
        joined, how = cohort.opening, {"noise": cohort.noise, "basis": cohort.basis}
        new = self.plan.open(
            self.terms,
            dim=cohort.dim,
            metrics=metrics,
            equal_weights=cohort.equal_weights,
            **how,
        )
        if joined and joined == dataclasses.replace(
            new, session=joined.session, round=joined.round
        ):
            there = (device for device in cohort.devices if device in cohort.adverts)
            return joined, {device: cohort.adverts[device] for device in there}
        return new, None

    def _count_metrics(self, cohort: Cohort) -> int:
        """Return how many numbers are summed beside the update; bins come last, if allowed.

        Raises:
            RoundSkippedError: if there are more than a sum can hold.
        """
        count, metrics = len(cohort.devices), cohort.plain
        if cohort.histograms.count:
            try:
                least = self.terms.parameters(count, self.plan.queries).survivors
            except ParameterError:  # the server raises it again when the cohort forms
                least = 0
            if least >= LEAST_NODES:
                metrics += cohort.histograms.count
            else:
                what = "\t> %s nodes are ready, of which %s are sure to be in a sum: there are no "
                LOG.info(what + "histograms of fewer than %s", count, least, LEAST_NODES)
        if metrics > MAX_METRICS:
            names = ", ".join(cohort.layout.names)
            msg = f"nodes have the metrics {names}: with a weight behind each, and bins, these are "
            msg += f"{metrics} numbers, and at most {MAX_METRICS} are summed"
            raise RoundSkippedError(msg)
        return metrics


def _require_many(oracle: SecureOracle, recorder: Recorder | None) -> None:
    """End a round with bins, before any sum, if too few devices joined it.

    Raises:
        TooFewDevicesError: if the sum could have fewer devices than a histogram requires.
    """
    formed = oracle.server.parameters
    if formed.survivors >= LEAST_NODES:
        return
    msg = (
        f"{formed.cohort} nodes joined, of which {formed.survivors} may be left in a sum, and "
        f"histograms of metrics take {LEAST_NODES}: ask more nodes, or for no robust_metrics"
    )
    error = TooFewDevicesError(msg)
    if recorder:
        recorder.stop(error)
    raise error
