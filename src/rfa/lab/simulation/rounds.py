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
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rfa._plugins import describe_failure
from rfa._specs import parse_spec
from rfa._types import Floats32
from rfa.errors import OracleStoppedError, RfaError
from rfa.lab.attacks.corruption import SumCorruption, UpdateAttack, forge
from rfa.lab.attacks.liars import honest_mean
from rfa.lab.randomness import stream
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.aggregation import aggregate
from rfa.lab.simulation.defense import Defense, is_too_large
from rfa.lab.simulation.evaluation import Evaluation
from rfa.lab.simulation.ledger import left_out, suspect
from rfa.lab.simulation.outcome import (
    AggregatorError,
    NothingToAggregateError,
    Outcome,
    RoundStoppedError,
)
from rfa.lab.simulation.server_optimizer import ServerState, server_step
from rfa.lab.simulation.sybils import corrupted_rows, join_sybils, weigh_all, without_sybils
from rfa.lab.training.devices import Devices, Tally
from rfa.lab.training.kept import Slots
from rfa.lab.training.pool import WorkerPool
from rfa.privacy import Charges

if TYPE_CHECKING:
    from rfa.lab.simulation.liars import Liars
    from rfa.lab.simulation.meter import Meter
    from rfa.lab.simulation.noise import RunNoise
    from rfa.secagg.server.suspicion import Suspicion

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
        charges: what devices were charged for sums with noise.
        suspicion: the ledger of who lies inside sums, where liars are left out.
    """

    round: int
    model: Floats32
    server: ServerState = field(default_factory=ServerState)
    calls: int = 0
    rejected: int = 0
    dropped: int = 0
    stopped: int = 0
    aggregator: Any = None
    charges: Charges = field(default_factory=Charges)
    suspicion: Suspicion | None = None


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
        epsilon_server: the privacy spent so far against the server, by the device that was charged
            most; None where sums have no noise, or a trusted server adds it.
    """

    round: int
    devices: tuple[int, ...]
    corrupted: tuple[int, ...]
    dropped: tuple[int, ...]
    outcome: Outcome | None
    norm: float
    rejected: bool
    stopped: str = ""
    epsilon_server: float | None = None

    @property
    def lost(self) -> tuple[int, ...]:
        """Who dropped out of the secure sum, where it gave something."""
        rows = self.outcome.lost if self.outcome else ()
        return tuple(self.devices[row] for row in rows)


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
            BudgetSpentError: if a device has too little left of its privacy budget.
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
        noise: the noise of the sums, as the settings ask for it.
    """

    devices: Devices
    pool: WorkerPool
    slots: Slots | None = None
    noise: RunNoise | None = None

    def __post_init__(self) -> None:
        """Plan the noise, where there is some and no plan is given."""
        if self.devices.settings.privacy.is_on and self.noise is None:
            from rfa.lab.simulation.noise import noise_of  # noqa: PLC0415 it loads ciphers

            object.__setattr__(self, "noise", noise_of(self.devices))

    def collect(self, state: State, chosen: list[int]) -> tuple[Outcome, Any]:
        """Train, corrupt and aggregate."""
        settings, weights, when = self.devices.settings, self.devices.weights, state.round
        meter = self._meter(state, chosen)
        updates = join_sybils(self.pool.train(state.model, when, chosen, self.slots), settings)
        corrupt(updates, chosen, state, self.devices)
        if self.noise and settings.privacy.is_central:
            from rfa.lab.simulation.central import aggregate_centrally  # noqa: PLC0415 rarely used

            return aggregate_centrally(updates, self.noise, when, state.aggregator)
        if settings.secure.mode == "off":
            trusted = self.devices.server_update(state.model, when)
            weighed, carried = weigh_all(weights[chosen], settings), state.aggregator
            outcome, after = aggregate(updates, weighed, settings, when, carried, trusted=trusted)
            return without_sybils(outcome, len(chosen)), after
        from rfa.lab.simulation.secure import aggregate_securely  # noqa: PLC0415 it loads ciphers

        alpha, carried = weights[chosen] / weights.max(), state.aggregator
        liars = self._liars(updates, chosen, when)
        return aggregate_securely(updates, alpha, settings, when, carried, meter=meter, liars=liars)

    def _liars(self, updates: Floats32, chosen: list[int], t: int) -> Liars | None:
        """Who lies inside the sums of a round, if anybody does."""
        corruption = self.devices.corruption
        rows = np.flatnonzero(self.devices.corrupted_in(t)[chosen])
        if not isinstance(corruption, SumCorruption) or not rows.size:
            return None
        from rfa.lab.simulation.liars import Liars  # noqa: PLC0415 it loads ciphers

        mean = honest_mean(updates, self.devices.weights[chosen], rows)
        return Liars(frozenset(rows.tolist()), corruption.lie, mean)

    def _meter(self, state: State, chosen: list[int]) -> Meter | None:
        """What charges the devices of a round that add noise, if they can pay for it."""
        if self.noise is None:
            return None
        from rfa.lab.simulation.meter import meter_of  # noqa: PLC0415 it loads ciphers

        return meter_of(self.noise, chosen, state.charges, state.round)

    def evaluate(self, state: State) -> Sequence[Tally]:
        """How well the model serves each device."""
        return self.pool.evaluate(state.model, self.slots)

    def flush(self) -> None:
        """Make sure that what devices keep is on disk."""
        self.pool.flush()


def play_round(state: State, devices: Devices, engine: Engine) -> tuple[State, Facts]:
    """The next state, and what happened on the way.

    Raises:
        BudgetSpentError: if the round would cost a device more than its privacy budget.
    """
    settings = devices.settings
    chosen = devices.sample(state.round, without=left_out(state.suspicion, devices.count))
    outcome, carried, stopped, charges = None, state.aggregator, "", state.charges
    try:
        outcome, carried = engine.collect(state, chosen)
        charges = outcome.charges or charges
    except NothingToAggregateError:
        pass
    except OracleStoppedError as error:
        stopped = str(error)
        charges = (error.charges if isinstance(error, RoundStoppedError) else None) or charges
    except Exception as error:
        if isinstance(error, RfaError) or not parse_spec(settings.aggregator).is_plugin:
            raise
        name, cause = settings.aggregator, describe_failure(error)
        msg = f"aggregator {name} failed in round {state.round + 1}: {cause}"
        raise AggregatorError(msg) from error
    facts = _facts(state, devices, chosen, outcome, stopped)
    facts = replace(facts, epsilon_server=spent(charges, settings))
    after = replace(
        state,
        round=state.round + 1,
        calls=state.calls + (outcome.calls if outcome else 1),
        rejected=state.rejected + facts.rejected,
        dropped=state.dropped + len(facts.dropped),
        stopped=state.stopped + bool(stopped),
        aggregator=carried,
        charges=charges,
        suspicion=suspect(state.suspicion, outcome, chosen),
    )
    if outcome is None or facts.rejected:
        return after, facts
    model, server = server_step(state.model, outcome.point, state.server, settings)
    return replace(after, model=model, server=server), facts


def spent(charges: Charges, settings: Settings) -> float | None:
    """The privacy that charges come to against the server; None where they say nothing of it."""
    privacy = settings.privacy
    return charges.epsilon(privacy.delta) if privacy.is_on and not privacy.is_central else None


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
    settings, t, corruption = devices.settings, state.round, devices.corruption
    bad = corrupted_rows(devices.corrupted_in(t)[chosen], settings)
    if corruption is None or corruption.forge is None or not bad.size:
        return
    view = updates.view()
    view.flags.writeable = False
    weights = weigh_all(devices.weights[chosen], settings)
    trusted = devices.server_update(state.model, t)
    attack = UpdateAttack(
        round=t,
        model=state.model.copy(),
        updates=view,
        weights=weights,
        corrupted=bad,
        rng=stream(settings.seed, "forge", t),
        aggregate=Defense(view, weights, bad, settings, t, state.aggregator, trusted),
    )
    updates[bad] = forge(corruption, attack, settings.attack.corruption)


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
