"""How a run goes, shown while it goes: a bar with the round, accuracy, loss, and time left."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import Evaluation, Facts, State
from rfa.lab.training.devices import Devices


class Bar:
    """A live progress bar on standard error; plain lines of text where that is no terminal."""

    def __init__(self, label: str, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, markup=False, quiet=quiet)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=8),
            MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=7)),
            TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True, min_width=5)),
            TextColumn("{task.fields[facts]}", markup=False, table_column=Column(no_wrap=True)),
            console=self._console,
            transient=True,
            disable=quiet,
        )
        self._label = label
        self.began = False
        self._bar = self._progress.add_task(label, total=None, facts="")
        self._accuracy = self._loss = self._corrupted = ""

    def __enter__(self) -> Bar:
        """Begin to use it."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End its use."""
        self._progress.stop()

    def on_status(self, text: str) -> None:
        """Show what is being prepared."""
        self._progress.update(self._bar, facts=text)

    def on_begin(self, settings: Settings, devices: Devices, state: State) -> None:
        """Set the length of the bar."""
        del devices
        self.began = True
        self._progress.reset(
            self._bar,
            total=settings.rounds,
            completed=state.round,
            facts="",
            description=self._label,
        )

    def on_round(self, state: State, facts: Facts) -> None:
        """Move on."""
        self._corrupted = f"corrupted {len(facts.corrupted)}/{len(facts.devices)}"
        self._show(state.round)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Show how well the model does."""
        self._accuracy = f"accuracy {evaluation.test_accuracy:.1%}"
        self._loss = f"loss {evaluation.train_loss:.2f}"
        self._show(evaluation.round)

    def _show(self, done: int) -> None:
        parts = [part for part in (self._accuracy, self._loss, self._corrupted) if part]
        self._progress.update(self._bar, completed=done, facts=", ".join(parts))
