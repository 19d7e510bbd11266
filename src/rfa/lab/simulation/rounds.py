"""Algorithm 1: a round, from the choice of devices to the next model.

A round is a function of the state and the settings: sample m devices, let them train, let the
corrupted ones send what they like, aggregate the updates, take the server's step. The rules of the
paper's runs are here too: updates that are not finite are left out, and an aggregate that is too
large is rejected, so that the round keeps the old model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rfa._plugins import describe_failure
from rfa._specs import parse_spec
from rfa._types import Floats, Floats32
from rfa.errors import OracleStoppedError, RfaError
from rfa.lab.attacks.corruption import UpdateAttack, UpdateCorruption, forge
from rfa.lab.randomness import stream
from rfa.lab.simulation.aggregation import aggregate
from rfa.lab.simulation.defense import Defense, is_too_large
from rfa.lab.simulation.outcome import AggregatorError, NothingToAggregateError, Outcome
from rfa.lab.simulation.server_optimizer import ServerState, server_step
from rfa.lab.training.devices import Devices, Tally
from rfa.lab.training.kept import Slots
from rfa.lab.training.pool import WorkerPool

BLOCK = 1 << 16
"""Numbers that are brought to double precision at a time."""


@dataclass(frozen=True)
class State:
    """Where a run is.

    Attributes:
        round: how many rounds are done.
        model: the model w^(t).
        server: what the server's optimizer keeps.
        calls: calls of the secure average oracle so far.
        rejected: rounds whose aggregate was rejected so far.
        dropped: updates that were left out because they are not finite, so far.
        stopped: rounds in which the secure sum gave nothing, so far.
        aggregator: what the aggregator carries, such as a learned radius.
    """

    round: int
    model: Floats32
    server: ServerState = field(default_factory=ServerState)
    calls: int = 0
    rejected: int = 0
    dropped: int = 0
    stopped: int = 0
    aggregator: Any = None


@dataclass(frozen=True)
class Facts:
    """What happened in a round; some of it only a lab can know.

    Attributes:
        round: the number of the round, from 1.
        devices: who took part.
        corrupted: which of them are corrupted.
        dropped: which of them sent an update that is not finite.
        outcome: what the aggregator made of the updates; None if it made nothing.
        norm: the norm of the aggregate.
        rejected: whether the aggregate was rejected.
        stopped: why the secure sum gave nothing, if so.
    """

    round: int
    devices: tuple[int, ...]
    corrupted: tuple[int, ...]
    dropped: tuple[int, ...]
    outcome: Outcome | None
    norm: float
    rejected: bool
    stopped: str = ""

    @property
    def lost(self) -> tuple[int, ...]:
        """Who dropped out of the secure sum, where it gave something."""
        rows = self.outcome.lost if self.outcome else ()
        return tuple(self.devices[row] for row in rows)


@dataclass(frozen=True)
class Evaluation:
    """How well a model serves the devices, on clean data.

    Attributes:
        round: after how many rounds.
        calls: calls of the secure average oracle so far.
        test_accuracy: over all test examples, from 0 to 1.
        honest_accuracy: over the test examples of honest devices, those that are not corrupted in
            this run; NaN where there are none. With attackers drawn anew in each round no device is
            corrupted for good, and this is the accuracy over all.
        test_loss: their mean loss.
        train_loss: the mean loss over all training examples, the objective F.
        device_accuracy: the test accuracy of each device.
        is_honest: which devices are honest.
        backdoor: the share of the test examples of other classes that a trigger puts into its
            target class; None where there is no backdoor.
    """

    round: int
    calls: int
    test_accuracy: float
    honest_accuracy: float
    test_loss: float
    train_loss: float
    device_accuracy: Floats
    is_honest: NDArray[np.bool_]
    backdoor: float | None = None

    @property
    def median_device(self) -> float:
        """The accuracy of the median device."""
        return _median(self.device_accuracy)

    @property
    def worst_tenth(self) -> float:
        """The mean accuracy of the worst tenth of the devices."""
        return _worst_tenth(self.device_accuracy)

    @property
    def honest_median_device(self) -> float:
        """The accuracy of the median honest device."""
        return _median(self.device_accuracy[self.is_honest])

    @property
    def honest_worst_tenth(self) -> float:
        """The mean accuracy of the worst tenth of the honest devices."""
        return _worst_tenth(self.device_accuracy[self.is_honest])


def _median(accuracies: Floats) -> float:
    return float(np.median(accuracies)) if accuracies.size else math.nan


def _worst_tenth(accuracies: Floats) -> float:
    tenth = max(1, round(len(accuracies) / 10))
    return float(np.sort(accuracies)[:tenth].mean()) if accuracies.size else math.nan


class Engine(Protocol):
    """Where devices train: in processes of this machine, or on the nodes of a federation."""

    @property
    def devices(self) -> Devices:
        """The devices."""
        ...

    def collect(self, state: State, chosen: list[int]) -> tuple[Outcome, Any]:
        """Let devices train from the model of a state, and aggregate what they send.

        Returns:
            The outcome, and what the aggregator carries to the next round.

        Raises:
            NothingToAggregateError: if no update is finite.
            OracleStoppedError: if the secure sum gives nothing.
        """
        ...

    def evaluate(self, state: State) -> Sequence[Tally]:
        """How well the model serves each device of the population, in order."""
        ...

    def flush(self) -> None:
        """Make sure that what devices keep is on disk."""
        ...


@dataclass(frozen=True)
class LocalEngine:
    """Devices in the worker processes of a pool.

    Attributes:
        devices: the devices.
        pool: the workers.
        slots: where what devices keep is, if they keep anything.
    """

    devices: Devices
    pool: WorkerPool
    slots: Slots | None = None

    def collect(self, state: State, chosen: list[int]) -> tuple[Outcome, Any]:
        """Train, corrupt and aggregate."""
        updates = self.pool.train(state.model, state.round, chosen, self.slots)
        corrupt(updates, chosen, state, self.devices)
        settings, weights, when = self.devices.settings, self.devices.weights, state.round
        if settings.secure.mode == "off":
            return aggregate(updates, weights[chosen], settings, when, state.aggregator)
        from rfa.lab.simulation.secure import aggregate_securely  # noqa: PLC0415 it loads ciphers

        alpha = weights[chosen] / weights.max()
        return aggregate_securely(updates, alpha, settings, when, state.aggregator)

    def evaluate(self, state: State) -> Sequence[Tally]:
        """How well the model serves each device."""
        return self.pool.evaluate(state.model, self.slots)

    def flush(self) -> None:
        """Make sure that what devices keep is on disk."""
        self.pool.flush()


def play_round(state: State, devices: Devices, engine: Engine) -> tuple[State, Facts]:
    """The next state, and what happened on the way."""
    settings = devices.settings
    chosen = devices.sample(state.round)
    outcome, carried, stopped = None, state.aggregator, ""
    try:
        outcome, carried = engine.collect(state, chosen)
    except NothingToAggregateError:
        pass
    except OracleStoppedError as error:
        stopped = str(error)
    except Exception as error:
        if isinstance(error, RfaError) or not parse_spec(settings.aggregator).is_plugin:
            raise
        name, cause = settings.aggregator, describe_failure(error)
        msg = f"aggregator {name} failed in round {state.round + 1}: {cause}"
        raise AggregatorError(msg) from error
    facts = _facts(state, devices, chosen, outcome, stopped)
    after = replace(
        state,
        round=state.round + 1,
        calls=state.calls + (outcome.calls if outcome else 1),
        rejected=state.rejected + facts.rejected,
        dropped=state.dropped + len(facts.dropped),
        stopped=state.stopped + bool(stopped),
        aggregator=carried,
    )
    if outcome is None or facts.rejected:
        return after, facts
    model, server = server_step(state.model, outcome.point, state.server, settings)
    return replace(after, model=model, server=server), facts


def evaluate(state: State, engine: Engine) -> Evaluation:
    """Evaluate the model on all devices, weighted by their examples."""
    return summarize(state, engine.evaluate(state), engine.devices.is_honest)


def summarize(state: State, tallies: Sequence[Tally], is_honest: NDArray[np.bool_]) -> Evaluation:
    """The evaluation that the tallies of all devices make, some of them honest."""
    honest = [tally for tally, good in zip(tallies, is_honest, strict=True) if good]
    tests = sum(tally.test_count for tally in tallies)
    trains = sum(tally.train_count for tally in tallies)
    stamped = sum(tally.stamped for tally in tallies)
    return Evaluation(
        round=state.round,
        calls=state.calls,
        test_accuracy=_accuracy(tallies),
        honest_accuracy=_accuracy(honest),
        test_loss=sum(tally.test_loss for tally in tallies) / tests,
        train_loss=sum(tally.train_loss for tally in tallies) / trains,
        device_accuracy=np.array([tally.correct / tally.test_count for tally in tallies]),
        is_honest=is_honest,
        backdoor=sum(tally.fooled for tally in tallies) / stamped if stamped else None,
    )


def _accuracy(tallies: Sequence[Tally]) -> float:
    tests = sum(tally.test_count for tally in tallies)
    return sum(tally.correct for tally in tallies) / tests if tests else math.nan


def corrupt(updates: Floats32, chosen: list[int], state: State, devices: Devices) -> None:
    """Put what the corrupted devices send in the place of what they would have sent."""
    bad = np.flatnonzero(devices.corrupted_in(state.round)[chosen])
    if not isinstance(devices.corruption, UpdateCorruption) or not bad.size:
        return
    view = updates.view()
    view.flags.writeable = False
    weights = devices.weights[chosen]
    attack = UpdateAttack(
        round=state.round,
        model=state.model.copy(),
        updates=view,
        weights=weights,
        corrupted=bad,
        rng=stream(devices.settings.seed, "forge", state.round),
        aggregate=Defense(view, weights, bad, devices.settings, state.round, state.aggregator),
    )
    updates[bad] = forge(devices.corruption, attack, devices.settings.attack.corruption)


def _facts(
    state: State, devices: Devices, chosen: list[int], outcome: Outcome | None, stopped: str
) -> Facts:
    is_corrupted = devices.corrupted_in(state.round)
    norm, dropped = math.nan, () if stopped else range(len(chosen))
    if outcome is not None:
        norm = _norm(outcome.point)
        dropped = outcome.dropped
    return Facts(
        round=state.round + 1,
        devices=tuple(chosen),
        corrupted=tuple(device for device in chosen if is_corrupted[device]),
        dropped=tuple(chosen[row] for row in dropped),
        outcome=outcome,
        norm=norm,
        rejected=not stopped and is_too_large(norm, devices.settings),
        stopped=stopped,
    )


def _norm(point: Floats32) -> float:
    """The norm in double precision, block by block: a copy of a large vector takes much longer."""
    squares = 0.0
    for i in range(0, len(point), BLOCK):
        block = point[i : i + BLOCK].astype(np.float64)
        squares += float(block @ block)
    return math.sqrt(squares)
