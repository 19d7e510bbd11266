"""How many runs go, shown while they go: one bar for all, by the time that they should take."""

from __future__ import annotations

import threading

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from rfa.lab.runs.estimate import in_words, seconds
from rfa.lab.runs.jobs import Work
from rfa.lab.settings.config import run_name
from rfa.lab.settings.settings import Settings


class Overview:
    """A live bar on standard error; called from several threads."""

    def __init__(self, work: Work, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, markup=False, highlight=False, quiet=quiet)
        self._costs = {run_name(settings): seconds(settings) for settings in work.todo}
        self._done: dict[str, float] = {}
        self._going: dict[str, str] = {}
        self._ended = 0
        self._lock = threading.Lock()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[going]}", markup=False),
            console=self._console,
            transient=True,
            disable=quiet,
        )
        total = sum(self._costs.values())
        self._bar = self._progress.add_task(self._label(), total=total, going="")
        self._console.print(_first_words(work), soft_wrap=True)

    def __enter__(self) -> Overview:
        """Begin to use it."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End its use."""
        self._progress.stop()

    def on_begin(self, settings: Settings) -> None:
        """Show that a run goes."""
        with self._lock:
            self._going[run_name(settings)] = _brief(settings)
            self._show()

    def on_progress(self, settings: Settings, done: float) -> None:
        """Move on."""
        with self._lock:
            self._done[run_name(settings)] = done
            self._show()

    def on_end(self, settings: Settings, problem: str) -> None:
        """Count a run, and say what went wrong with it."""
        name = run_name(settings)
        with self._lock:
            self._ended += 1
            self._done[name] = 1.0
            self._going.pop(name, None)
            self._show()
        if problem:
            self._console.print(f"{name}: {problem}", soft_wrap=True)

    def _show(self) -> None:
        done = sum(self._costs[name] * share for name, share in self._done.items())
        going = "; ".join(self._going.values())
        self._progress.update(self._bar, completed=done, going=going, description=self._label())

    def _label(self) -> str:
        return f"{self._ended}/{len(self._costs)} runs"


def _first_words(work: Work) -> str:
    if not work.todo:
        known = f"all {work.done} runs are done already" if work.done else "no runs are needed"
        return known + (f": {in_words(work.seconds)} for the rest" if work.seconds else "")
    before = f" ({work.done} are done already)" if work.done else ""
    runs = f"{len(work.todo)} run{'s' if len(work.todo) > 1 else ''}"
    return f"{runs}{before}: {in_words(work.seconds)}, {work.at_once} at once"


def _brief(settings: Settings) -> str:
    level = f" {settings.corruption} {settings.rho:g}" if settings.rho else ""
    return f"{settings.task} {settings.aggregator}{level}"
