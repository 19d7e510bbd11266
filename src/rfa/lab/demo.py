"""The lab's main result in under a minute: a quarter of the data corrupted, three aggregators.

FedAvg, RFA and one-step RFA learn handwritten digits from the same devices: first while corrupted
devices train on poisoned data, then while they know every update and together reverse the mean.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from rfa.lab.api.run import run
from rfa.lab.datasets.dataset import lab_module
from rfa.lab.runs.headline import percent

TASK, RHO = "digits-linear", 0.25
SETTINGS = {"devices": 40, "devices_per_round": 20, "rounds": 40, "eval_every": 5}
NAMES = {"fedavg": "FedAvg", "rfa": "RFA", "rfa-one-step": "one-step RFA"}
CLEAN = "none"
CORRUPTIONS = {"data": "poisoned data", "omniscient": "omniscient attack"}
ATTACKS = {CLEAN: "no attack", **CORRUPTIONS}
CASES = [("fedavg", CLEAN), *((name, bad) for bad in CORRUPTIONS for name in NAMES)]
PYTHON = """\
from rfa import lab
study = lab.sweep("digits-linear", corruption="omniscient", rho=0.25, rounds=40,
                  aggregator=["fedavg", "rfa", "rfa-one-step"])
print(study.means("test_accuracy"))
study.plot(x="round").savefig("study.png")
"""
"""The omniscient attack, from Python."""
COLORS = {"fedavg": "#d55e00", "rfa": "#0072b2", "rfa-one-step": "#009e73"}
MARKS = {"fedavg": "-X", "rfa": "-o", "rfa-one-step": "-s"}
GRAY = "#999999"
BAR = 30
"""The width of a bar that stands for an accuracy of 100 %."""


@dataclass(frozen=True)
class Curve:
    """The test accuracy of one run, from evaluation to evaluation.

    Attributes:
        aggregator: the name of the aggregator.
        corruption: the name of the attack, or `CLEAN`.
        rounds: the rounds of the evaluations.
        accuracy: the test accuracy over all devices in each of them, between 0 and 1.
        diverged: whether the run ended early because its loss grew too large.
        note: where the data comes from.
    """

    aggregator: str
    corruption: str
    rounds: list[int]
    accuracy: list[float]
    diverged: bool
    note: str

    @property
    def last(self) -> float:
        """The test accuracy at the end of the run."""
        return self.accuracy[-1]

    @property
    def color(self) -> str:
        """The color of its bar and its line: gray without an attack."""
        return GRAY if self.corruption == CLEAN else COLORS[self.aggregator]


def learn(out: Path, *, fresh: bool = False, **changes: Any) -> list[Curve]:
    """Do the runs of the demo that are not done yet, and return their curves.

    Args:
        out: the folder of results.
        fresh: do all runs again.
        **changes: settings that replace those of `SETTINGS`.
    """
    curves: list[Curve] = []
    for number, (aggregator, corruption) in enumerate(CASES, start=1):
        rho = 0.0 if corruption == CLEAN else RHO
        case = {"aggregator": aggregator, "corruption": corruption, "rho": rho}
        label = f"{number}/{len(CASES)} {NAMES[aggregator]}, {ATTACKS[corruption]}"
        settings: dict[str, Any] = {**case, **SETTINGS, **changes}
        result = run(TASK, out=out, fresh=fresh, label=label, **settings)
        rounds: list[int] = result.evaluations["round"].tolist()
        accuracy: list[float] = result.evaluations["test_accuracy"].tolist()
        diverged = result.status == "diverged"
        curves.append(Curve(aggregator, corruption, rounds, accuracy, diverged, result.row["note"]))
    return curves


def bar_chart(curves: list[Curve], *, ascii_only: bool = False) -> Table:
    """Return the accuracies at the end as bars, grouped by attack; no wider than 80 columns."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in range(4):
        table.add_column(no_wrap=True)
    shown = ""
    for curve in curves:
        attack = ATTACKS[curve.corruption]
        bar = ("#" if ascii_only else "█") * max(1, round(BAR * curve.last))
        end = percent(curve.last) + ("  diverged" if curve.diverged else "")
        first = "" if attack == shown else attack
        table.add_row(first, NAMES[curve.aggregator], Text(bar, style=curve.color), end)
        shown = attack
    return table


def can_draw() -> bool:
    """Return whether the plotting library is installed (it comes with `rfa[lab]`)."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(curves: list[Curve], path: Path) -> None:
    """Draw test accuracy against rounds, one panel for each attack, into a PNG file."""
    figure = lab_module("matplotlib.figure").Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, len(CORRUPTIONS), sharey=True)
    for axes, (corruption, name) in zip(panels, CORRUPTIONS.items(), strict=True):
        for curve in curves:
            if curve.corruption in (CLEAN, corruption):
                _draw_curve(axes, curve)
        axes.set(title=name, xlabel="round", ylim=(0, 100))
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("test accuracy (%)")
    lines, names = panels[0].get_legend_handles_labels()
    figure.legend(lines, names, frameon=False, loc="outside lower center", ncols=len(names))
    figure.suptitle("A quarter of the data is on corrupted devices", fontsize=12)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _draw_curve(axes: Any, curve: Curve) -> None:
    percents = [100 * accuracy for accuracy in curve.accuracy]
    clean = curve.corruption == CLEAN
    label = f"{NAMES[curve.aggregator]}{', no attack' if clean else ''}"
    mark = ":" if clean else MARKS[curve.aggregator]
    look = {"color": curve.color, "label": label, "linewidth": 2, "markersize": 5}
    axes.plot(curve.rounds, percents, mark, **look)
    if curve.diverged:
        end = curve.rounds[-1], percents[-1]
        arrow = {"arrowstyle": "->", "color": curve.color}
        text = f"{NAMES[curve.aggregator]} diverged"
        axes.annotate(text, end, (end[0] + 6, end[1] + 8), color=curve.color, arrowprops=arrow)
