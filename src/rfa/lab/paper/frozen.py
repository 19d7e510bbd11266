"""Weiszfeld's algorithm on frozen cohorts: Figure 1 and its version in the appendix.

FedAvg without corruption is stopped after some rounds, and the devices of the next round send their
updates, some of them corrupted. On these points: how fast the smoothed Weiszfeld algorithm comes to
their smoothed geometric median v*, and what weight beta_i each point has there, beside the alpha_i
of the mean.

All iterates are averages of the points, so it all happens in the m dimensions that they span: a QR
decomposition keeps every distance to the last digit of float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats, Floats32
from rfa.aggregators.weiszfeld import weiszfeld
from rfa.lab.attacks.corruption import NoSuchAttackError
from rfa.lab.attacks.registry import NONE
from rfa.lab.paper.scale import AUTHORS, Scale
from rfa.lab.report.exhibit import Exhibit, Line, Panel, Table, Value, group
from rfa.lab.runs import checkpoint as checkpoints
from rfa.lab.runs.run import CHECKPOINT
from rfa.lab.runs.sweep import merge, settle
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import corrupt
from rfa.lab.tasks.registry import find_task
from rfa.lab.training.devices import Devices
from rfa.median import geometric_median
from rfa.numerics.plain_oracle import PlainOracle

DISTANCE, OBJECTIVE, WEIGHTS = "distance to the median", "objective", "re-weighting"
VIEWS = {
    DISTANCE: "distance to the median (of the mean's)",
    OBJECTIVE: "objective above its minimum (relative)",
}
POLISH = 200
"""Plain steps that take the reference to the last digit."""
NEAR = 1e-3
"""The relative distance to the median that counts as having come to it."""
FAR, ROUNDED = 1e-2, 1e-9
"""The relative distances between which convergence is judged: near, and not yet rounded."""
STRAIGHT = 0.99
"""The least squared correlation of a straight line."""
BUDGET = 3
"""The steps that the paper takes."""
MEAN_SHARE, MEDIAN_SHARE = "weight of the corrupted in the mean (%)", "in the median (%)"
EXCESS = f"objective above its minimum after {BUDGET} steps, in %"
RATE = "factor by which a step shortens the distance"


@dataclass(frozen=True)
class Frozen:
    """The behavior of the algorithm on one cohort."""

    task: str
    corruption: str  # what the corrupted devices do
    distance: Floats  # |v_r - v*| over |v_0 - v*|, from the mean (r = 0) on
    objective: Floats  # g(v_r) / g(v*) - 1
    ratio: Floats  # beta_i / alpha_i at the median
    corrupted: Floats  # which devices are corrupted
    share: float  # of the weight alpha on corrupted devices
    share_after: float  # of the weight beta on them, at the median

    @property
    def steps(self) -> int | None:
        """Weiszfeld steps from the mean to the neighborhood of the median."""
        near = np.flatnonzero(self.distance <= NEAR)
        return int(near[0]) if near.size else None

    @property
    def rate(self) -> float | None:
        """The factor by which a step shortens the distance; None if it is not constant."""
        late = np.flatnonzero((self.distance < FAR) & (self.distance > ROUNDED))
        heights = np.log(self.distance[late])
        if late.size < 3 or not np.ptp(heights):  # noqa: PLR2004
            return None
        if np.corrcoef(late, heights)[0, 1] ** 2 < STRAIGHT:
            return None
        return float(np.exp(np.polyfit(late, heights, 1)[0]))


def frozen_run(task: str, scale: Scale, plan: Mapping[str, Any]) -> Settings:
    """The run of FedAvg that is stopped."""
    rounds = scale.frozen.get("rounds", plan["rounds"])
    of_run = {"task": task, "aggregator": "fedavg", "rounds": rounds}
    return settle(merge(scale.settings_of(task, "fedavg"), of_run))


def freeze(
    settings: Settings, out: Path, data: Path | None, plan: Mapping[str, Any]
) -> list[Frozen]:
    """Return the behavior of the algorithm after a finished run, for each corruption."""
    cases = [(name, 0.0 if name == NONE else plan["rho"]) for name in plan["corruptions"]]
    cohorts = thaw(settings, out, data, cases)
    return [_study(cohort, settings, plan["steps"]) for cohort in cohorts]


@dataclass(frozen=True)
class Cohort:
    """The devices of a round after a run of FedAvg that was stopped."""

    corruption: str  # what the corrupted ones do
    rho: float
    updates: Floats32  # what each sends
    alpha: Floats  # their shares of the examples
    bad: NDArray[np.bool_]  # which are corrupted


def thaw(
    settings: Settings, out: Path, data: Path | None, cases: Iterable[tuple[str, float]]
) -> Iterator[Cohort]:
    """The next cohort after a run that is done, for each corruption and level."""
    saved = checkpoints.load(out / settings.run_name / CHECKPOINT, settings.aggregation)
    if saved is None:
        return
    task, state = find_task(settings.task), saved.state
    training = settings.training
    population = task.load(data, partition=training.partition, devices=training.devices)
    for corruption, rho in cases:
        try:
            with_bad = settings.replace(corruption=corruption, rho=rho, sybils=0)
        except NoSuchAttackError:
            continue
        devices = Devices(with_bad, task, population)
        chosen = devices.sample(state.round)
        updates = np.stack([devices.train(state.model, state.round, device) for device in chosen])
        corrupt(updates, chosen, state, devices)
        alpha = devices.weights[chosen] / devices.weights[chosen].sum()
        bad = devices.corrupted_in(state.round)[chosen]
        yield Cohort(corruption, rho, updates, alpha, bad)


def _study(cohort: Cohort, settings: Settings, steps: int) -> Frozen:
    points, alpha, bad, nu = span(cohort.updates), cohort.alpha, cohort.bad, AUTHORS["nu"]
    beta = geometric_median(points, alpha, nu=nu).weights
    median = polished_median(points, alpha, nu)
    iterates = [alpha @ points]
    for _ in range(steps):
        iterates.append(weiszfeld(PlainOracle(points, alpha), iterates[-1], nu=nu, steps=1))
    gaps = np.array([np.linalg.norm(v - median) for v in iterates])
    *costs, least = (alpha @ np.linalg.norm(points - v, axis=1) for v in (*iterates, median))
    return Frozen(
        task=settings.task,
        corruption=cohort.corruption,
        distance=gaps / gaps[0],
        objective=np.maximum(np.array(costs) / min(least, *costs) - 1, 0.0),
        ratio=beta / alpha,
        corrupted=bad.astype(np.float64),
        share=float(alpha[bad].sum()),
        share_after=float(beta[bad].sum()),
    )


def polished_median(points: Floats, alpha: Floats, nu: float) -> Floats:
    """The smoothed geometric median to the last digit."""
    best = geometric_median(points, alpha, nu=nu).point
    return weiszfeld(PlainOracle(points, alpha), best, nu=nu, steps=POLISH)


def span(updates: Any) -> Floats:
    """Points in as few dimensions as there are points, with the same distances."""
    points = np.asarray(updates, np.float64)
    points = points - points.mean(axis=0)
    if points.shape[1] <= points.shape[0]:
        return points
    triangle: Any = np.linalg.qr(points.T, mode="r")
    return triangle.T


def exhibit(
    plan: Mapping[str, Any], cohorts: Sequence[Frozen], names: Mapping[str, str]
) -> Exhibit:
    """Panels for each task, and the table behind them."""
    by_task = group(cohorts, lambda cohort: cohort.task)
    panels = [
        Panel(names[task], "Weiszfeld steps", label, _convergence(some, view), view, log_y=True)
        for view, label in VIEWS.items()
        for task, some in by_task.items()
    ]
    for cohort in cohorts:
        if cohort.corruption != NONE:
            title = f"{names[cohort.task]}, {cohort.corruption}"
            lines = list(_weights(cohort))
            panels.append(Panel(title, "devices, in order (%)", "beta_i / alpha_i", lines, WEIGHTS))
    return Exhibit(**about(plan), panels=panels, tables=[_table(cohorts, names)])


def about(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description in the file of an experiment."""
    return {key: plan[key] for key in ("name", "title", "claim", "paper") if key in plan}


def positive_line(label: str, x: Iterable[float], heights: Iterable[float]) -> Line:
    """Return a line for a logarithmic scale, with positive values only."""
    shown = [float(y) if y > 0 else float("nan") for y in heights]
    return Line.flat(label, [float(each) for each in x], shown)


def _convergence(cohorts: Sequence[Frozen], view: str) -> list[Line]:
    return [
        positive_line(
            "no corruption" if cohort.corruption == NONE else cohort.corruption,
            range(len(cohort.distance)),
            cohort.distance if view == DISTANCE else cohort.objective,
        )
        for cohort in cohorts
    ]


def _weights(cohort: Frozen) -> Iterator[Line]:
    for label, mark in (("honest", 0.0), ("corrupted", 1.0)):
        heights = np.sort(cohort.ratio[cohort.corrupted == mark])[::-1]
        places = 100 * (np.arange(len(heights)) + 0.5) / max(1, len(heights))
        yield Line.flat(label, [float(x) for x in places], [float(y) for y in heights])


def _table(cohorts: Sequence[Frozen], names: Mapping[str, str]) -> Table:
    head = ["task", "corruption", MEAN_SHARE, MEDIAN_SHARE, EXCESS]
    head += [f"steps to {NEAR:g} of the mean's distance", RATE]
    rows: list[list[Value]] = []
    for cohort in cohorts:
        shares: list[Value] = [None, None]
        if cohort.corruption != NONE:
            shares = [100 * cohort.share, 100 * cohort.share_after]
        excess = 100 * float(cohort.objective[BUDGET])
        told = [names[cohort.task], cohort.corruption, *shares, excess, cohort.steps, cohort.rate]
        rows.append(told)
    return Table("Frozen cohorts", head, rows)
