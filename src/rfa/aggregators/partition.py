"""Aggregators over disjoint parts of a cohort, each part with its own oracle.

>>> from rfa.aggregators import Mean
>>> SubCohorts(RFA(budget=4)).layout(100)
Layout(parts=4, queries=1, sequential=True)
>>> Groups(Mean(), 7).layout(100)
Layout(parts=7, queries=1, sequential=False)
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from rfa._checks import check_choice, check_count, check_number
from rfa._types import Vector
from rfa.aggregators.adaptive_radius import AdaptiveRadius
from rfa.aggregators.base import Layout, SumAggregator
from rfa.aggregators.rfa import RFA, SCHEDULES
from rfa.aggregators.weiszfeld import check_max_step, image_of, mass_of
from rfa.errors import InvalidTypeError, InvalidValueError, OracleStoppedError
from rfa.median import geometric_median
from rfa.oracle import RecordingOracle, SumOracle

Composed: TypeAlias = SumAggregator[Any]
SUB_COHORTS = "sub-cohorts"
MANY = 1 << 10
"""A size of cohort that every aggregator with parts splits."""
FAR, LEAST_GROUPS = 4.0, 3
"""A group is spoilt if it is this many times farther away than usual, and the least number of
groups that define the usual distance. Means of equally many honest updates are about equally far
from their center."""
ALL_SCHEDULES = (*SCHEDULES, SUB_COHORTS)
"""The ways to spend the budget of RFA."""


@dataclass(frozen=True)
class Around(SumAggregator[Any]):
    """An aggregator over parts of a cohort that delegates to an inner one.

    Attributes:
        inner: the inner aggregator.
    """

    inner: SumAggregator[Any]

    def init(self) -> Any:
        """Return the first state of the inner aggregator."""
        return self.inner.init()

    def next_state(self, oracles: Sequence[RecordingOracle], state: Any) -> Any:
        """Return the next state of the inner aggregator, from the sums of all parts."""
        return self.inner.next_state(oracles, state)

    def certificate(self, oracle: RecordingOracle) -> float | None:
        """Return the bound that the inner aggregator proves in a part."""
        return self.inner.certificate(oracle)

    @property
    def statistics(self) -> frozenset[str]:
        """The totals that the inner aggregator reads."""
        return self.inner.statistics

    @property
    def block(self) -> int:
        """The block size of the inner aggregator."""
        return self.inner.block

    @property
    def min_nu(self) -> float:
        """The smallest radius of the inner aggregator."""
        return self.inner.min_nu

    def check_secure(self) -> None:
        """Check the inner aggregator."""
        self.inner.check_secure()

    def check_noise(self) -> None:
        """Check the inner aggregator."""
        self.inner.check_noise()


@final
@dataclass(frozen=True)
class SubCohorts(Around):
    """Weiszfeld steps that each ask another part of the cohort, so a device answers once.

    Attributes:
        inner: the RFA whose budget is the number of parts.
    """

    inner: RFA

    def __post_init__(self) -> None:
        """Check that the inner aggregator can be spread over parts."""
        if not isinstance(self.inner, RFA):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"sub-cohorts spread the budget of an RFA(...), not of {self.inner!r}"
            raise InvalidTypeError(msg)
        for name, wanted in (("start", "current"), ("schedule", "plain"), ("early_stop", None)):
            value = getattr(self.inner, name)
            if value and value != wanted:
                msg = f"sub-cohorts take plain steps from the current model: give {name}="
                msg += f"{wanted or 0}, not {value}"
                raise InvalidValueError(msg)

    def layout(self, devices: int) -> Layout:  # noqa: ARG002
        """Return a part for each step."""
        return Layout(parts=self.inner.budget, sequential=True)

    def aggregate(
        self, oracles: Sequence[RecordingOracle], dim: int, state: AdaptiveRadius | None
    ) -> Vector:
        """Return the result of steps over the sums of one part after the other."""
        nu, max_step = self.inner.radius(state), self.inner.max_step(state)
        return sub_cohorts(oracles, np.zeros(dim), nu=nu, max_step=max_step)


@final
@dataclass(frozen=True)
class Groups(Around):
    """The geometric median of the aggregates of random groups.

    A device that lies in the sums spoils its own group only. With `Mean` this is bucketing
    (Karimireddy et al. 2022) under secure sums.

    *Formal guarantee*: while fewer than half of the groups that answer hold a lying device, the
    aggregate is no farther from those of the other groups than a geometric median with that many
    corrupted points.

    Attributes:
        inner: the aggregator of a group, with one part.
        count: the number of groups.
    """

    count: int

    def __post_init__(self) -> None:
        """Check the count, and that the inner aggregator has one part."""
        check_count("the number of groups", self.count)
        if not isinstance(self.inner, SumAggregator):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"groups are of a private aggregator, such as Mean(), not of {self.inner!r}"
            raise InvalidTypeError(msg)
        if self.inner.layout(MANY).parts > 1:
            msg = f"{self.inner!r} splits a cohort itself: give groups of another aggregator"
            raise InvalidValueError(msg)

    def layout(self, devices: int) -> Layout:
        """Return a part for each group; all are queried at the same time."""
        inner = self.inner.layout(max(1, devices // self.count))
        return Layout(parts=self.count, queries=inner.queries)

    def aggregate(self, oracles: Sequence[RecordingOracle], dim: int, state: Any) -> Vector:
        """Return the median of the groups' aggregates."""
        return center_of_groups(oracles, lambda oracle: self.inner.aggregate([oracle], dim, state))


def compose_rfa(*, schedule: Any = "plain", groups: int = 1, **parameters: Any) -> Composed:
    """Return RFA with a schedule, which may be sub-cohorts, in groups.

    Args:
        schedule: "plain", "accelerated" or "sub-cohorts".
        groups: the number of groups; 1 for none.
        parameters: the other parameters of `RFA`.
    """
    check_choice("schedule", schedule, ALL_SCHEDULES)
    if schedule == SUB_COHORTS:
        return grouped(SubCohorts(RFA(**parameters)), groups)
    return grouped(RFA(schedule=schedule, **parameters), groups)


def grouped(aggregator: SumAggregator[Any], groups: int) -> Composed:
    """Return an aggregator in groups, or itself if there is only one."""
    return aggregator if groups == 1 else Groups(aggregator, groups)


def sub_cohorts(
    oracles: Sequence[SumOracle], start: Vector, *, nu: float, max_step: float | None = None
) -> Vector:
    """Take Weiszfeld steps that each ask another part of the cohort.

    The iterate is the average of the steps so far, weighted by their masses: single steps over few
    devices scatter around the median.

    Args:
        oracles: an oracle for each part, in order.
        start: the first iterate.
        nu: the smoothing radius, positive.
        max_step: the longest step; None for any.

    Raises:
        InvalidValueError: if nu is not positive, or a part has no mass.
        OracleStoppedError: if no part gives a sum. Single parts without a sum are left out.
    """
    check_number("nu", nu, positive=True)
    check_max_step(max_step)
    v, mass = np.asarray(start, np.float64), 0.0
    stopped = OracleStoppedError("there are no parts")
    for oracle in oracles:
        try:
            total = oracle(v, nu)
        except OracleStoppedError as error:
            stopped = error
            continue
        image = image_of(v, total, nu, max_step)
        mass += mass_of(total)
        v = v + mass_of(total) / mass * (image - v)
    if not mass:
        raise stopped
    return v


def center_of_groups(
    oracles: Sequence[RecordingOracle], aggregate: Callable[[RecordingOracle], Vector]
) -> Vector:
    """Return the geometric median of the aggregates of groups.

    Args:
        oracles: an oracle for each group.
        aggregate: computes the aggregate of a group from its oracle.

    Raises:
        OracleStoppedError: if no more than half of the groups give a finite one.
    """
    points: list[Vector] = []
    stopped = OracleStoppedError("there are no groups")
    for oracle in oracles:
        try:
            point = aggregate(oracle)
            if np.isfinite(point).all():
                points.append(point)
                oracle.point = point
        except OracleStoppedError as error:
            stopped = error
    if 2 * len(points) <= len(oracles):
        msg = f"only {len(points)} of {len(oracles)} groups give a sum: {stopped}"
        raise OracleStoppedError(msg)
    return geometric_median(np.stack(points)).point


def outlying(oracles: Sequence[RecordingOracle]) -> list[bool]:
    """Return which groups are farther from the median of all than one device could move them.

    Such a group is farther away than FAR times the usual distance, and than a device that follows
    the protocol can move the result of a group with any update. So a device with unusual data does
    not make its group look bad. Fewer than three groups, or groups without a result, prove nothing.
    """
    points = [oracle.point for oracle in oracles]
    made = [point for point in points if point is not None]
    if len(made) < LEAST_GROUPS:
        return [False] * len(points)
    center = geometric_median(np.stack(made)).point
    lengths = [0.0 if point is None else float(np.linalg.norm(point - center)) for point in points]
    usual = statistics.median(
        length for length, point in zip(lengths, points, strict=True) if point is not None
    )
    rounding = 1e-6 * float(np.linalg.norm(center))
    legal = statistics.median(_reach(oracle) for oracle in oracles if oracle.point is not None)
    return [length > max(FAR * usual, FAR * rounding, legal) for length in lengths]


def _reach(oracle: RecordingOracle) -> float:
    """Return about how far a device of weight 1 can move the result of a group.

    A step nu push / mass changes most if the device moves far away, where its mass vanishes, or to
    v, where it is 1; its push changes by at most 2.
    """
    total, point = oracle.last, oracle.point
    if total is None or point is None:
        return 0.0
    whole = next((x for x in (total.mass, total.weight) if x is not None), float(total.count))
    mean, length = min(1.0, whole / max(1, total.count)), float(np.linalg.norm(point))
    others = max(whole - mean, np.finfo(float).tiny)
    away = (2 * oracle.nu + length * mean) / others
    here = (2 * oracle.nu + length * (1 - mean)) / (others + 1)
    return oracle.answers * max(away, here)
