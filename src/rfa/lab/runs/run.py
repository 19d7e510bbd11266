"""A run from its settings to its results: rounds, evaluations, checkpoints, and going on.

Every random choice comes from a stream that the settings and the round name, so a checkpoint is the
state and nothing else, and a run that was killed ends bit for bit as one that was not.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import importlib.metadata
import json
import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rfa._threads import cores
from rfa.lab.datasets.cache import data_dir
from rfa.lab.lock import LockedError, hold_lock
from rfa.lab.runs import checkpoint as checkpoints
from rfa.lab.runs.callback import Callback, Callbacks, RunView
from rfa.lab.runs.checkpoint import ANEW, Checkpoint, CheckpointError
from rfa.lab.runs.digest import begin_digest, finish_digest
from rfa.lab.runs.origin import origin
from rfa.lab.runs.spent import epsilons, plan_of
from rfa.lab.runs.store import DONE, LOCK, MEASURES, SPENT, STOPPED, Store
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.outcome import BudgetSpentError
from rfa.lab.simulation.rounds import (
    Engine,
    Evaluation,
    Facts,
    LocalEngine,
    State,
    evaluate,
    play_round,
)
from rfa.lab.tasks.registry import find_task
from rfa.lab.training.devices import Devices
from rfa.lab.training.kept import KeptFile, Slots
from rfa.lab.training.pool import WorkerPool, open_pool, pool_of_one, prepare_workers

if TYPE_CHECKING:
    from rfa.lab.simulation.noise import RunNoise

VERSION = importlib.metadata.version("rfa")
CHECKPOINT, KEPT = "checkpoint.npz", "{}.f32"


@dataclass(frozen=True)
class Options:
    """How a run is done; these options do not change its numbers.

    Attributes:
        out: the folder of results.
        data: the folder of data sets; by default RFA_DATA.
        workers: the number of worker processes; by default one per processor.
        checkpoint_every: rounds between two checkpoints.
        fresh: do the run again, even if it is done or interrupted.
        rebuild: also read the data set again, instead of the cache.
        in_process: train devices in this process, which must do nothing else, with one thread.
    """

    out: Path
    data: Path | None = None
    workers: int = 0
    checkpoint_every: int = 10
    fresh: bool = False
    rebuild: bool = False
    in_process: bool = False


MakeEngine = Callable[[Devices, WorkerPool], Engine]


def run(
    settings: Settings,
    options: Options,
    callbacks: Sequence[Callback] = (),
    make_engine: MakeEngine | None = None,
) -> dict[str, Any]:
    """Do a run, or the rest of it, and return its row of the store.

    Args:
        settings: the settings.
        options: how it is done.
        callbacks: objects that observe the run and may stop it.
        make_engine: makes the engine, if devices train elsewhere than in the workers here.

    Raises:
        DataError, AttackError, CheckpointError, StoreError, WorkerError, LockedError: each
            with a message for the user.
        ValueError: if the settings do not fit the data.
        InvalidTypeError: if a callback is none.
    """
    told = Callbacks(callbacks)
    name, folder = settings.run_name, options.out / settings.run_name
    task = find_task(settings.task)
    if not options.in_process and (options.fresh or not (folder / CHECKPOINT).exists()):
        prepare_workers(task)  # while this process imports and reads what it needs
    population = task.load(
        data_dir(options.data),
        partition=settings.training.partition,
        devices=settings.training.devices,
        rebuild=options.rebuild,
        on_progress=told.on_status,
    )
    devices = Devices(settings, task, population)
    noise = plan_of(devices)
    with Store(options.out) as store:
        folder.mkdir(parents=True, exist_ok=True)
        busy = f"{name} is being run by another process: wait for it, or give another --out"
        with hold_lock(folder / LOCK, LockedError(busy)):
            if options.fresh:
                _forget(folder)
            loop = RunLoop(name, folder, devices, store, options, told, make_engine, noise)
            data = finish_digest(begin_digest(population), settings, devices.count)
            loop.run(data, task.note(population.names))
        return store.runs(run=name)[0]


@dataclass
class RunLoop:
    """The rounds of a run, with its evaluations, checkpoints and results."""

    name: str
    folder: Path
    devices: Devices
    store: Store
    options: Options
    callbacks: Callbacks
    make_engine: MakeEngine | None
    noise: RunNoise | None = None
    rounds: list[Facts] = field(default_factory=list[Facts])
    evaluations: list[tuple[Evaluation, float]] = field(
        default_factory=list[tuple[Evaluation, float]]
    )
    began: float = 0.0
    before: float = 0.0
    first_loss: float = math.nan
    slots: Slots | None = None
    data: str = ""
    last: Evaluation | None = None
    state: State = field(init=False)
    stop_reason: str | None = None
    spent: str = ""

    def run(self, data: str, note: str) -> None:
        """Play the rounds from the last checkpoint to the end."""
        self.data = data
        saved = checkpoints.load(self.folder / CHECKPOINT, self.devices.settings.aggregation)
        if saved is not None and saved.data != data:
            msg = f"the data, or your own code, has changed since {self.name} began: {ANEW}"
            raise CheckpointError(msg)
        known = self.store.runs(run=self.name)
        if saved is not None and known:
            if saved.done:
                return
            if known[0]["version"] != VERSION:
                msg = f"{self.name} was begun by version {known[0]['version']}: "
                msg += f"go on with that one, or {ANEW}"
                raise CheckpointError(msg)
            self._resume(saved)
        else:
            saved = None
            _forget(self.folder)
            names = self.devices.population.names[: self.devices.count]
            self.store.begin(self.name, self.devices.settings, self._about(note), names)
        here = self.devices.settings.training.keeps and not self.make_engine
        if here and self.slots is None:
            self.slots = Slots.none(self.devices.count)
        with self._engine() as engine:
            self.began = time.perf_counter()
            self.state = saved.state if saved else State(0, self.devices.initial())
            self._go_on(self._view(resumed=saved is not None), engine)

    def _resume(self, saved: Checkpoint) -> None:
        sizes = self.devices.count, self.devices.dim
        if saved.slots is not None and not KeptFile.is_complete(self._kept, *sizes):
            msg = f"what devices keep in {self._kept} is not complete: {ANEW}"
            raise CheckpointError(msg)
        self.store.rewind(self.name, saved.state.round)
        self.before, self.first_loss = saved.seconds, saved.first_loss
        if saved.slots is not None:
            self.slots = Slots(saved.slots)

    @property
    def _kept(self) -> Path:
        return self.folder / KEPT.format(self.devices.settings.training.keeps)

    def _about(self, note: str) -> dict[str, Any]:
        return {
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "version": VERSION,
            "origin": json.dumps(origin()),
            "devices": self.devices.count,
            "corrupted_devices": int(self.devices.corrupted_in(0).sum()),
            "personalized": self.devices.settings.training.personalize,
            "corrupted": json.dumps(np.flatnonzero(~self.devices.is_honest).tolist()),
            "note": note,
            "data": self.data,
            "noise_multiplier": self.noise.multiplier if self.noise else None,
        }

    @contextlib.contextmanager
    def _engine(self) -> Generator[Engine]:
        self.callbacks.on_status("starting the workers")
        workers, kept = self.options.workers or cores(), self._kept if self.slots else None
        here = pool_of_one(self.devices, kept=kept) if self.options.in_process else None
        with here or open_pool(self.devices, workers, kept=kept) as pool:
            local = LocalEngine(self.devices, pool, self.slots, self.noise)
            yield self.make_engine(self.devices, pool) if self.make_engine else local

    def _view(self, *, resumed: bool) -> RunView:
        started: str = self.store.runs(run=self.name)[0]["started"]
        settings = self.devices.settings
        state, stop = (lambda: self.state), self._stop
        return RunView(self.name, settings, self.folder, started, resumed, state, stop)

    def _stop(self, reason: str) -> None:
        """Note that a callback wants an end; the first says why."""
        if self.stop_reason is None:
            self.stop_reason = reason

    def _go_on(self, view: RunView, engine: Engine) -> None:
        """Play the rounds, and tell all callbacks how it ended, however it did."""
        try:
            self.callbacks.on_begin(view)
            if not view.resumed:
                self.first_loss = self._evaluate(view, engine).train_loss
            status = self._play_rounds(view, engine)
        except BaseException as error:
            try:
                self.callbacks.on_end(view, "interrupted")
            except Exception as another:  # noqa: BLE001 it must not hide what ended the run
                error.add_note(f"a callback failed at the end, too: {another!r}")
            raise
        self.callbacks.on_end(view, status)

    def _play_rounds(self, view: RunView, engine: Engine) -> str:
        """Play the rounds that are left, and return how it ended."""
        while True:
            status = self._done(self.state)
            if status and (self.last is None or self.last.round < self.state.round):
                self._evaluate(view, engine)
                status = self._done(self.state)
            if self.stop_reason is not None:
                status = status or STOPPED
            if status or self.state.round % self.options.checkpoint_every == 0:
                self._save(self.state, engine, status)
            if status:
                return status
            try:
                self.state, facts = play_round(self.state, self.devices, engine)
            except BudgetSpentError as error:
                self.spent = str(error)
                continue
            self.rounds.append(facts)
            self.callbacks.on_round(view, facts)
            if self.state.round % self.devices.settings.evaluation.every == 0:
                self._evaluate(view, engine)

    def _evaluate(self, view: RunView, engine: Engine) -> Evaluation:
        evaluation = replace(evaluate(self.state, engine), **epsilons(self.noise, self.state))
        self.evaluations.append((evaluation, self._seconds()))
        self.last = evaluation
        self.callbacks.on_evaluation(view, evaluation)
        return evaluation

    def _done(self, state: State) -> str:
        """How the run has ended, or nothing."""
        settings = self.devices.settings
        if state.rejected >= settings.server.max_rejected:
            return "diverged"
        if settings.server.divergence_factor and self._lost(state):
            return "diverged"
        if state.round >= settings.rounds:
            return "finished"
        return SPENT if self.spent else ""

    def _lost(self, state: State) -> bool:
        """Whether the evaluation after this round shows a loss that is too large, or NaN."""
        if self.last is None or not 0 < self.last.round == state.round:
            return False
        factor = self.devices.settings.server.divergence_factor
        return not self.last.train_loss <= factor * self.first_loss

    def _save(self, state: State, engine: Engine, status: str) -> None:
        """Write the results, then the checkpoint; rounds in between are repeated alike."""
        seconds = self._seconds()
        update: dict[str, Any] = {
            "status": status or "running",
            "stop_reason": {STOPPED: self.stop_reason, SPENT: self.spent}.get(status) or None,
            "rounds": state.round,
            "oracle_calls": state.calls,
            "dropped_updates": state.dropped,
            "rejected_rounds": state.rejected,
            "stopped_rounds": state.stopped,
            **self._certified(),
            "seconds": seconds,
            "model_sha256": hashlib.sha256(state.model.tobytes()).hexdigest(),
        }
        if self.last is not None:
            update |= {name: getattr(self.last, name) for name in MEASURES}
        update |= epsilons(self.noise, state)  # which may be ahead of the last evaluation
        self.store.add(self.name, self.rounds, self.evaluations, update)
        self.rounds.clear()
        self.evaluations.clear()
        engine.flush()
        slots = self.slots.save() if self.slots else None
        done = status if status in DONE else ""
        saved = Checkpoint(state, slots, self.first_loss, seconds, self.data, done)
        checkpoints.save(saved, self.folder / CHECKPOINT)

    def _certified(self) -> dict[str, Any]:
        """The last bound on the share of a device and the last reason for a stop, if new."""
        known: dict[str, Any] = {}
        for facts in self.rounds:
            if facts.stopped:
                known["stopped"] = facts.stopped
            elif facts.outcome and facts.outcome.certificate is not None:
                known["certificate"] = facts.outcome.certificate
        return known

    def _seconds(self) -> float:
        return self.before + time.perf_counter() - self.began


def _forget(folder: Path) -> None:
    kept = folder.glob(KEPT.format("*"))
    for path in (*folder.glob(f"{CHECKPOINT}*"), *kept):  # also what a kill left of a checkpoint
        path.unlink(missing_ok=True)
