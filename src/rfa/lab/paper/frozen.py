"""Weiszfeld's algorithm on frozen cohorts: Figure 1 and its version in the appendix.

FedAvg without corruption is stopped after some rounds, and the devices of the next round send their
updates, some of them corrupted. On these points: how fast the smoothed Weiszfeld algorithm comes to
their smoothed geometric median v*, and what weight beta_i each point has there, beside the alpha_i
of the mean.

All iterates are averages of the points, so it all happens in the m dimensions that they span: a QR
decomposition keeps every distance to the last digit of float64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats, Floats32
from rfa.aggregators.weiszfeld import weiszfeld
from rfa.lab.attacks.corruption import NoSuchAttackError
from rfa.lab.datasets.cache import load
from rfa.lab.paper.scale import Scale
from rfa.lab.report.exhibit import Exhibit, Line, Panel, Table, Value
from rfa.lab.runs import checkpoint as checkpoints
from rfa.lab.runs.run import CHECKPOINT
from rfa.lab.runs.sweep import settle
from rfa.lab.settings.config import run_name
from rfa.lab.settings.settings import NONE, Settings
from rfa.lab.simulation.rounds import corrupt
from rfa.lab.tasks.registry import find_task
from rfa.lab.training.devices import Devices
from rfa.median import geometric_median
from rfa.numerics.plain_oracle import PlainOracle

DISTANCE, OBJECTIVE, WEIGHTS = "distance to the median", "objective", "re-weighting"
POLISH = 200
"""Plain steps that take the reference to the last digit."""
NEAR = 1e-3
"""The relative distance to the median that counts as having come to it."""


@dataclass(frozen=True)
class Frozen:
    """What the algorithm does on one cohort.

    Attributes:
        task: the task.
        corruption: what the corrupted devices do.
        distance: |v_r - v*| over |v_0 - v*|, from the mean (r = 0) on.
        objective: g(v_r) / g(v*) - 1.
        ratio: beta_i / alpha_i at the median.
        corrupted: which devices are corrupted.
        share: the share of the weight alpha on corrupted devices.
        share_after: the share of the weight beta on them, at the median.
    """

    task: str
    corruption: str
    distance: Floats
    objective: Floats
    ratio: Floats
    corrupted: Floats
    share: float
    share_after: float

    @property
    def steps(self) -> int | None:
        """Weiszfeld steps from the mean to the neighborhood of the median."""
        near = np.flatnonzero(self.distance <= NEAR)
        return int(near[0]) if near.size else None


def frozen_run(task: str, scale: Scale, plan: Mapping[str, Any]) -> Settings:
    """The run of FedAvg that is stopped."""
    own = scale.settings_of(task, "fedavg")
    own.pop("calls", None)
    rounds = scale.frozen.get("rounds", plan["rounds"])
    return settle({**own, "task": task, "aggregator": "fedavg", "rounds": rounds})


def freeze(
    settings: Settings, out: Path, data: Path | None, plan: Mapping[str, Any]
) -> list[Frozen]:
    """What the algorithm does after a run that is done, for each corruption that the task has."""
    cases = [(name, 0.0 if name == NONE else plan["rho"]) for name in plan["corruptions"]]
    cohorts = thaw(settings, out, data, cases)
    return [_study(cohort, settings, plan["steps"]) for cohort in cohorts]


@dataclass(frozen=True)
class Cohort:
    """The devices of a round after a run of FedAvg that was stopped.

    Attributes:
        corruption: what the corrupted ones do.
        rho: the corruption level.
        updates: what each sends.
        alpha: their shares of the examples.
        bad: which are corrupted.
    """

    corruption: str
    rho: float
    updates: Floats32
    alpha: Floats
    bad: NDArray[np.bool_]


def thaw(
    settings: Settings, out: Path, data: Path | None, cases: Iterable[tuple[str, float]]
) -> Iterator[Cohort]:
    """The next cohort after a run that is done, for each corruption and level."""
    saved = checkpoints.load(out / run_name(settings) / CHECKPOINT, settings.aggregation)
    if saved is None:
        return
    task, state = find_task(settings.task), saved.state
    population = load(task.reader, data)
    for corruption, rho in cases:
        with_bad = dataclasses.replace(settings, corruption=corruption, rho=rho)
        try:
            devices = Devices(with_bad, task, population)
        except NoSuchAttackError:
            continue
        chosen = devices.sample(state.round)
        updates = np.stack([devices.train(state.model, state.round, device) for device in chosen])
        corrupt(updates, chosen, state, devices)
        alpha = devices.weights[chosen] / devices.weights[chosen].sum()
        bad = devices.corrupted_in(state.round)[chosen]
        yield Cohort(corruption, rho, updates, alpha, bad)


def _study(cohort: Cohort, settings: Settings, steps: int) -> Frozen:
    points, alpha, bad, nu = span(cohort.updates), cohort.alpha, cohort.bad, settings.nu
    best = geometric_median(points, alpha, nu=nu)
    median = weiszfeld(PlainOracle(points, alpha), best.point, nu=nu, steps=POLISH)
    iterates = list(_iterates(points, alpha, nu, steps))
    gaps = np.array([np.linalg.norm(v - median) for v in iterates])
    costs = np.array([_cost(points, alpha, v) for v in iterates])
    least = min(_cost(points, alpha, median), float(costs.min()))
    return Frozen(
        task=settings.task,
        corruption=cohort.corruption,
        distance=gaps / gaps[0],
        objective=np.maximum(costs / least - 1, 0.0),
        ratio=best.weights / alpha,
        corrupted=bad.astype(np.float64),
        share=float(alpha[bad].sum()),
        share_after=float(best.weights[bad].sum()),
    )


def span(updates: Any) -> Floats:
    """Points in as few dimensions as there are points, with the same distances."""
    points = np.asarray(updates, np.float64)
    points = points - points.mean(axis=0)
    if points.shape[1] <= points.shape[0]:
        return points
    triangle: Any = np.linalg.qr(points.T, mode="r")
    return triangle.T


def _iterates(points: Floats, alpha: Floats, nu: float, steps: int) -> Iterator[Floats]:
    """The weighted mean, and what each Weiszfeld step makes of it."""
    ask = PlainOracle(points, alpha)
    v = alpha @ points
    yield v
    for _ in range(steps):
        v = weiszfeld(ask, v, nu=nu, steps=1)
        yield v


def _cost(points: Floats, alpha: Floats, v: Floats) -> float:
    return float(alpha @ np.linalg.norm(points - v, axis=1))


def exhibit(plan: Mapping[str, Any], found: Sequence[Frozen], names: Mapping[str, str]) -> Exhibit:
    """Panels for each task, and the table behind them.

    Args:
        plan: title, claim and paper, from the experiment's file.
        found: what was measured.
        names: the titles of tasks.
    """
    tasks = list(dict.fromkeys(one.task for one in found))
    panels: list[Panel] = []
    for view, label in (
        (DISTANCE, "distance to the median (of the mean's)"),
        (OBJECTIVE, "objective above its minimum (relative)"),
    ):
        for task in tasks:
            own = [one for one in found if one.task == task]
            lines = [_convergence(one, view) for one in own]
            panels.append(Panel(names[task], "Weiszfeld steps", label, lines, view, log_y=True))
    for one in found:
        if one.corruption != NONE:
            title = f"{names[one.task]}, {one.corruption}"
            label = "beta_i / alpha_i"
            panels.append(
                Panel(title, "devices, in order (%)", label, list(_weights(one)), WEIGHTS)
            )
    return Exhibit(
        name=plan["name"],
        title=plan["title"],
        claim=plan["claim"],
        paper=plan["paper"],
        panels=panels,
        tables=[_table(found, names)],
    )


def _convergence(one: Frozen, view: str) -> Line:
    heights = one.distance if view == DISTANCE else one.objective
    shown = [float(y) if y > 0 else float("nan") for y in heights]
    label = "no corruption" if one.corruption == NONE else one.corruption
    return Line(label, list(map(float, range(len(shown)))), shown, shown, shown)


def _weights(one: Frozen) -> Iterator[Line]:
    for label, mark in (("honest", 0.0), ("corrupted", 1.0)):
        heights = np.sort(one.ratio[one.corrupted == mark])[::-1]
        places = 100 * (np.arange(len(heights)) + 0.5) / max(1, len(heights))
        shown = [float(y) for y in heights]
        yield Line(label, [float(x) for x in places], shown, shown, shown)


def _table(found: Sequence[Frozen], names: Mapping[str, str]) -> Table:
    head = ["task", "corruption", "weight of the corrupted in the mean (%)"]
    head += ["in the median (%)", f"steps to {NEAR:g} of the mean's distance", "last rate"]
    rows: list[list[Value]] = []
    for one in found:
        shares: list[Value] = [None, None]
        if one.corruption != NONE:
            shares = [100 * one.share, 100 * one.share_after]
        rows.append([names[one.task], one.corruption, *shares, one.steps, _rate(one)])
    return Table("Frozen cohorts", head, rows)


def _rate(one: Frozen) -> float | None:
    """The factor by which a step shortens the distance, where it is straight in log scale."""
    gaps = one.distance
    there = np.flatnonzero((gaps < 1e-2) & (gaps > 1e-9))  # noqa: PLR2004
    if there.size < 2:  # noqa: PLR2004
        return None
    first, last = int(there[0]), int(there[-1])
    return float((gaps[last] / gaps[first]) ** (1 / (last - first))) if last > first else None
