"""The result of a run, for scripts and notebooks."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from rfa.lab.api.figures import plot_run
from rfa.lab.model import Model, load_model
from rfa.lab.runs.attackers import attackers_text
from rfa.lab.runs.headline import ALL, HONEST, accuracy_words, headline
from rfa.lab.runs.spent import brief
from rfa.lab.runs.store import Store, current_status, find_run
from rfa.lab.runs.tables import devices_table, evaluations_table, rounds_table, runs_table
from rfa.lab.settings.settings import Settings
from rfa.lab.table import Table

Made = TypeVar("Made")


@dataclasses.dataclass(frozen=True)
class RunResult:
    """A run that is done, or as far as it is done.

    Attributes:
        name: its name in the folder of results.
        out: that folder.
        status: finished, diverged, spent (its privacy budget), stopped (by a callback), interrupted
            or running.
        row: all that is known of the run as such, its last evaluation too.
    """

    name: str
    out: Path
    status: str
    row: dict[str, Any] = dataclasses.field(repr=False)

    @cached_property
    def settings(self) -> Settings:
        """The settings that decided it, those not given too."""
        return Settings.from_dict(json.loads(self.row["settings"]))

    @property
    def test_accuracy(self) -> float:
        """The accuracy at the end, over the test examples of all devices, from 0 to 1."""
        return self.row["test_accuracy"]

    @property
    def honest_accuracy(self) -> float:
        """The same over devices that are not corrupted."""
        return self.row["honest_accuracy"]

    @property
    def epsilon_server(self) -> float | None:
        """The privacy that was spent against the server; None without noise of the devices."""
        return self.row["epsilon_server"]

    @property
    def epsilon_readers(self) -> float | None:
        """The same against readers of the models; None without noise, or the extra dp."""
        return self.row["epsilon_readers"]

    @cached_property
    def evaluations(self) -> Table:
        """One row an evaluation: losses and accuracies by round."""
        return self._read(lambda store: evaluations_table(store, [self.name]))

    @cached_property
    def rounds(self) -> Table:
        """One row a round: who took part, who was corrupted, what the aggregator did."""
        return self._read(lambda store: rounds_table(store, [self.name]))

    @cached_property
    def devices(self) -> Table:
        """One row for each evaluation and device: whether it is corrupted, and its accuracy."""
        return self._read(lambda store: devices_table(store, [self.name]))

    @cached_property
    def model(self) -> Model:
        """The trained model."""
        return load_model(self.name, self.out)

    def plot(self, measure: str = "", *, axes: Any = None) -> Any:
        """Draw a column of `evaluations` against rounds, and return the matplotlib figure.

        Args:
            measure: the column; by default the accuracy, over honest devices beside all where
                some are corrupted, and first where runs are personalized.
            axes: where to draw; a figure of its own by default.
        """
        first = headline(personalized=self.settings.training.personalize)
        other = HONEST if first == ALL else ALL
        both = (first, other) if self.row["corrupted"] not in (None, "[]") else (first,)
        return plot_run(self.evaluations, (measure,) if measure else both, self._title(), axes)

    def __str__(self) -> str:
        """The run in a line."""
        accuracy = accuracy_words(self.row, "test_accuracy", "honest_accuracy")
        spent = brief(self.epsilon_server, self.epsilon_readers, self.settings)
        words = f", epsilon {spent}" if spent else ""
        rounds = f"{self.status} after {self.row['rounds']} rounds"
        return f"{self._title()}: {rounds}, {accuracy}{words}"

    def _repr_html_(self) -> str:
        return f"<p><code>{html.escape(self.name)}</code><br>{html.escape(str(self))}</p>"

    def _title(self) -> str:
        row = self.row
        attackers = attackers_text(row)
        level = f", {row['corruption']} {attackers}" if attackers else ""
        noise = f", {row['privacy']}" if row["privacy"] else ""
        return _without_digests(f"{row['task']}, {row['aggregator']}{level}{noise}")

    def _read(self, read: Callable[[Store], Made]) -> Made:
        with Store(self.out, create=False) as store:
            return read(store)


def _without_digests(text: str) -> str:
    """A text in which objects of a notebook or a script have their names alone."""
    return re.sub(r"__main__:(\w+)@[0-9a-f]+", r"\1", text)


def load_run(run: str, out: str | Path = "out") -> RunResult:
    """A run that was done before.

    Args:
        run: its name, or a part of it that fits no other.
        out: the folder of results.

    Raises:
        StoreError: if the folder has no results.
        InvalidValueError: if no run matches, or several do.
    """
    folder = Path(out)
    with Store(folder, create=False) as store:
        row = find_run(store.runs(), run)
    return RunResult(row["run"], folder, current_status(folder, row), row)


def list_runs(out: str | Path = "out") -> Table:
    """All runs in a folder of results, one row each, the oldest first.

    Raises:
        StoreError: if the folder has no results.
    """
    with Store(Path(out), create=False) as store:
        return runs_table(store)
