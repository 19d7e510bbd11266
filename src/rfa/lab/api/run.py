"""One run from Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rfa._checks import check_count
from rfa.errors import InvalidTypeError, InvalidValueError
from rfa.lab.api.result import RunResult
from rfa.lab.datasets.cache import data_dir as find_data
from rfa.lab.runs.callback import Callback, Callbacks, RunView
from rfa.lab.runs.progress import choose_progress
from rfa.lab.runs.run import Options
from rfa.lab.runs.run import run as do_run
from rfa.lab.runs.store import JSON_COLUMNS
from rfa.lab.settings.privacy import implied_on_flower
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import Evaluation, Facts

LAB, FLOWER = "lab", "flower"
OnRound = Callable[[RunView, Facts], None]
OnEvaluation = Callable[[RunView, Evaluation], None]


def run(  # noqa: PLR0913 how a run is done, beside its settings
    task: Any,
    *,
    out: str | Path = "out",
    data_dir: str | Path | None = None,
    workers: int | None = None,
    checkpoint_every: int = 10,
    fresh: bool = False,
    callbacks: Sequence[Callback] = (),
    on_round: OnRound | None = None,
    on_evaluation: OnEvaluation | None = None,
    progress: bool | None = None,
    label: str = "",
    engine: str = LAB,
    federation: str | None = None,
    **settings: Any,
) -> RunResult:
    """Train a task across devices, some of them corrupted, and return the result.

    The same settings give the same numbers, to the bit. A run that is done is loaded, not repeated.
    A run that was interrupted or stopped resumes from its last checkpoint. `rfa run` does the same
    runs in the same folder.

        >>> from rfa import lab
        >>> result = lab.run("digits-linear", corruption="omniscient", rho=0.25)  # doctest: +SKIP
        >>> result.evaluations["test_accuracy"][-1]  # doctest: +SKIP

    Args:
        task: the name of a task, a task of your own (`lab.Task`), or all settings (`lab.Settings`).
        out: the folder of results.
        data_dir: the folder of data sets; by default RFA_DATA.
        workers: the number of worker processes; by default one per processor. It does not
            change the numbers.
        checkpoint_every: rounds between two checkpoints; a kill loses no more than these.
        fresh: do the run again, even if it is done or interrupted, and read the data again.
        callbacks: objects that observe the run and may stop it.
        on_round: a function that is called after each round with the run and its facts.
        on_evaluation: a function that is called after each evaluation with the run and it.
        progress: whether to show a bar; by default in terminals and notebooks.
        label: the name of the run in the bar; by default its aggregator.
        engine: "lab" for processes on this machine, or "flower" for nodes of Flower.
        federation: with Flower: a federation from its configuration; by default the simulation.
        **settings: settings by name, as the options of `rfa run`; task, aggregator, corruption
            and partition may be objects, even from a notebook cell. The default is the value
            of the task, which is that of the paper.

    Raises:
        ConfigError: if a setting is wrong; the message names it and a valid value.
        LabError: if the data is missing, your own attack or aggregator fails, another process does
            the same run, or the folder cannot be used; the message says what to do.
    """
    check_count("checkpoint_every", checkpoint_every)
    check_count("workers", 1 if workers is None else workers)
    if engine == FLOWER and not isinstance(task, Settings):
        settings |= implied_on_flower(settings)
    resolved = settle_run(task, settings)
    folder, data = Path(out), Path(data_dir) if data_dir is not None else None
    if engine == FLOWER:
        if callbacks or on_round or on_evaluation:
            msg = "callbacks are called where the run is done, and on Flower that is elsewhere: "
            raise InvalidValueError(msg + "leave them out, or use engine='lab'")
        return _run_on_flower(resolved, folder, data, federation or "", fresh=fresh)
    if engine != LAB or federation:
        msg = f"engine={engine!r}, federation={federation!r}: the engine is 'lab' or 'flower', and "
        msg += "a federation is Flower's"
        raise InvalidValueError(msg)
    options = Options(folder, data, workers or 0, checkpoint_every, fresh=fresh, rebuild=fresh)
    bar = choose_progress(label or resolved.aggregator, progress)
    told = [bar, Callbacks(callbacks), _Functions(on_round, on_evaluation)]
    with bar:
        row = do_run(resolved, options, told)
    return RunResult(row["run"], folder, row["status"], row)


def settle_run(task: Any, settings: dict[str, Any]) -> Settings:
    """The settings of a run from a task and more, or from settings and changes."""
    if isinstance(task, Settings):
        return task.replace(**settings) if settings else task
    return Settings.of(task, **settings)


class _Functions(Callback):
    """Functions as a callback."""

    def __init__(self, on_round: OnRound | None, on_evaluation: OnEvaluation | None) -> None:
        for name, function in (("on_round", on_round), ("on_evaluation", on_evaluation)):
            if function is not None and not callable(function):
                msg = f"{name} must be a function of the run and what happened, not {function!r}"
                raise InvalidTypeError(msg)
        self._on_round, self._on_evaluation = on_round, on_evaluation

    def on_round(self, run: RunView, facts: Facts) -> None:
        """A round is done."""
        if self._on_round is not None:
            self._on_round(run, facts)

    def on_evaluation(self, run: RunView, evaluation: Evaluation) -> None:
        """The model was evaluated."""
        if self._on_evaluation is not None:
            self._on_evaluation(run, evaluation)


def _run_on_flower(
    settings: Settings, out: Path, data: Path | None, federation: str, *, fresh: bool
) -> RunResult:
    """Do a run on Flower, with its log on standard error."""
    from rfa.lab.on_flower.launch import LOCAL, Where, launch  # noqa: PLC0415 it needs Flower

    federation = federation or LOCAL
    found = find_data(data) if federation == LOCAL else data
    where = Where(out / "flower", found, federation, fresh=fresh)
    row = launch(settings, where, lambda line: print(line, file=sys.stderr))
    kept = row | {name: json.dumps(row[name]) for name in JSON_COLUMNS}
    return RunResult(row["run"], out / "flower", row["status"], kept)
