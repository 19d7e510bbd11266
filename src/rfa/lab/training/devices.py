"""The device side of the lab: training data, updates, and evaluation of models.

Everything here depends only on the settings, the round and the device, so any process can do it at
any time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats, Floats32
from rfa.aggregators.clear.trusted import HasReference
from rfa.errors import InvalidValueError
from rfa.lab.attacks.corruption import (
    Corruption,
    DataAttack,
    DataCorruption,
    draw_corrupted,
    poison,
)
from rfa.lab.attacks.registry import find_corruption
from rfa.lab.datasets.dataset import Population
from rfa.lab.learners.learner import Plan, is_finite
from rfa.lab.learners.scaled import Scale
from rfa.lab.randomness import stream
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.task import Task
from rfa.lab.training.answers import answers
from rfa.lab.training.batches import draw_batches
from rfa.secagg.weights import DIGITS, EQUAL, EXAMPLES, bucket, surrogate

TOGETHER = 1024
"""The number of examples that are evaluated together, so that scores stay in the cache."""


class Tally(NamedTuple):
    """The evaluation of a model on a device: sums over its clean examples.

    If only some examples are evaluated, the sums are scaled to all of them.

    Attributes:
        train_loss: the sum of the losses on training examples.
        train_count: the number of training examples.
        correct: the number of test examples that are classified correctly.
        test_loss: the sum of the losses on test examples.
        test_count: the number of test examples.
        fooled: the number of test examples of other classes for which the trigger of a backdoor, if
            there is one, makes the model predict its target.
        stamped: the number of test examples of other classes; 0 without a backdoor.
    """

    train_loss: float
    train_count: int
    correct: float
    test_loss: float
    test_count: int
    fooled: float = 0.0
    stamped: float = 0.0


class Devices:
    """All devices of a run.

    Attributes:
        is_corrupted: which of them are corrupted in all rounds; `corrupted_in` also covers
            attackers that change.
        examples: the number of training examples of each.
        weights: the weight of each.
    """

    def __init__(self, settings: Settings, task: Task, population: Population) -> None:
        self.settings, self.task, self.population = settings, task, population
        self.count = _count(settings, task, population)
        self.learner = task.learner(settings.training.device)
        self.dim = self.learner.dim
        self._x, self._y = np.asarray(population.x), np.asarray(population.y)  # slices cost less
        self._initial = self.learner.initial(stream(settings.seed, "initial"))
        self.starts = population.offsets[: self.count]
        self.trains, self.stops = _spans(settings, population, self.count)
        self.examples: Floats = (self.trains - self.starts).astype(np.float64)
        self.weights = _weigh(self.examples, settings)
        self.corruption: Corruption | None = find_corruption(
            settings.attack.corruption, task.poisons
        )
        self.is_corrupted = self._draw_corrupted()
        self._drawn = -1, self.is_corrupted

    def initial(self) -> Floats32:
        """Return the first model w^(0)."""
        return self._initial.copy()

    def sample(self, t: int, without: Sequence[int] = ()) -> list[int]:
        """Return the m devices of round t, without replacement (line 2 of Algorithm 1)."""
        rng, pool = stream(self.settings.seed, "sample", t), np.arange(self.count)
        pool = np.delete(pool, list(without))
        cohort = min(self.settings.training.devices_per_round, len(pool))
        chosen = rng.choice(pool, cohort, replace=False)
        return [int(device) for device in np.sort(chosen)]

    def corrupted_in(self, t: int) -> NDArray[np.bool_]:
        """Return which devices are corrupted in round t."""
        if self.settings.attack.attackers == "fixed":
            return self.is_corrupted
        when, drawn = self._drawn
        if when != t:
            drawn = self._draw_corrupted(t)
            self._drawn = t, drawn
        return drawn

    @property
    def is_honest(self) -> NDArray[np.bool_]:
        """Which devices are not corrupted in this run.

        These are all devices if attackers are drawn again in each round.
        """
        if self.settings.attack.attackers == "fixed":
            return ~self.is_corrupted
        return np.ones(self.count, np.bool_)

    def take_part(
        self, w: Floats32, kept: Floats32 | None, t: int, device: int
    ) -> tuple[Floats32, Floats32 | None]:
        """Return what a device sends in round t, and what it keeps until it takes part again.

        With worker momentum it sends m_i = beta m_i + (1 - beta) Delta_i, and Delta_i the first
        time. A vector that is not finite is sent, for the server to drop, and not kept: the device
        continues from the earlier m_i.

        Args:
            w: the model.
            kept: the vector that the device kept: its u_i or m_i; None if it has none yet.
            t: the round.
            device: the device.

        Returns:
            The vector that it sends; and the vector that it keeps, None for no change.
        """
        training = self.settings.training
        if training.personalize:
            return self.train_personal(w, np.zeros_like(w) if kept is None else kept, t, device)
        sent, beta = self.train(w, t, device), training.worker_momentum
        if not beta:
            return sent, None
        if kept is not None:
            sent = (beta * kept + (1 - beta) * sent).astype(np.float32, copy=False)
        return sent, sent if is_finite(sent) else None

    def train(self, w: Floats32, t: int, device: int) -> Floats32:
        """Return the update of a device in round t: lines 4 to 9 of Algorithm 1."""
        x, y, keep = self._training_data(w, t, device)
        return self.learner.train(w, x, y, self._plan(t, device, "batches", len(y), keep=keep))

    def server_update(self, w: Floats32, t: int) -> Floats32 | None:
        """Return the server's own update in round t, if its aggregator needs one.

        The server trains like a device, on clean training examples of all devices, drawn at random
        once per run.
        """
        aggregator = self.settings.aggregation
        if not isinstance(aggregator, HasReference):
            return None
        rows = self._server_rows(aggregator.examples)
        x, y = np.asarray(self.task.prepare(self._x[rows])), self._y[rows]
        rng, training = stream(self.settings.seed, "server", t), self.settings.training
        batches, rate = draw_batches(len(rows), training, rng), training.learning_rate_in(t)
        plan = Plan(batches, rate, training.tail_average, training.proximal_mu)
        return self.learner.train(w, x, y, plan)

    def _server_rows(self, count: int) -> NDArray[np.int64]:
        """Return the training examples of the server."""
        total = int(self.examples.sum())
        if count > total:
            msg = f"the server cannot have examples={count}: all devices together have {total}"
            raise InvalidValueError(msg)
        ends = np.cumsum(self.examples).astype(np.int64)
        drawn = stream(self.settings.seed, "server").choice(total, count, replace=False)
        device = np.searchsorted(ends, drawn, side="right")
        return np.sort(self.trains[device] - ends[device] + drawn)

    def train_personal(
        self, w: Floats32, u: Floats32, t: int, device: int
    ) -> tuple[Floats32, Floats32]:
        """Return the update of a device and its new u_i: Algorithm 4.

        Both loops are local SGD from w + u. The first changes u, and the second w, using the
        residual of the new u. A proximal term pulls each loop back to its start: the first to the
        old u, the second to w.
        """
        x, y, keep = self._training_data(w, t, device)
        plan = self._plan(t, device, "personal", len(y), keep=keep)
        u = u + self.learner.train(w + u, x, y, plan)
        plan = self._plan(t, device, "batches", len(y), keep=keep)
        return self.learner.train(w + u, x, y, plan), u

    def evaluate(self, w: Floats32, device: int) -> Tally:
        """Return losses and correct predictions of a model on a device."""
        return self.evaluate_all(w, [device])[0]

    def evaluate_all(self, w: Floats32, devices: Sequence[int]) -> list[Tally]:
        """Return the tally of each device, as `evaluate` does, but faster."""
        tallies: list[Tally] = []
        parts: list[Floats32] = []
        first, rows = 0, 0
        for i, device in enumerate(devices):
            for start, stop in self._evaluated(device):
                parts.append(self.learner.scores(w, self._examples(start, stop)))
                rows += stop - start
            if rows >= TOGETHER or i == len(devices) - 1:
                tallies += self._tallies(w, devices[first : i + 1], parts)
                parts, first, rows = [], i + 1, 0
        return tallies

    def cost(self, device: int) -> int:
        """Return the amount of work of a device, to distribute it."""
        return int(self.stops[device] - self.starts[device])

    def _rows(self, device: int) -> tuple[int, int, int]:
        return int(self.starts[device]), int(self.trains[device]), int(self.stops[device])

    def _examples(self, start: int, stop: int) -> Any:
        """Return examples in the form that the learner reads."""
        prepare, kept = self.task.prepare, self._x[start:stop]
        if self.learner.takes_scaled and isinstance(prepare, Scale):
            return prepare.later(kept)
        return np.asarray(prepare(kept))

    def _training_data(self, w: Floats32, t: int, device: int) -> tuple[Any, Any, bool]:
        """Return the examples to train on, and whether they are the same in every round."""
        start, train, _ = self._rows(device)
        y = self._y[start:train]
        if not isinstance(self.corruption, DataCorruption) or not self.corrupted_in(t)[device]:
            return self._examples(start, train), y, True
        x = np.asarray(self.task.prepare(self._x[start:train]))
        adaptive = self.corruption.adaptive
        known, when = (w.copy(), t) if adaptive else (self.initial(), 0)
        attack = DataAttack(
            round=when,
            device=device,
            classes=self.learner.classes,
            model=known,
            scores=lambda examples: self.learner.scores(known, examples),
            rng=stream(self.settings.seed, "poison", device, when),
        )
        x, y = poison(self.corruption, x, y, attack)
        return x, y, not adaptive and self.settings.attack.attackers == "fixed"

    def _plan(self, t: int, device: int, purpose: str, count: int, *, keep: bool) -> Plan:
        rng = stream(self.settings.seed, purpose, t, device)
        batches = draw_batches(count, self.settings.training, rng)
        training = self.settings.training
        return Plan(
            batches,
            training.learning_rate_in(t),
            training.tail_average,
            training.proximal_mu,
            key=device if keep else None,
        )

    def _evaluated(self, device: int) -> tuple[tuple[int, int], ...]:
        """Return the rows on which a device is evaluated, those to train on first."""
        start, train, stop = self._rows(device)
        limit = self.settings.evaluation.examples or stop - start
        trains, tests = start + min(limit, train - start), train + min(limit, stop - train)
        return ((start, tests),) if trains == train else ((start, trains), (train, tests))

    def _tallies(
        self, w: Floats32, devices: Sequence[int], parts: Sequence[Floats32]
    ) -> list[Tally]:
        """Return the tallies of devices from the scores of all their evaluated examples."""
        spans = [self._evaluated(device) for device in devices]
        labels = [self._y[start:stop] for each in spans for start, stop in each]
        losses, right = answers(parts, np.concatenate(labels).astype(np.int64))
        tallies: list[Tally] = []
        middle = end = 0
        for device, each in zip(devices, spans, strict=True):
            start, train, stop = self._rows(device)
            begin, tests = end, each[-1][1]
            middle = begin + min(train, each[0][1]) - start
            end = middle + tests - train
            tally = Tally(
                (train - start) * _mean(np.add.reduce(losses[begin:middle]), middle - begin),
                train - start,
                (stop - train) * _mean(np.count_nonzero(right[middle:end]), end - middle),
                (stop - train) * _mean(np.add.reduce(losses[middle:end]), end - middle),
                stop - train,
                *((stop - train) * share for share in self._backdoor(w, train, tests)),
            )
            tallies.append(tally)
        return tallies

    def _backdoor(self, w: Floats32, start: int, stop: int) -> tuple[float, float]:
        """Return the fractions of examples that the trigger misleads, and of other classes."""
        trigger = self.corruption.trigger if isinstance(self.corruption, DataCorruption) else None
        if trigger is None:
            return 0.0, 0.0
        x = trigger.stamp(np.array(self.task.prepare(self._x[start:stop])))
        others = self._y[start:stop] != trigger.target
        fooled = self.learner.scores(w, x).argmax(axis=1) == trigger.target
        return float((fooled & others).mean()), float(others.mean())

    def _draw_corrupted(self, *when: int) -> NDArray[np.bool_]:
        drawn = draw_corrupted(self.examples, self.settings.attack.rho, self.settings.seed, *when)
        return np.isin(np.arange(self.count), drawn)


def _weigh(examples: Floats, settings: Settings) -> Floats:
    """Return the weights of devices; each draws its surrogate once per run, from its own stream."""
    mode = settings.training.weights
    if mode == EQUAL:
        return np.ones(len(examples))
    if mode == EXAMPLES:
        return examples
    cap = surrogate(float(examples.max()), 0)  # the next power of two
    drawn = (stream(settings.seed, "bucket", device) for device in range(len(examples)))
    thresholds = (int(rng.integers(1 << DIGITS)) for rng in drawn)
    stand = map(surrogate, examples.tolist(), thresholds)
    return np.array([bucket(each, cap) for each in stand])


def _mean(total: Any, count: int) -> float:
    return float(total) / count if count else math.nan


def _count(settings: Settings, task: Task, population: Population) -> int:
    count = settings.training.devices or min(task.devices, len(population))
    if count > len(population):
        msg = f"devices={count}: the data has only {len(population)}"
        raise InvalidValueError(msg)
    cohort = settings.training.devices_per_round
    if cohort > count:
        msg = f"devices_per_round={cohort} of {count} devices: give at most {count}"
        raise InvalidValueError(msg)
    return count


def _spans(settings: Settings, population: Population, count: int) -> tuple[Any, Any]:
    """Return where the training examples of each device end, and those for testing."""
    starts, ends = population.offsets[:count], population.offsets[1 : count + 1]
    trains = population.train[:count]
    if not settings.evaluation.holdout:
        return starts + trains, ends
    held = np.clip(np.round(settings.evaluation.holdout * trains), 1, trains - 1).astype(np.int64)
    return starts + trains - held, starts + trains
