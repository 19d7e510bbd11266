"""The strategy that users run, over devices of the lab."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from rfa.aggregators.registry import build_private
from rfa.flower.parts import PartOracle
from rfa.flower.privacy import PrivacyMeter
from rfa.flower.strategy import SecureStrategy
from rfa.flower.transport import GridExchange
from rfa.lab.on_flower import records as lab_records
from rfa.lab.simulation.aggregation import split_cohort
from rfa.lab.simulation.losses import draw_losses
from rfa.lab.simulation.meter import Meter
from rfa.lab.training.devices import Devices
from rfa.privacy import Charges
from rfa.secagg.in_process import Losses
from rfa.secagg.messages.decoding import decode
from rfa.secagg.messages.stages import LEFT, Moment, moment_of
from rfa.secagg.security.parameters import MAX_MASKED_SUMS, ServerModel
from rfa.secagg.server.requests import Outbox
from rfa.secagg.weights import EQUAL, EXAMPLES


@dataclass
class LabExchange(GridExchange):
    """An exchange with devices, several of which may share a node, and some of which drop out.

    Attributes:
        nodes: the node of each device.
        order: the request of the round, which is in every message.
        lost: who drops out, and when.
    """

    nodes: dict[int, int] = field(default_factory=dict[int, int])
    order: lab_records.Order = field(default_factory=lambda: lab_records.Order(0, 0, ()))
    lost: Losses = field(default_factory=dict[int, Moment])

    def __call__(self, outbox: Outbox) -> Iterator[tuple[int, bytes]]:
        """Ask those that have not dropped out."""
        return super().__call__(
            (device, request)
            for device, request in outbox
            if device not in self.lost or _moment(request) < self.lost[device]
        )

    def message_for(self, node: int, content: RecordDict) -> Message:
        """A message for a device, to its node."""
        order = dataclasses.replace(self.order, device=node)
        addressed = RecordDict({**content, lab_records.LAB: order.record()})
        return super().message_for(self.nodes[node], addressed)


class LabMeter(PrivacyMeter):
    """Charges the devices of a round as the lab does, whose seed says who drops out."""

    def __init__(self, strategy: LabStrategy, meter: Meter) -> None:
        """Take the strategy of a round, and what keeps its charges."""
        super().__init__(strategy.aggregator, strategy.options)
        self._strategy, self._meter = strategy, meter

    def charge(self, oracles: Sequence[PartOracle], exchange: GridExchange) -> None:
        """See that all who joined can pay for the round, before they are asked.

        Raises:
            BudgetSpentError: naming one that cannot.
        """
        for part in oracles:
            if part.queries:  # else too few joined for any sum
                self._meter.check(self._joined(part, exchange))

    def settle(self, oracles: Sequence[PartOracle], exchange: GridExchange) -> None:
        """Charge them for the sums that were asked for."""
        lost = {self._strategy.row(device): when for device, when in self._strategy.lost.items()}
        for part in oracles:
            for number in range(part.begun):
                self._meter.charge(self._joined(part, exchange), number, lost)

    def _joined(self, part: PartOracle, exchange: GridExchange) -> list[int]:
        """The rows of those who joined a part."""
        there = exchange.joined - part.abstained
        return [self._strategy.row(device) for device in part.devices if device in there]


class LabStrategy(SecureStrategy):
    """The strategy that users run, with the lab's random parts, drop-outs and devices on nodes."""

    max_queries = MAX_MASKED_SUMS

    def __init__(
        self,
        devices: Devices,
        nodes: dict[int, int],
        order: lab_records.Order,
        timeout: float,
        meter: Meter | None = None,
    ) -> None:
        """Keep the devices of a run, their nodes, and the request of a round.

        Args:
            devices: the devices of the run.
            nodes: the node of each device of the round.
            order: the request to the devices of the round.
            timeout: seconds to wait for an answer.
            meter: charges devices for noise, if they add some.
        """
        settings, identities = devices.settings, None
        if settings.secure.terms.server_model == ServerModel.MALICIOUS:
            identities = lab_records.identities(settings.seed, order.others)
        super().__init__(
            build_private(settings.aggregation),
            terms=settings.secure.terms,
            identities=identities,
            max_share=settings.secure.max_share,
            stage_timeout=timeout,
            example_cap=float(devices.weights.max()),
            weights=EQUAL if settings.training.weights == EQUAL else EXAMPLES,
            weighted_by_key=lab_records.EXAMPLES,
            noise_multiplier=meter.noise.opened if meter else None,
        )
        self.settings, self.nodes, self.order = settings, nodes, order
        self.fast = not settings.secure.dropout_rate  # the lab's drop-outs are of the longer way
        drawn = draw_losses(len(order.others), settings, order.round)
        self.lost = {order.others[row]: moment for row, moment in drawn.items()}
        self._rows = {device: row for row, device in enumerate(order.others)}
        self._meter = meter
        if meter:
            self.privacy = LabMeter(self, meter)

    @property
    def charges(self) -> Charges | None:
        """What every device of the run was charged so far; None without noise."""
        return self._meter.charges if self._meter else None

    def row(self, device: int) -> int:
        """The row of a device in the cohort."""
        return self._rows[device]

    def rows(self, devices: Iterable[int]) -> tuple[int, ...]:
        """The rows of devices in the cohort, in order."""
        return tuple(sorted(map(self.row, devices)))

    def partition(self, devices: Sequence[int], parts: int, t: int) -> list[list[int]]:
        """The parts of a cohort, by the seed of the run."""
        del parts
        chosen, ready = self.order.others, set(devices)
        rows = split_cohort(len(chosen), self.settings, t - 1)
        return [[chosen[row] for row in part if chosen[row] in ready] for part in rows]

    def told(self, content: RecordDict) -> RecordDict:
        """All but the device that a message is for."""
        return lab_records.told(content)

    def exchange(self, grid: Grid, task: str, t: int) -> GridExchange:
        """Messages for devices of which several may be on one node, and some drop out."""
        timeout = self.options.stage_timeout
        return LabExchange(
            grid, task, t, timeout, nodes=self.nodes, order=self.order, lost=self.lost
        )


def _moment(request: bytes) -> Moment:
    """The moment of a request in the round."""
    return moment_of(decode(request, len(request))) or LEFT
