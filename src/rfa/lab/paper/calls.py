"""The value of a call of the oracle: how near the median several kinds of steps come.

On frozen cohorts (see `frozen`), for the same number of calls: Weiszfeld steps from zero, the
current model, and from the mean, which is itself a call; with an extrapolation at the end; and with
another part of the cohort for each step. Distances are over the length of the median.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rfa._types import Floats
from rfa.aggregators.accelerated import accelerated
from rfa.aggregators.partition import sub_cohorts
from rfa.aggregators.weiszfeld import weiszfeld
from rfa.lab.attacks.registry import NONE
from rfa.lab.paper.frozen import Cohort, about, polished_median, positive_line, span, thaw
from rfa.lab.randomness import stream
from rfa.lab.report.exhibit import Exhibit, Panel, Table, Value
from rfa.lab.settings.settings import Settings
from rfa.numerics.plain_oracle import PlainOracle
from rfa.oracle import REACH

BUDGETS = (1, 2, 3, 4, 6)
SPLITS = 20
"""Random splits into sub-cohorts, of which the mean distance is shown."""
SMALL, HALF = "nu 1e-6, the paper's", "nu half the median distance"
RADII: Mapping[str, Callable[[Floats], float]] = {
    SMALL: lambda _: 1e-6,
    HALF: lambda points: float(np.median(np.linalg.norm(points, axis=1))) / REACH,
}


@dataclass(frozen=True)
class Worth:
    """How near the median some calls bring the iterate, on one cohort."""

    task: str
    case: str  # what the corrupted devices do, and the level
    radius: str  # which nu
    distance: Mapping[str, Sequence[float]]  # after each number of calls, for each way
    bias: float  # the distance of the smoothed median from the median


def measure(
    settings: Settings, out: Path, data: Path | None, plan: Mapping[str, Any]
) -> Iterator[Worth]:
    """What calls are worth after a run that is done, in each case that the task has."""
    cases = [(str(name), float(rho)) for name, rho in plan["cases"]]
    for cohort in thaw(settings, out, data, cases):
        for radius in RADII:
            yield _worth(settings, cohort, radius)


def _worth(settings: Settings, cohort: Cohort, radius: str) -> Worth:
    with_model = np.vstack([cohort.updates, np.zeros_like(cohort.updates[:1])])
    spanned = span(with_model)
    points: Floats = spanned[:-1] - spanned[-1]
    alpha, nu = cohort.alpha, RADII[radius](points)
    median = polished_median(points, alpha, nu)
    size = float(np.linalg.norm(median))

    def far(v: Floats) -> float:
        return float(np.linalg.norm(v - median)) / size

    ask, zero = PlainOracle(points, alpha), np.zeros(points.shape[1])
    mean: Floats = alpha @ points
    distance: dict[str, Sequence[float]] = {}
    for name, steps in (("plain", weiszfeld), ("accelerated", accelerated)):
        # the mean is a call itself, so a step less is left
        for start, v, spent in (("zero", zero, 0), ("the mean", mean, 1)):
            distance[f"{name}, from {start}"] = [
                far(steps(ask, v, nu=nu, steps=r - spent) if r > spent else v) for r in BUDGETS
            ]
    distance["sub-cohorts, from zero"] = [_split(points, alpha, nu, r, far) for r in BUDGETS]
    case = cohort.corruption if cohort.corruption == NONE else f"{cohort.corruption} {cohort.rho:g}"
    true = polished_median(points, alpha, RADII[SMALL](points))
    return Worth(settings.task, case, radius, distance, far(true))


def _split(
    points: Floats, alpha: Floats, nu: float, parts: int, far: Callable[[Floats], float]
) -> float:
    distances: list[float] = []
    for number in range(SPLITS):
        order = stream(number, "split").permutation(len(points))
        asks = [PlainOracle(points[rows], alpha[rows]) for rows in np.array_split(order, parts)]
        distances.append(far(sub_cohorts(asks, 0 * points[0], nu=nu)))
    return float(np.mean(distances))


def exhibit(plan: Mapping[str, Any], worths: Sequence[Worth], names: Mapping[str, str]) -> Exhibit:
    """A panel for each task and case, and the table behind them."""
    panels = [
        Panel(
            f"{names[worth.task]}, {worth.case}",
            "calls of the oracle",
            "distance to the median (of its length)",
            [positive_line(label, BUDGETS, heights) for label, heights in worth.distance.items()],
            worth.radius,
            log_y=True,
        )
        for worth in sorted(worths, key=lambda worth: list(RADII).index(worth.radius))
    ]
    head = ["task", "case", "nu", "way", *(f"{r} calls" for r in BUDGETS), "from the true median"]
    rows: list[list[Value]] = [
        [names[worth.task], worth.case, worth.radius, way, *heights, worth.bias]
        for worth in worths
        for way, heights in worth.distance.items()
    ]
    table = Table("Distance to the median after some calls, over its length", head, rows)
    return Exhibit(**about(plan), panels=panels, tables=[table])
