"""A part of the nodes of a round: an oracle over it, and the results of its sums."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import MetricRecord

from rfa._types import Vector
from rfa.errors import OracleStoppedError
from rfa.flower import records
from rfa.flower.histograms import Histograms
from rfa.flower.metrics import MetricLayout
from rfa.oracle import REACH, RecordingOracle, Sum, stopped_oracle
from rfa.radii import Radius
from rfa.secagg.errors import RefusalError, SecAggError
from rfa.secagg.messages.opening import NO_BASIS, OpenRound
from rfa.secagg.messages.round import DeviceKeys
from rfa.secagg.noise import noisy_sum
from rfa.secagg.oracle import SecureOracle
from rfa.secagg.server.complaints import Dispute, Unopened
from rfa.secagg.weights import EXAMPLE_CAP

LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class Cohort:
    """Devices that are ready for a sum; a device is a node, unless several are on one.

    Attributes:
        task: what they did: train or evaluate.
        round: the round.
        devices: the devices.
        layout: their metrics.
        dim: the length of their updates.
        basis: the digest of what they were sent, and of their run config.
        odd: other devices that are ready, but with other metrics, arrays or another run config.
        histograms: those of their metrics.
        equal_weights: whether each must weigh 1.
        cap: the most examples of each that count.
        noise: the multiplier of the noise of the sums; 0 for none.
        opening: the round of the secure sum that they have joined already; None if they have not.
        adverts: their keys in that round.
        run: the digest of their run config.
        keys: their keys for this round, which they sent in the one before; empty if they did not.
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
    cap: float = EXAMPLE_CAP
    noise: float = 0.0
    opening: OpenRound | None = None
    adverts: Mapping[int, bytes] = field(default_factory=dict[int, bytes], repr=False)
    run: bytes = NO_BASIS
    keys: Mapping[int, DeviceKeys] = field(default_factory=dict[int, DeviceKeys], repr=False)

    @property
    def plain(self) -> int:
        """The count of summed numbers before the bins: metrics, and whether a device is capped.

        Equal weights have no cap.
        """
        return self.layout.count + (not self.equal_weights)


class PartOracle(RecordingOracle):
    """An oracle over a part of the cohort, or all of it, that records its sums.

    Attributes:
        devices: the devices of the part.
        rho: the charge of each sum to each device, in zCDP; 0 without noise. It is that of the
            cohort that was formed first: a sum over a second roster costs no more, and devices have
            charged themselves for the first.
        stopped: why it gave no sum, the first time it did not.
    """

    def __init__(self, oracle: SecureOracle | OracleStoppedError, cohort: Cohort) -> None:
        """Wrap an oracle over a cohort, or the reason why there is none."""
        super().__init__(
            stopped_oracle(oracle) if isinstance(oracle, OracleStoppedError) else oracle
        )
        self._secure = None if isinstance(oracle, OracleStoppedError) else oracle
        self.devices = cohort.devices
        self.rho = self._charge()
        self.stopped = oracle if isinstance(oracle, OracleStoppedError) else None
        self._level = logging.INFO if cohort.task == records.TRAIN else logging.DEBUG

    def __call__(self, v: Vector, nu: Radius) -> Sum:
        """Pass the query on, and log the public facts about the answer."""
        try:
            total = super().__call__(v, nu)
        except OracleStoppedError as error:
            LOG.info("\t> sum %s: none: %s", self.calls, error)
            self.stopped = self.stopped or error
            raise
        LOG.log(self._level, "\t> sum %s: %s", self.answers, _describe(total, self.nu))
        return total

    @property
    def faults(self) -> dict[int, SecAggError]:
        """The devices at fault, and how."""
        return self._secure.server.faults if self._secure else {}

    @property
    def disputes(self) -> set[Dispute]:
        """Pairs of devices, one of which is at fault."""
        return self._secure.server.disputes if self._secure else set()

    @property
    def unopened(self) -> Unopened | None:
        """The secret that could not be opened, if that ended the sums."""
        return self._secure.server.unopened if self._secure else None

    @property
    def opened(self) -> bool:
        """Whether any device was asked to open a sum, even if that failed."""
        return self._secure is not None and self._secure.server.opened

    @property
    def number(self) -> int:
        """The number of the round of the secure sum; 0 if none was opened."""
        return self._secure.opening.round if self._secure else 0

    @property
    def keys_ahead(self) -> Mapping[int, DeviceKeys]:
        """The keys for the next round that devices sent with their last shares."""
        return self._secure.server.keys_ahead if self._secure else {}

    @property
    def begun(self) -> int:
        """The number of sums for which devices were asked, even if they failed."""
        return self._secure.server.begun if self._secure else 0

    @property
    def queries(self) -> int:
        """The number of sums for which devices may be asked."""
        return self._secure.opening.each_roster if self._secure else 0

    def _charge(self) -> float:
        """Return the charge of each sum over the cohort as it is formed."""
        if self._secure is None:
            return 0.0
        noise = noisy_sum(self._secure.opening, self._secure.server.parameters)
        return noise.rho if noise else 0.0

    @property
    def abstained(self) -> frozenset[int]:
        """The devices that abstained."""
        return frozenset(
            device for device, fault in self.faults.items() if type(fault) is RefusalError
        )

    @property
    def totals(self) -> tuple[tuple[float, ...], int] | None:
        """The sums of the metrics, and the number of devices; None if there was no sum."""
        if self._secure is None or self._secure.last is None:
            return None
        return self._secure.last.metrics, self._secure.last.sum.count


def _describe(total: Sum, nu: float) -> str:
    """Return the public facts about a sum, in words."""
    near = "" if total.near is None else f", {total.near} of them within {REACH * nu:g}"
    if not total.noise:
        return f"{total.count} nodes{near}; no share above {100 * total.certificate():.0f} %"
    if total.near is not None:
        near = f", about {total.near:.1f} of them within {REACH * nu:g}"
    return f"{total.count} nodes{near}; noise of {total.noise:.3g} in each coordinate"


def summarize(cohort: Cohort, oracles: Sequence[PartOracle]) -> MetricRecord | None:
    """Return the weighted means of the metrics over all parts, and quantiles over nodes."""
    totals = [oracle.totals for oracle in oracles if oracle.totals]
    layout, plain = cohort.layout, cohort.plain
    if not totals:
        return None
    rows = [row[:plain] for row, _ in totals]
    sums = [sum(column) for column in zip(*rows, strict=True)]
    if plain > layout.count and sums:
        _tell_capped(round(sums.pop()), sum(count for _, count in totals), cohort.cap)
    if not layout.names:
        return None
    found = layout.means(sums)
    asked = [(row[plain:], count) for row, count in totals if len(row) > plain]
    for name, value in cohort.histograms.quantiles(asked).items():
        if name in layout.names:
            LOG.warning(
                "the app has a metric %s itself, so there is no quantile of that name", name
            )
        else:
            found[name] = value
    return found


def _tell_capped(capped: int, count: int, cap: float) -> None:
    if capped > 0:
        text = "\t> %s of %s nodes have more than %g examples, and count as if they had that many: "
        LOG.info(text + "example_cap", capped, count, cap)
