"""The lab's ServerApp: a run of the lab whose devices are on the nodes of a federation."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message
from flwr.serverapp import Grid, ServerApp

from rfa.errors import InvalidValueError, OracleStoppedError
from rfa.flower import records
from rfa.flower.oracles import RoundSkippedError
from rfa.flower.transport import Addressed, send
from rfa.lab.attacks.corruption import SumCorruption
from rfa.lab.on_flower import records as lab_records
from rfa.lab.on_flower.launch import DONE, FAILED
from rfa.lab.on_flower.strategy import LabStrategy
from rfa.lab.runs.callback import Callback, RunView
from rfa.lab.runs.headline import evaluation_words
from rfa.lab.runs.run import Options, run
from rfa.lab.runs.store import row_to_json
from rfa.lab.simulation.aggregation import aggregate, outcome_of
from rfa.lab.simulation.central import aggregate_centrally
from rfa.lab.simulation.meter import meter_of
from rfa.lab.simulation.noise import RunNoise, noise_of
from rfa.lab.simulation.outcome import Outcome, RoundStoppedError
from rfa.lab.simulation.rounds import Evaluation, Facts, State
from rfa.lab.training.devices import Devices, Tally
from rfa.lab.training.pool import WorkerPool

LOG = logging.getLogger("flwr")
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Do a run of the lab, and say in one line how it ended."""
    config = context.run_config
    try:
        row = run(
            lab_records.settings_of(context),
            Options(
                Path(str(config["out"])),
                lab_records.data_dir_of(context),
                checkpoint_every=1,
                fresh=bool(config["fresh"]),
            ),
            [Log()],
            lambda devices, pool: FlowerEngine(devices, pool, grid, float(config["timeout"])),
        )
    except Exception as error:
        print(FAILED + json.dumps(f"{error}"), flush=True)
        raise
    print(DONE + json.dumps(row_to_json(row), allow_nan=False), flush=True)


class Log(Callback):
    """How a run goes, in the log."""

    def on_status(self, text: str) -> None:
        """Something that takes time begins."""
        LOG.info("%s", text)

    def on_begin(self, run: RunView) -> None:
        """The rounds begin, or go on."""
        LOG.info("round %s of %s", run.round, run.rounds)

    def on_round(self, run: RunView, facts: Facts) -> None:
        """A round is done."""
        LOG.info("round %s: the step is %.4g long%s", run.round, facts.norm, facts.stopped)

    def on_evaluation(self, run: RunView, evaluation: Evaluation) -> None:
        """The model was evaluated."""
        personalized = run.settings.training.personalize
        accuracy = evaluation_words(evaluation, personalized=personalized)
        loss = evaluation.train_loss
        LOG.info("round %s: accuracy %s, loss %.4f", evaluation.round, accuracy, loss)


@dataclass(frozen=True)
class FlowerEngine:
    """Devices on the nodes of a grid.

    Attributes:
        devices: the devices of the lab.
        pool: workers on the server's machine, which evaluate a model without u_i.
        grid: Flower's grid.
        timeout: seconds to wait for an answer.
    """

    devices: Devices
    pool: WorkerPool
    grid: Grid
    timeout: float

    @cached_property
    def noise(self) -> RunNoise | None:
        """The noise of the run, as the lab finds it."""
        return noise_of(self.devices)

    def collect(self, state: State, chosen: list[int]) -> tuple[Outcome, Any]:
        """Let devices train on their nodes, and aggregate as the settings say."""
        excludes = self.devices.settings.secure.exclude_liars
        if excludes or isinstance(self.devices.corruption, SumCorruption):
            msg = "devices that lie inside of secure sums, and the ledger of them, are simulated "
            msg += "without Flower: leave --engine flower away"
            raise InvalidValueError(msg)
        meter = meter_of(self.noise, chosen, state.charges, state.round)
        nodes = self._nodes(chosen)
        carried = lab_records.pack(state.aggregator)
        order = lab_records.Order(0, state.round, tuple(chosen), carried)
        arrays = lab_records.arrays_of(state.model)
        sent = [
            (device, _training_message(nodes[device], order, device, arrays)) for device in chosen
        ]
        if self.devices.settings.secure.mode == "off":
            return self._in_the_clear(sent, state, chosen)
        strategy = LabStrategy(self.devices, nodes, order, self.timeout, meter)
        return self._securely(strategy, sent, state)

    def evaluate(self, state: State) -> Sequence[Tally]:
        """How well the model serves each device: here, or where their u_i are."""
        everyone = list(range(self.devices.count))
        if not self.devices.settings.training.personalize:
            return self.pool.evaluate(state.model)
        tallies: dict[int, Tally] = {}
        nodes = self._nodes(everyone)
        shares = {
            node: tuple(device for device in everyone if nodes[device] == node)
            for node in set(nodes.values())
        }
        sent = [
            (
                node,
                self._tally_message(node, lab_records.Order(share[0], state.round, share), state),
            )
            for node, share in shares.items()
        ]
        for node, reply in send(self.grid, sent, self.timeout):
            tallies.update(zip(shares[node], _tallies(reply), strict=False))
        missing = [device for device in everyone if device not in tallies]
        if missing:
            msg = f"{len(missing)} devices were not evaluated: their nodes did not answer"
            raise TimeoutError(msg)
        return [tallies[device] for device in everyone]

    def flush(self) -> None:
        """Nodes keep what they keep before they answer."""

    def _in_the_clear(
        self, sent: list[Addressed], state: State, chosen: list[int]
    ) -> tuple[Outcome, Any]:
        """Aggregate updates that the server sees; those that do not come are left out."""
        rows = {device: row for row, device in enumerate(chosen)}
        updates = np.full((len(chosen), self.devices.dim), np.nan, np.float32)
        for device, reply in send(self.grid, sent, self.timeout):
            if reply.has_error():
                LOG.info("\t> device %s does not answer: %s", device, reply.error.reason)
            else:
                updates[rows[device]] = lab_records.model_of(reply) - state.model
        if self.noise:
            return aggregate_centrally(updates, self.noise, state.round, state.aggregator)
        weights, settings = self.devices.weights[chosen], self.devices.settings
        trusted = self.devices.server_update(state.model, state.round)
        carried = state.aggregator
        return aggregate(updates, weights, settings, state.round, carried, trusted=trusted)

    def _securely(
        self, strategy: LabStrategy, sent: list[Addressed], state: State
    ) -> tuple[Outcome, Any]:
        """Aggregate by secure sums, as the strategy does that users run."""
        try:
            done = strategy.train_round(
                self.grid,
                state.round + 1,
                sent,
                dim=self.devices.dim,
                timeout=self.timeout,
                state=state.aggregator,
            )
        except OracleStoppedError as error:
            raise RoundStoppedError(str(error), strategy.charges) from error
        dropped, lost = strategy.rows(done.abstained), strategy.rows(strategy.lost)
        outcome = dataclasses.replace(
            outcome_of(done.result), dropped=dropped, lost=lost, charges=strategy.charges
        )
        return outcome, done.state

    def _nodes(self, devices: Sequence[int]) -> dict[int, int]:
        """The node of each device: the same while the nodes are the same."""
        nodes = sorted(self.grid.get_node_ids())
        if not nodes:
            msg = "no node is there"
            raise RoundSkippedError(msg)
        return {device: nodes[device % len(nodes)] for device in devices}

    def _tally_message(self, node: int, order: lab_records.Order, state: State) -> Message:
        content = order.content(lab_records.arrays_of(state.model))
        return Message(content, dst_node_id=node, message_type=lab_records.TALLY)


def _training_message(
    node: int, order: lab_records.Order, device: int, arrays: ArrayRecord
) -> Message:
    content = dataclasses.replace(order, device=device).content(arrays)
    return Message(content, dst_node_id=node, message_type=records.TRAIN)


def _tallies(reply: Message) -> list[Tally]:
    """The tallies in a reply; none if it has none."""
    if reply.has_error():
        LOG.info("\t> devices are not evaluated: %s", reply.error.reason)
        return []
    numbers: Any = reply.content.metric_records["tallies"]["numbers"]
    size = len(Tally._fields)
    return [Tally(*numbers[start : start + size]) for start in range(0, len(numbers), size)]
