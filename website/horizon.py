"""The table and the charts of docs/results.md, from the numbers in docs/numbers/horizon."""

from __future__ import annotations

import csv
import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rfa._specs import parse_spec
from rfa.lab.paper.decides import HONEST, MEAN, MEDIAN, POISONED
from rfa.lab.paper.facts import read_facts
from rfa.lab.runs.statistics import Interval, mean_interval
from website.charts import WIDE, Frame, bars
from website.markdown import table
from website.svg import BLUE, GRAY, GREEN, ORANGE, Picture

NUMBERS = Path(__file__).parents[1] / "docs" / "numbers" / "horizon"
TASKS = {
    "EMNIST, ink = 1": "emnist-linear:polarity=ink",
    "EMNIST, paper = 1": "emnist-linear",
    "Sent140": "sent140-linear",
}
METHODS = {"fedavg": "FedAvg", "rfa": "RFA", "rfa-one-step": "one-step RFA"}
CASES = {
    ("none", 0.0): "no corruption",
    ("data", 0.25): "a quarter poisoned",
    ("omniscient", 0.25): "a quarter omniscient",
}
PAPER = {
    ("none", "fedavg"): ("64.3", "65.0"),
    ("none", "rfa"): ("62.9", "64.7"),
    ("data", "fedavg"): ("41.2", ""),
    ("data", "rfa"): ("52.8", ""),
    ("data", "rfa-one-step"): ("51.4", ""),
    ("omniscient", "fedavg"): ("about 0", ""),
    ("omniscient", "rfa"): ("over 40", ""),
}
"""What the paper has in its text, for EMNIST and for Sent140."""
USUAL = 3
"""The number of seeds that is not mentioned in a cell."""
LEGEND, LINES = {"FedAvg": ORANGE, "RFA": BLUE}, ("fedavg", "rfa")


class Run(NamedTuple):
    """A run that Figure 2 or Figure 5 shows, and its accuracy at the end."""

    name: str
    task: str
    method: str
    corruption: str
    rho: float
    accuracy: float


@functools.cache
def _runs() -> list[Run]:
    """The runs of the two figures, each once, sorted by name."""
    with (NUMBERS / "numbers.csv").open(newline="", encoding="utf-8") as stream:
        found = {
            Run(
                row["run"],
                row["task"],
                parse_spec(row["aggregator"]).name,
                row["corruption"],
                float(row["rho"]),
                float(row["value"]),
            )
            for row in csv.DictReader(stream)
            if row["experiment"] in ("robustness", "one-step")
            and row["measure"] == "test_accuracy at the end"
        }
    return sorted(found)


def runs(task: str, method: str, corruption: str, rho: float) -> list[Run]:
    """The runs of a method in one setting, one for each seed."""
    wanted = task, method, corruption, rho
    return [run for run in _runs() if run[1:-1] == wanted]


def accuracies() -> str:
    """The accuracies of the paper and ours, with intervals."""
    rows: list[list[str]] = []
    for (corruption, rho), case in CASES.items():
        for method, name in METHODS.items():
            theirs = PAPER.get((corruption, method), ("", ""))
            ours = [_cell(runs(task, method, corruption, rho)) for task in TASKS.values()]
            if any(ours):
                rows.append([case, name, theirs[0], *ours, theirs[1]])
    heads = ["", "", "EMNIST in the paper", *TASKS, "Sent140 in the paper"]
    return table(heads, rows, texts=2)


def draw_poisoned(frame: Frame = WIDE) -> Picture:
    """The first claim of the paper, in both polarities."""
    title = "A quarter of the data poisoned: accuracy of FedAvg and RFA at the end"
    return _beside("the paper,/EMNIST", (41.2, 52.8), title, "data", TASKS, frame=frame)


def draw_omniscient(frame: Frame = WIDE) -> Picture:
    """Omniscient devices with a quarter of the data."""
    title = "A quarter omniscient: accuracy of FedAvg and RFA at the end"
    emnist = [name for name in TASKS if name.startswith("EMNIST")]
    label = "the paper: about 0/and over 40"
    return _beside(label, (0.0, 40.0), title, "omniscient", emnist, frame=frame)


def draw_weights(frame: Frame = WIDE) -> Picture:
    """The weight of the poisoned quarter in the mean and in the median."""
    groups: dict[str, Sequence[float]] = {}
    for name, task in TASKS.items():
        if name.startswith("EMNIST"):
            ratio = _mean(task, POISONED) / _mean(task, HONEST)
            label = f"{name}/poisoned updates/{ratio:.1f} times as long"
            groups[label] = [_mean(task, measure) for measure in (MEAN, MEDIAN)]
    title = "The weight of the poisoned quarter in the mean and in the geometric median"
    legend = {"in the mean": GRAY, "in the geometric median": GREEN}
    return bars(title, "weight, %", groups, legend, top=40, frame=frame)


def _beside(  # noqa: PLR0913
    label: str,
    theirs: tuple[float, float],
    title: str,
    corruption: str,
    names: Iterable[str],
    *,
    frame: Frame,
) -> Picture:
    """The accuracies in the paper, and ours by task with their intervals."""
    groups: dict[str, Sequence[float]] = {label: theirs}
    spans: dict[str, list[tuple[float, float]]] = {}
    for name in names:
        place = name.replace(", ", ",/")
        found = [_interval(runs(TASKS[name], method, corruption, 0.25)) for method in LINES]
        groups[place] = [each.mean for each in found]
        if all(each.count > 1 for each in found):
            spans[place] = [(max(each.low, 0), each.high) for each in found]
    return bars(title, "accuracy, %", groups, LEGEND, top=80, spans=spans, frame=frame)


def _mean(task: str, measure: str) -> float:
    """The mean of a measurement over the runs of RFA with a quarter of the data poisoned."""
    facts = read_facts(NUMBERS)
    return statistics.mean(facts[run.name][measure] for run in runs(task, "rfa", "data", 0.25))


def _interval(shown: Sequence[Run]) -> Interval:
    return mean_interval([run.accuracy for run in shown])


def _cell(shown: Sequence[Run]) -> str:
    """A mean with its interval, and the number of seeds where it is not the usual one."""
    if not shown:
        return ""
    interval = _interval(shown)
    text = f"{interval.mean:.1f}"
    if math.isfinite(interval.low):
        text += f" ({max(interval.low, 0):.1f} to {min(interval.high, 100):.1f})"
    seeds = f", {interval.count} seed{'s' if interval.count > 1 else ''}"
    return text if interval.count == USUAL else text + seeds
