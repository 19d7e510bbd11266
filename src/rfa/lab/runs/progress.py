"""How runs go, shown while they go, by a live bar on standard error."""

from __future__ import annotations

import threading

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from rfa.lab.runs.estimate import in_words, seconds
from rfa.lab.runs.headline import evaluation_words
from rfa.lab.runs.jobs import Work
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import Evaluation, Facts, State
from rfa.lab.training.devices import Devices


class Bar(Progress):
    """One run: the round, accuracy, loss, and time left; plain lines where there is no terminal."""

    def __init__(self, label: str, *, quiet: bool = False) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=8),
            MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=7)),
            TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True, min_width=5)),
            TextColumn("{task.fields[facts]}", markup=False, table_column=Column(no_wrap=True)),
            console=Console(stderr=True, markup=False, quiet=quiet),
            transient=True,
            disable=quiet,
        )
        self.began = False
        self._bar = self.add_task(label, total=None, facts="")
        self._facts = {"accuracy": "", "loss": "", "corrupted": ""}
        self._personalized = False

    def on_status(self, text: str) -> None:
        """Show what is being prepared."""
        self.update(self._bar, facts=text)

    def on_begin(self, settings: Settings, devices: Devices, state: State) -> None:
        """Set the length of the bar."""
        del devices
        self._personalized = settings.training.personalize
        self.began = True
        self.reset(self._bar, total=settings.rounds, completed=state.round, facts="")

    def on_round(self, state: State, facts: Facts) -> None:
        """Move on."""
        self._show(state.round, corrupted=f"{len(facts.corrupted)}/{len(facts.devices)}")

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Show how well the model does."""
        accuracy = evaluation_words(evaluation, personalized=self._personalized)
        self._show(evaluation.round, accuracy=accuracy, loss=f"{evaluation.train_loss:.2f}")

    def _show(self, done: int, **news: str) -> None:
        self._facts |= news
        facts = ", ".join(f"{name} {value}" for name, value in self._facts.items() if value)
        self.update(self._bar, completed=done, facts=facts)


class Overview(Progress):
    """Many runs, by the time that they should take; called from several threads."""

    def __init__(self, work: Work) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[going]}", markup=False),
            console=Console(stderr=True, markup=False, highlight=False),
            transient=True,
        )
        self._costs = {settings.run_name: seconds(settings) for settings in work.todo}
        self._done: dict[str, float] = {}
        self._going: dict[str, str] = {}
        self._ended = 0
        self._writing = threading.Lock()
        self._bar = self.add_task(self._label(), total=sum(self._costs.values()), going="")
        self.console.print(_first_words(work), soft_wrap=True)

    def on_begin(self, settings: Settings) -> None:
        """Show that a run goes."""
        level = (
            f" {settings.attack.corruption} {settings.attack.rho:g}" if settings.attack.rho else ""
        )
        with self._writing:
            self._going[settings.run_name] = f"{settings.task} {settings.aggregator}{level}"
            self._show()

    def on_progress(self, settings: Settings, done: float) -> None:
        """Move on."""
        with self._writing:
            self._done[settings.run_name] = done
            self._show()

    def on_end(self, settings: Settings, problem: str) -> None:
        """Count a run, and say what went wrong with it."""
        name = settings.run_name
        with self._writing:
            self._ended += 1
            self._done[name] = 1.0
            self._going.pop(name, None)
            self._show()
        if problem:
            self.console.print(f"{name}: {problem}", soft_wrap=True)

    def _show(self) -> None:
        done = sum(self._costs[name] * share for name, share in self._done.items())
        going = "; ".join(self._going.values())
        self.update(self._bar, completed=done, going=going, description=self._label())

    def _label(self) -> str:
        return f"{self._ended}/{len(self._costs)} runs"


def _first_words(work: Work) -> str:
    if not work.todo:
        known = f"all {work.done} runs are done already" if work.done else "no runs are needed"
        return known + (f": {in_words(work.seconds)} for the rest" if work.seconds else "")
    before = f" ({work.done} are done already)" if work.done else ""
    runs = f"{len(work.todo)} run{'s' if len(work.todo) > 1 else ''}"
    return f"{runs}{before}: {in_words(work.seconds)}, {work.at_once} at once"
