"""The lab's main job in under a minute: a quarter of the devices corrupted, three aggregators.

FedAvg, RFA and one-step RFA learn the same task from the same devices, first with poisoned data,
then against devices that know everything and together turn the mean into its opposite.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from rfa.lab.api.run import run
from rfa.lab.datasets.dataset import lab_module
from rfa.lab.runs.headline import percent

TASK, RHO = "glyphs-linear", 0.25
SETTINGS = {
    "devices": 200,
    "rounds": 40,
    "eval_every": 5,
    "eval_examples": 20,
}
NAMES = {"fedavg": "FedAvg", "rfa": "RFA", "rfa-one-step": "one-step RFA"}
CORRUPTIONS = {"data": "poisoned data", "omniscient": "omniscient devices"}
CLEAN = "none"
CASES = [("fedavg", CLEAN), *((name, bad) for bad in CORRUPTIONS for name in NAMES)]
PYTHON = """\
from rfa import lab
some = ["fedavg", "rfa", "rfa-one-step"]
study = lab.sweep("glyphs-linear", corruption="omniscient", rho=0.25, rounds=40, aggregator=some)
print(study.means("test_accuracy"))
study.plot(x="round").savefig("study.png")
"""
"""The runs against omniscient devices, from Python."""
STYLES = {"fedavg": ("#d55e00", "-X"), "rfa": ("#0072b2", "-o"), "rfa-one-step": ("#009e73", "-s")}


@dataclass(frozen=True)
class Curve:
    """The accuracy of one run, from round to round, and that over honest devices at the end."""

    aggregator: str
    corruption: str
    rounds: list[int]
    accuracy: list[float]
    diverged: bool
    note: str
    honest: float

    @property
    def last(self) -> float:
        """The accuracy at the end."""
        return self.accuracy[-1]


def learn(out: Path, *, fresh: bool = False, **changes: Any) -> list[Curve]:
    """Do the runs, or what is left of them; settings can be changed."""
    curves: list[Curve] = []
    for number, (aggregator, corruption) in enumerate(CASES, start=1):
        rho = 0.0 if corruption == CLEAN else RHO
        case = {"aggregator": aggregator, "corruption": corruption, "rho": rho}
        label = f"{number}/{len(CASES)} {NAMES[aggregator]}, {CORRUPTIONS.get(corruption, 'clean')}"
        settings: dict[str, Any] = {**case, **SETTINGS, **changes}
        result = run(TASK, out=out, fresh=fresh, label=label, **settings)
        rounds: list[int] = result.evaluations["round"].tolist()
        accuracy: list[float] = result.evaluations["test_accuracy"].tolist()
        diverged = result.status == "diverged"
        about = result.row["note"], result.honest_accuracy
        curves.append(Curve(aggregator, corruption, rounds, accuracy, diverged, *about))
    return curves


def tabulate(curves: list[Curve]) -> Table:
    """The accuracies at the end."""
    cells = {(curve.aggregator, curve.corruption): _cell(curve) for curve in curves}
    table = Table(title="Test accuracy (over honest devices), a quarter of the data corrupted")
    table.add_column("")
    for corruption in (CLEAN, *CORRUPTIONS):
        table.add_column(CORRUPTIONS.get(corruption, "no corruption"), justify="right")
    for aggregator, name in NAMES.items():
        row = [cells.get((aggregator, corruption), "") for corruption in (CLEAN, *CORRUPTIONS)]
        table.add_row(name, *row)
    return table


def _cell(curve: Curve) -> str:
    beside = "" if curve.corruption == CLEAN else f" ({percent(curve.honest)})"
    return f"{curve.last:.1%}{beside}" + (", diverged" if curve.diverged else "")


def can_draw() -> bool:
    """Whether the plotting library is installed (it comes with `rfa[lab]`)."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(curves: list[Curve], path: Path) -> None:
    """A picture of accuracy per round, one panel for each corruption."""
    figure = lab_module("matplotlib.figure").Figure(figsize=(11, 4.6), layout="constrained")
    panels = figure.subplots(1, len(CORRUPTIONS), sharey=True)
    for axes, (corruption, name) in zip(panels, CORRUPTIONS.items(), strict=True):
        for curve in curves:
            if curve.corruption in (CLEAN, corruption):
                _draw_curve(axes, curve)
        axes.set(title=name, xlabel="round", ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="upper left", ncols=2)
    panels[0].set_ylabel("test accuracy (%)")
    panels[0].set_ylim(0, 1.35 * 100 * max(max(curve.accuracy) for curve in curves))
    figure.suptitle(f"{TASK}, a quarter of the data corrupted ({curves[0].note})", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _draw_curve(axes: Any, curve: Curve) -> None:
    percent = [100 * accuracy for accuracy in curve.accuracy]
    if curve.corruption == CLEAN:
        look = {"color": "#999999", "linestyle": ":", "label": "FedAvg without corruption"}
        axes.plot(curve.rounds, percent, linewidth=2, **look)
        return
    color, mark = STYLES[curve.aggregator]
    name = NAMES[curve.aggregator]
    axes.plot(curve.rounds, percent, mark, color=color, label=name, linewidth=2, markersize=5)
    if curve.diverged:
        end = curve.rounds[-1], percent[-1]
        arrow = {"arrowstyle": "->", "color": color}
        axes.annotate("diverged", end, (end[0] + 7, end[1] - 3.5), color=color, arrowprops=arrow)
