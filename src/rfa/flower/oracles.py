"""Secure sums over the nodes of a Flower grid: who is ready, and an oracle over them.

Nothing here holds an update, an example count or a metric of a single node.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field

from flwr.app import MetricRecord
from flwr.serverapp import Grid

from rfa._types import Vector
from rfa.errors import OracleStoppedError
from rfa.flower import records
from rfa.flower.basis import Told, basis_of, common_sent
from rfa.flower.histograms import LEAST_NODES, Histograms
from rfa.flower.metrics import MetricLayout
from rfa.flower.transport import Addressed, GridExchange, send
from rfa.oracle import REACH, RecordingOracle, Sum, stopped_oracle
from rfa.secagg.errors import ParameterError, RefusalError, SecAggError, TooFewDevicesError
from rfa.secagg.messages.round import MAX_METRICS
from rfa.secagg.oracle import SecureOracle, open_round
from rfa.secagg.security.cohort import Identities
from rfa.secagg.security.terms import Terms
from rfa.secagg.server.complaints import Dispute
from rfa.secagg.server.recorder import Recorder
from rfa.secagg.weights import EQUAL

LOG = logging.getLogger("flwr")


class RoundSkippedError(OracleStoppedError):
    """There is nothing to sum in this round; the text says why."""


@dataclass(frozen=True)
class Cohort:
    """Devices that are ready for a sum: nodes, but where several are on one.

    Attributes:
        task: what they did: train or evaluate.
        round: in which round.
        devices: who they are.
        layout: their metrics.
        dim: the length of their updates.
        basis: the digest of what they were sent, and of their run config.
        odd: who else is ready, but with other metrics, arrays or another run config.
        histograms: those of their metrics.
        equal_weights: whether each must weigh 1.
    """

    task: str
    round: int
    devices: tuple[int, ...]
    layout: MetricLayout
    dim: int
    basis: bytes
    odd: tuple[int, ...] = ()
    histograms: Histograms = field(default_factory=Histograms)
    equal_weights: bool = False


class PartOracle(RecordingOracle):
    """An oracle over a part of the cohort, or all of it, and what it told.

    Attributes:
        devices: the devices of the part.
        stopped: why it gave no sum, the first time it did not.
    """

    def __init__(self, oracle: SecureOracle | OracleStoppedError, cohort: Cohort) -> None:
        """Watch an oracle over a cohort; or none, and the reason why there is none."""
        super().__init__(
            stopped_oracle(oracle) if isinstance(oracle, OracleStoppedError) else oracle
        )
        self._secure = None if isinstance(oracle, OracleStoppedError) else oracle
        self.devices = cohort.devices
        self.stopped = oracle if isinstance(oracle, OracleStoppedError) else None
        self._level = logging.INFO if cohort.task == records.TRAIN else logging.DEBUG

    def __call__(self, v: Vector, nu: float) -> Sum:
        """Pass the query on, and log what anyone may know of the answer."""
        try:
            total = super().__call__(v, nu)
        except OracleStoppedError as error:
            LOG.info("\t> sum %s: none: %s", self.calls, error)
            self.stopped = self.stopped or error
            raise
        LOG.log(
            self._level,
            "\t> sum %s: %s nodes%s; no share above %.0f %%",
            self.answers,
            total.count,
            "" if total.near is None else f", {total.near} of them within {REACH * nu:g}",
            100 * total.certificate(),
        )
        return total

    @property
    def faults(self) -> dict[int, SecAggError]:
        """The devices at fault, and how."""
        return self._secure.server.faults if self._secure else {}

    @property
    def disputes(self) -> set[Dispute]:
        """Pairs of devices of whom one is at fault."""
        return self._secure.server.disputes if self._secure else set()

    @property
    def opened(self) -> bool:
        """Whether any device was asked to open a sum, whatever came of it."""
        return self._secure is not None and self._secure.server.opened

    @property
    def abstained(self) -> frozenset[int]:
        """The devices that had nothing to bring."""
        return frozenset(
            device for device, fault in self.faults.items() if type(fault) is RefusalError
        )

    @property
    def totals(self) -> tuple[tuple[float, ...], int] | None:
        """The sums of the metrics, and over how many devices; None where there was no sum."""
        if self._secure is None or self._secure.last is None:
            return None
        return self._secure.last.metrics, self._secure.last.sum.count


def summarize(cohort: Cohort, oracles: Sequence[PartOracle]) -> MetricRecord | None:
    """The means of the metrics over all parts of a cohort by weight, and quantiles over nodes."""
    totals = [oracle.totals for oracle in oracles if oracle.totals]
    layout, plain = cohort.layout, cohort.layout.count
    if not totals or not layout.names:
        return None
    rows = [row[:plain] for row, _ in totals]
    found = layout.means([sum(column) for column in zip(*rows, strict=True)])
    asked = [(row[plain:], count) for row, count in totals if len(row) > plain]
    for name, value in cohort.histograms.quantiles(asked).items():
        if name in layout.names:
            LOG.warning("the app has a metric %s itself: there is no quantile of the name", name)
        else:
            found[name] = value
    return found


def split(devices: Sequence[int], parts: int) -> list[list[int]]:
    """Devices in parts of about the same size, at random: nobody can choose a part."""
    order = sorted(devices, key=lambda _: os.urandom(16))
    return [sorted(order[first::parts]) for first in range(parts)]


@dataclass(frozen=True)
class GridSums:
    """How sums are taken over a grid.

    Attributes:
        grid: Flower's grid.
        terms: what the secure sum must withstand.
        identities: the public identities of devices, where they do not trust the server.
        told: what of a message's content all devices are told.
        recorders: gets what a receipt tells of each part, in order; None if no receipt is wanted.
    """

    grid: Grid
    terms: Terms
    identities: Identities | None = None
    told: Told = lambda content: content
    recorders: list[Recorder] | None = None

    def gather(
        self, work: records.Work, messages: list[Addressed], t: int, timeout: float, dim: int
    ) -> Cohort:
        """Let devices train or evaluate, and see who is ready for a sum.

        Args:
            work: what they are asked for.
            messages: the messages that ask for it, by device: the same for all of them.
            t: the round.
            timeout: seconds to wait.
            dim: the length of their updates; who has another is not ready.

        Raises:
            RoundSkippedError: if nobody is.
            UnequalMessagesError: if devices are to be sent different things.
        """
        ready: dict[records.Ready, list[int]] = {}
        for _, message in messages:
            message.content[records.KEY] = work.record()
            message.metadata.ttl, message.metadata.group_id = timeout, str(t)
        sent = common_sent(messages, self.told)
        for name, reply in send(self.grid, messages, timeout):
            try:
                ready.setdefault(records.read_ready(reply, dim), []).append(name)
            except records.RecordError as error:
                LOG.info("\t> node %s is not ready: %s", name, error)
        count = sum(map(len, ready.values()))
        LOG.info("%s: %s of %s nodes are ready", work.task, count, len(messages))
        if not ready:
            msg = f"none of {len(messages)} nodes is ready"
            raise RoundSkippedError(msg)
        like = max(ready, key=lambda result: len(ready[result]))
        odd = [name for other, names in ready.items() if other != like for name in names]
        if odd:
            LOG.info("\t> nodes %s have other metrics, arrays or run configs than most", odd)
        if 2 * len(ready[like]) <= count:
            msg = f"no majority of {count} nodes has the same metrics, arrays and run config"
            raise RoundSkippedError(msg)
        cohort = tuple(sorted(ready[like]))
        how = work.histograms.within(like.layout), work.weights == EQUAL
        basis = basis_of(sent, like.run)
        return Cohort(work.task, t, cohort, like.layout, dim, basis, tuple(odd), *how)

    @contextlib.contextmanager
    def over_parts(  # noqa: PLR0913
        self,
        cohort: Cohort,
        exchange: GridExchange,
        parts: Sequence[Sequence[int]],
        *,
        queries: int,
        statistics: Collection[str],
        max_share: float = 0.0,
    ) -> Generator[list[PartOracle]]:
        """An oracle over each of some parts of a cohort; one without a sum if too few are there.

        Raises:
            OracleStoppedError: if there is only one part, and no sum.
        """
        with contextlib.ExitStack() as stack:
            oracles: list[PartOracle] = []
            for number, devices in enumerate(parts):
                odd = () if number else cohort.odd
                part = dataclasses.replace(cohort, devices=tuple(devices), odd=odd)
                over = self.over(
                    part, exchange, queries=queries, statistics=statistics, max_share=max_share
                )
                try:
                    oracles.append(stack.enter_context(over))
                except OracleStoppedError as error:
                    if len(parts) == 1:
                        raise
                    LOG.info("\t> part %s of %s gives no sum: %s", number + 1, len(parts), error)
                    oracles.append(PartOracle(error, part))
            yield oracles

    @contextlib.contextmanager
    def over(
        self,
        cohort: Cohort,
        exchange: GridExchange,
        *,
        queries: int,
        statistics: Collection[str],
        max_share: float = 0.0,
    ) -> Generator[PartOracle]:
        """An oracle over a cohort; devices are told if it ends before all sums are taken.

        Raises:
            OracleStoppedError: if there are too few devices, or none that can be asked.
        """
        metrics = self._count_metrics(cohort, queries)
        number = time.time_ns() // 1000
        opening = open_round(
            number,
            self.terms,
            queries=queries,
            dim=cohort.dim,
            metrics=metrics,
            max_share=max_share,
            equal_weights=cohort.equal_weights,
            statistics=statistics,
            basis=cohort.basis,
        )
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
            )
            if metrics > cohort.layout.count:
                _require_many(oracle, recorder)
            part = PartOracle(oracle, cohort)
            yield part
        finally:
            short = part is None or part.answers < queries
            if gone := (*cohort.odd, *(cohort.devices if short else ())):
                exchange.tell_over(number, gone, opened=part is not None and part.opened)

    def _count_metrics(self, cohort: Cohort, queries: int) -> int:
        """How many numbers are summed beside the update: bins come last, of enough devices.

        Raises:
            RoundSkippedError: if there are more than can be.
        """
        count, metrics = len(cohort.devices), cohort.layout.count
        if cohort.histograms.count:
            try:
                least = self.terms.parameters(count, queries).survivors
            except ParameterError:  # as the server says to those who join
                least = 0
            if least >= LEAST_NODES:
                metrics += cohort.histograms.count
            else:
                what = "\t> %s nodes are ready, of whom %s are sure to be in a sum: there are no "
                LOG.info(what + "histograms of fewer than %s", count, least, LEAST_NODES)
        if metrics > MAX_METRICS:
            msg = f"nodes have {metrics} metrics, and at most {MAX_METRICS} are summed"
            raise RoundSkippedError(msg)
        return metrics


def _require_many(oracle: SecureOracle, recorder: Recorder | None) -> None:
    """End a round with bins, before any sum, if too few devices joined it.

    Raises:
        TooFewDevicesError: if the sum could be over fewer than a histogram takes.
    """
    formed = oracle.server.parameters
    if formed.survivors >= LEAST_NODES:
        return
    msg = (
        f"{formed.cohort} nodes joined, of whom {formed.survivors} may be left in a sum, and "
        f"histograms of metrics take {LEAST_NODES}: ask more nodes, or for no robust_metrics"
    )
    error = TooFewDevicesError(msg)
    if recorder:
        recorder.stop(error)
    raise error
