"""A corrupted cohort: what it does to the mean, and what to the geometric median.

Honest devices send updates around a common one. The corrupted ones know them all and send what
turns the mean into its opposite (the omniscient corruption of the paper's section 5).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import rfa

Floats: TypeAlias = NDArray[np.float64]

DEVICES, DIMENSIONS, SEED = 100, 1000, 7
SHARES = (0.0, 0.01, 0.1, 0.25, 0.4)

Aggregator: TypeAlias = Callable[[Floats], Floats]
AGGREGATORS: dict[str, Aggregator] = {
    "mean (FedAvg)": lambda updates: updates.mean(axis=0),
    "one step (Algorithm 3)": lambda updates: rfa.geometric_median(updates, steps=1).point,
    "three steps (Algorithm 2)": lambda updates: rfa.geometric_median(updates, steps=3).point,
    "geometric median": lambda updates: rfa.geometric_median(updates).point,
}


@dataclass(frozen=True)
class Row:
    """How far each aggregate is from the honest mean, in honest spreads."""

    share: float
    errors: dict[str, float]


def cohort(share: float, dim: int, seed: int = SEED) -> tuple[Floats, int]:
    """Updates of a cohort, the corrupted ones first, and how many those are."""
    rng = np.random.default_rng(seed)
    updates = 1 / np.sqrt(dim) * (rng.standard_normal((DEVICES, dim)) + 1)
    corrupted = round(share * DEVICES)
    if corrupted:
        honest = updates[corrupted:].sum(axis=0)
        updates[:corrupted] = -(updates.sum(axis=0) + honest) / corrupted
    return updates, corrupted


def measure() -> list[Row]:
    """The errors of all aggregates at all levels of corruption."""
    rows: list[Row] = []
    for share in SHARES:
        updates, corrupted = cohort(share, DIMENSIONS)
        honest = updates[corrupted:]
        target = honest.mean(axis=0)
        spread = float(np.median(np.linalg.norm(honest - target, axis=1)))
        errors = {
            name: float(np.linalg.norm(aggregate(updates) - target)) / spread
            for name, aggregate in AGGREGATORS.items()
        }
        rows.append(Row(share, errors))
    return rows


def can_draw() -> bool:
    """Whether the plotting library is installed (it comes with `rfa[lab]`)."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(rows: list[Row], path: Path) -> None:
    """The same as a picture: a cohort in the plane, and the errors against corruption."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure: Any = Figure(figsize=(11, 4.6), layout="constrained")
    plane, curve = figure.subplots(1, 2)
    _draw_plane(plane)
    for (name, mark), colour in zip(MARKS.items(), COLOURS, strict=True):
        errors = [row.errors[name] for row in rows]
        curve.plot(SHARES, errors, mark, color=colour, label=name, linewidth=2, markersize=7)
    curve.set(
        xlabel="share of corrupted devices",
        ylabel="distance from the honest mean (honest spreads)",
        title=f"{DEVICES} devices, {DIMENSIONS} dimensions",
        ylim=(0, None),
    )
    curve.legend(frameon=False)
    curve.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


MARKS = dict(zip(AGGREGATORS, ("-X", "--v", "-.s", "-o"), strict=True))
COLOURS = ("#d55e00", "#56b4e9", "#009e73", "#0072b2")


def _draw_plane(axes: Any) -> None:
    updates, corrupted = cohort(0.25, 2)
    honest, bad = updates[corrupted:], updates[:corrupted]
    grey = {"s": 18, "alpha": 0.55, "linewidths": 0}
    axes.scatter(*honest.T, color="#777777", label="honest updates", **grey)
    axes.scatter(*bad.T, color="#d55e00", marker="x", s=45, label="corrupted updates (25 together)")
    mean = honest.mean(axis=0)
    axes.scatter(*mean, marker="+", s=200, color="black", label="honest mean", zorder=4)
    ends = [("mean (FedAvg)", "X", COLOURS[0]), ("geometric median", "o", COLOURS[3])]
    for name, mark, colour in ends:
        point = AGGREGATORS[name](updates)
        axes.scatter(
            *point, marker=mark, s=170, color=colour, edgecolors="white", label=name, zorder=3
        )
    axes.set(title="A cohort in the plane, a quarter corrupted", aspect="equal")
    axes.legend(frameon=False, loc="lower right")
    axes.grid(alpha=0.3)
