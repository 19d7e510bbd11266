"""The progress of runs, on a terminal, in a notebook, or as lines."""

from __future__ import annotations

import threading
from typing import Self

from rfa.lab.runs.callback import Callback, RunView
from rfa.lab.runs.estimate import in_words, seconds
from rfa.lab.runs.headline import evaluation_words
from rfa.lab.runs.jobs import Work
from rfa.lab.runs.screens import Screen, Shown, choose_screen
from rfa.lab.runs.spent import brief
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import Evaluation, Facts


def choose_progress(label: str, progress: bool | None = None) -> Bar:
    """A bar for one run: a callback, to be used in a `with` block.

    Args:
        label: what to call the run.
        progress: whether it is shown: `choose_screen` says where.
    """
    return Bar(label, choose_screen(progress))


def choose_overview(work: Work, progress: bool | None = None) -> Overview:
    """A bar for many runs, shown as that for one."""
    return Overview(work, choose_screen(progress))


class Bar(Callback):
    """One run: the round, accuracy, loss, privacy spent, and time left."""

    def __init__(self, label: str, screen: Screen) -> None:
        self.began = False
        self._label, self._screen = label, screen
        self._facts = {"accuracy": "", "loss": "", "corrupted": "", "epsilon": ""}

    def __enter__(self) -> Self:
        """Begin to show."""
        self._screen.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        self._screen.__exit__()

    def on_status(self, text: str) -> None:
        """Show the current preparation."""
        self._screen.show(Shown(self._label, text=text, mark=True))

    def on_begin(self, run: RunView) -> None:
        """Set the length of the bar."""
        self.began = True
        self._show(run)

    def on_round(self, run: RunView, facts: Facts) -> None:
        """Move on."""
        corrupted = f"{len(facts.corrupted)}/{len(facts.devices)}"
        spent = brief(facts.epsilon_server, None, run.settings)
        self._show(run, corrupted=corrupted, epsilon=spent)

    def on_evaluation(self, run: RunView, evaluation: Evaluation) -> None:
        """Show how well the model does."""
        personalized = run.settings.training.personalize
        accuracy = evaluation_words(evaluation, personalized=personalized)
        loss = f"{evaluation.train_loss:.2f}"
        spent = evaluation.epsilon_server, evaluation.epsilon_readers
        epsilon = brief(*spent, run.settings)
        self._show(run, mark=True, accuracy=accuracy, loss=loss, epsilon=epsilon)

    def _show(self, run: RunView, *, mark: bool = False, **news: str) -> None:
        self._facts |= news
        facts = ", ".join(f"{name} {value}" for name, value in self._facts.items() if value)
        count = f"{run.round}/{run.rounds}"
        self._screen.show(Shown(self._label, run.round, run.rounds, count, facts, mark))


class Overview:
    """Many runs, by the time that they should take; called from several threads."""

    def __init__(self, work: Work, screen: Screen) -> None:
        self._screen = screen
        self._costs = {settings.run_name: seconds(settings) for settings in work.todo}
        self._done: dict[str, float] = {}
        self._going: dict[str, str] = {}
        self._ended = 0
        self._writing = threading.Lock()
        screen.say(_first_words(work))

    def __enter__(self) -> Self:
        """Begin to show."""
        self._screen.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        self._screen.__exit__()

    def on_begin(self, settings: Settings) -> None:
        """Show that a run goes."""
        attack = settings.attack
        level = f" {attack.corruption} {attack.rho:g}" if attack.rho else ""
        level += f" {attack.corruption} by {attack.sybils} sybils" if attack.sybils else ""
        epsilon = f" epsilon {settings.privacy.epsilon:g}" if settings.privacy.epsilon else ""
        with self._writing:
            named = f"{settings.task} {settings.aggregator}{level}{epsilon}"
            self._going[settings.run_name] = named
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
            self._show(mark=True)
            if problem:
                self._screen.say(f"{name}: {problem}")

    def _show(self, *, mark: bool = False) -> None:
        done = sum(self._costs[name] * share for name, share in self._done.items())
        total = sum(self._costs.values())
        label, count = f"{self._ended}/{len(self._costs)} runs", f"{done / total:.0%}"
        text = "; ".join(self._going.values())
        self._screen.show(Shown(label, done, total, count, text, mark))


def _first_words(work: Work) -> str:
    if not work.todo:
        known = f"all {work.done} runs are done already" if work.done else "there are no runs to do"
        return known + (f": {in_words(work.seconds)} for the rest" if work.seconds else "")
    before = f" ({work.done} {'is' if work.done == 1 else 'are'} done already)" if work.done else ""
    runs = f"{len(work.todo)} run{'s' if len(work.todo) > 1 else ''}"
    return f"{runs}{before}: {in_words(work.seconds)}, {work.at_once} at once"
