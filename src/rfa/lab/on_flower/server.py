"""The lab's ServerApp: a run of the lab whose devices are on the nodes of a federation."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from rfa.cli.run import report
from rfa.flower import records as wire
from rfa.flower.oracles import GridSums, RoundSkippedError
from rfa.flower.transport import GridExchange, Letter, send
from rfa.lab.on_flower import records as letters
from rfa.lab.on_flower.launch import DONE, FAILED
from rfa.lab.runs.run import Options, run
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.aggregation import aggregate
from rfa.lab.simulation.outcome import Outcome
from rfa.lab.simulation.rounds import Evaluation, Facts, State
from rfa.lab.simulation.secure import draw_losses
from rfa.lab.simulation.summed import ask_for_outcome, split_cohort
from rfa.lab.training.devices import Devices, Tally
from rfa.lab.training.pool import Crew
from rfa.secagg.in_process import Losses
from rfa.secagg.messages.round import decode
from rfa.secagg.messages.stages import LEFT, Moment, moment_of
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.server.machine import Outbox

LOG = logging.getLogger("flwr")
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Do a run of the lab, and say in one line how it ended."""
    config = context.run_config
    try:
        row = run(
            letters.settings_of(context),
            Options(
                Path(str(config["out"])),
                letters.data_dir_of(context),
                checkpoint_every=1,
                fresh=bool(config["fresh"]),
            ),
            Log(),
            lambda devices, crew: FlowerEngine(devices, crew, grid, float(config["timeout"])),
        )
    except Exception as error:
        print(FAILED + json.dumps(f"{error}"), flush=True)
        raise
    print(DONE + json.dumps(report(row), allow_nan=False), flush=True)


class Log:
    """How a run goes, in the log."""

    def on_status(self, text: str) -> None:
        """Something that takes time begins."""
        LOG.info("%s", text)

    def on_begin(self, settings: Settings, devices: Devices, state: State) -> None:
        """The rounds begin, or go on."""
        LOG.info("round %s of %s, %s devices", state.round, settings.rounds, devices.count)

    def on_round(self, state: State, facts: Facts) -> None:
        """A round is done."""
        LOG.info("round %s: the step is %.4g long%s", state.round, facts.norm, facts.stopped)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """The model was evaluated."""
        accuracy, loss = evaluation.test_accuracy, evaluation.train_loss
        LOG.info("round %s: accuracy %.1f %%, loss %.4f", evaluation.round, 100 * accuracy, loss)


@dataclass
class LabExchange(GridExchange):
    """An exchange with devices of which several may be on one node, and some drop out on purpose.

    Attributes:
        homes: the node of each device.
        order: what every message of the round tells of the round.
        lost: who drops out, and when.
    """

    homes: dict[int, int] = field(default_factory=dict[int, int])
    order: letters.Order = field(default_factory=lambda: letters.Order(0, 0, ()))
    lost: Losses = field(default_factory=dict[int, Moment])

    def __call__(self, outbox: Outbox) -> Iterator[tuple[int, bytes]]:
        """Ask those that have not dropped out."""
        return super().__call__(
            (device, request)
            for device, request in outbox
            if device not in self.lost or _moment(request) < self.lost[device]
        )

    def letter(self, node: int, content: RecordDict) -> Message:
        """A message for a device, to its node."""
        order = dataclasses.replace(self.order, device=node)
        addressed = RecordDict({**content, letters.LAB: order.record()})
        return super().letter(self.homes[node], addressed)


@dataclass(frozen=True)
class FlowerEngine:
    """Devices on the nodes of a grid.

    Attributes:
        devices: the devices of the lab.
        crew: workers on the server's machine, which evaluate a model without u_i.
        grid: Flower's grid.
        timeout: seconds to wait for an answer.
    """

    devices: Devices
    crew: Crew
    grid: Grid
    timeout: float

    def collect(self, state: State, chosen: list[int]) -> Outcome:
        """Let devices train on their nodes, and aggregate as the settings say."""
        homes = self._homes(chosen)
        order = letters.Order(0, state.round, tuple(chosen))
        sent = [(device, self._letter(homes[device], order, device, state)) for device in chosen]
        if self.devices.settings.secure == "off":
            return self._in_the_clear(sent, state, chosen)
        return self._securely(sent, homes, order, state.radius.nu)

    def evaluate(self, state: State) -> Sequence[Tally]:
        """How well the model serves each device: here, or where their u_i are."""
        everyone = list(range(self.devices.count))
        if not self.devices.settings.personalize:
            return self.crew.evaluate(state.model)
        found: dict[int, Tally] = {}
        homes = self._homes(everyone)
        shares = {
            node: tuple(device for device in everyone if homes[device] == node)
            for node in set(homes.values())
        }
        sent = [
            (node, self._tally_letter(node, letters.Order(share[0], state.round, share), state))
            for node, share in shares.items()
        ]
        for node, reply in send(self.grid, sent, self.timeout):
            found.update(zip(shares[node], _tallies(reply), strict=False))
        missing = [device for device in everyone if device not in found]
        if missing:
            msg = f"{len(missing)} devices were not evaluated: their nodes did not answer"
            raise TimeoutError(msg)
        return [found[device] for device in everyone]

    def flush(self) -> None:
        """Nodes keep what they keep before they answer."""

    def _in_the_clear(self, sent: list[Letter], state: State, chosen: list[int]) -> Outcome:
        """Aggregate updates that the server sees; those that do not come are left out."""
        rows = {device: row for row, device in enumerate(chosen)}
        updates = np.full((len(chosen), self.devices.dim), np.nan, np.float32)
        for device, reply in send(self.grid, sent, self.timeout):
            if reply.has_error():
                LOG.info("\t> device %s does not answer: %s", device, reply.error.reason)
            else:
                updates[rows[device]] = letters.model_of(reply) - state.model
        weights, settings = self.devices.weights[chosen], self.devices.settings
        return aggregate(updates, weights, settings, state.round, state.radius.nu)

    def _securely(
        self, sent: list[Letter], homes: dict[int, int], order: letters.Order, nu: float
    ) -> Outcome:
        """Aggregate by secure sums."""
        settings, chosen = self.devices.settings, order.others
        identities = None
        if settings.terms.server_model == ServerModel.MALICIOUS:
            identities = letters.identities(settings.seed, chosen)
        sums = GridSums(self.grid, settings.terms, identities)
        work = wire.Work(wire.TRAIN, float(self.devices.weights.max()), letters.EXAMPLES)
        cohort = sums.gather(work, sent, order.round + 1, self.timeout)
        drawn = draw_losses(len(chosen), settings, order.round)
        lost = {chosen[row]: place for row, place in drawn.items()}
        exchange = LabExchange(
            self.grid, wire.TRAIN, order.round + 1, self.timeout, {}, homes, order, lost
        )
        rows = split_cohort(len(chosen), settings, order.round)
        parts = [[chosen[row] for row in part if chosen[row] in cohort.devices] for part in rows]
        with sums.over_parts(
            cohort, exchange, parts, steps=settings.questions, limit=settings.weight_limit
        ) as asks:
            outcome = ask_for_outcome(asks, self.devices.dim, settings, settings.nu or nu)
        gone = frozenset[int]().union(*(ask.abstained for ask in asks))
        dropped = tuple(row for row, device in enumerate(chosen) if device in gone)
        return dataclasses.replace(outcome, dropped=dropped, lost=tuple(sorted(drawn)))

    def _homes(self, devices: Sequence[int]) -> dict[int, int]:
        """The node of each device: the same while the nodes are the same."""
        nodes = sorted(self.grid.get_node_ids())
        if not nodes:
            msg = "no node is there"
            raise RoundSkippedError(msg)
        return {device: nodes[device % len(nodes)] for device in devices}

    def _letter(self, node: int, order: letters.Order, device: int, state: State) -> Message:
        content = dataclasses.replace(order, device=device).content(state.model)
        return Message(content, dst_node_id=node, message_type=wire.TRAIN)

    def _tally_letter(self, node: int, order: letters.Order, state: State) -> Message:
        content = order.content(state.model)
        return Message(content, dst_node_id=node, message_type=letters.TALLY)


def _moment(request: bytes) -> Moment:
    """The moment of a request in the round."""
    return moment_of(decode(request, len(request))) or LEFT


def _tallies(reply: Message) -> list[Tally]:
    """The tallies in a reply; none if it has none."""
    if reply.has_error():
        LOG.info("\t> devices are not evaluated: %s", reply.error.reason)
        return []
    numbers: Any = reply.content.metric_records["tallies"]["numbers"]
    size = len(dataclasses.fields(Tally))
    return [Tally(*numbers[start : start + size]) for start in range(0, len(numbers), size)]
