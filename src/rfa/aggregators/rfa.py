"""RFA: the geometric median of the updates by smoothed Weiszfeld steps (Algorithms 1 to 3).

Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning.

    >>> import numpy as np
    >>> from rfa import PlainOracle
    >>> near, far = np.random.default_rng(0).standard_normal((90, 5)), np.full((10, 5), 1e6)
    >>> updates = np.vstack([near, far])
    >>> result, radius = RFA(budget=4)([PlainOracle(updates)], 5)
    >>> float(np.linalg.norm(result.point)) < 1, result.calls
    (True, 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from rfa._checks import check_choice, check_count, check_number
from rfa._types import Vector
from rfa.aggregators.accelerated import accelerated
from rfa.aggregators.adaptive_radius import AdaptiveRadius, RadiusAggregator
from rfa.aggregators.base import Layout, only
from rfa.aggregators.clipping import check_clip_norm, check_secure_clip, clipped_mean
from rfa.aggregators.weiszfeld import one_step, weiszfeld
from rfa.errors import InvalidValueError
from rfa.oracle import RecordingOracle

STARTS = ("current", "mean")
SCHEDULES = ("plain", "accelerated")
Start = Literal["current", "mean"]
Schedule = Literal["plain", "accelerated"]


@final
@dataclass(frozen=True, kw_only=True)
class RFA(RadiusAggregator):
    """Weiszfeld steps from the current model or the mean, each a sum (Algorithms 1 and 2).

    Attributes:
        budget: the number of sums R that a round may take; a start at the mean is one of them.
        nu: the smoothing radius; None for half the median distance of the updates, learned from the
            sums.
        start: "current", the current model; or "mean", as in the paper's runs, which is weak
            against huge updates.
        schedule: "plain" steps; or "accelerated", with the last sum at an extrapolation.
        clip_norm: the length to which the mean clips updates; infinite if the sums are in the
            clear.
        early_stop: stop when a step improves the objective by no more than this fraction; None or
            0 for never. Only sums in the clear contain the objective.
    """

    budget: int = 3
    nu: float | None = None
    start: Start = "current"
    schedule: Schedule = "plain"
    clip_norm: float = 100.0
    early_stop: float | None = None

    def __post_init__(self) -> None:
        """Check the parameters, and that they fit together."""
        super().__post_init__()
        check_count("budget", self.budget)
        check_choice("start", self.start, STARTS)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_clip_norm(self.clip_norm)
        if self.start == "mean" and self.budget == 1:
            msg = "budget=1 leaves no step after the mean: give 2 or more, or start=current"
            raise InvalidValueError(msg)
        if self.early_stop is not None:
            check_number("early_stop", self.early_stop)
            object.__setattr__(self, "early_stop", self.early_stop or None)
        if self.early_stop and self.schedule != "plain":
            msg = f"early_stop={self.early_stop} is for schedule=plain, not {self.schedule}"
            raise InvalidValueError(msg)

    @property
    def fixed_radius(self) -> float | None:
        """The smoothing radius; None if it is learned."""
        return self.nu

    @property
    def min_nu(self) -> float:
        """The smoothing radius, or the clip norm of a start at the mean if that is smaller."""
        return min(super().min_nu, self.clip_norm) if self.start == "mean" else super().min_nu

    @property
    def step_totals(self) -> frozenset[str]:
        """The totals of its steps, and of the mean if it starts there."""
        return super().step_totals | ({"weight"} if self.start == "mean" else set[str]())

    def layout(self, devices: int) -> Layout:  # noqa: ARG002
        """Return one part, with the budget as the number of queries."""
        return Layout(queries=self.budget)

    def aggregate(
        self, oracles: Sequence[RecordingOracle], dim: int, state: AdaptiveRadius | None
    ) -> Vector:
        """Return the result of steps over the sums of the one part."""
        oracle, nu, steps = only(oracles), self.radius(state), self.budget
        v = np.zeros(dim)
        if self.start == "mean":
            v, steps = clipped_mean(oracle, dim, clip_norm=self.clip_norm), steps - 1
        if self.schedule == "accelerated":
            return accelerated(oracle, v, nu=nu, steps=steps, max_step=self.max_step(state))
        return weiszfeld(
            oracle,
            v,
            nu=nu,
            steps=steps,
            early_stop=self.early_stop,
            max_step=self.max_step(state),
        )

    def certificate(self, oracle: RecordingOracle) -> float | None:
        """Return the bound from the last sum, or the last two if the last was at an extrapolation.

        A sum with noise proves no bound.
        """
        sums = (oracle.last, oracle.previous if self.schedule == "accelerated" else None)
        proven = (total.certificate() for total in sums if total and not total.noise)
        return max(proven, default=None)

    def check_secure(self) -> None:
        """Check that no parameter needs the objective or an infinite clip norm."""
        super().check_secure()
        if self.start == "mean":
            check_secure_clip(self.clip_norm)
        if self.early_stop:
            msg = (
                f"early_stop={self.early_stop} needs the objective, which secure sums do not hold: "
            )
            msg += "give early_stop=0"
            raise InvalidValueError(msg)

    def check_noise(self) -> None:
        """Check that no parameter needs exact sums: neither a guess nor an early stop."""
        if self.schedule != "plain":
            msg = f"schedule={self.schedule} proves its guess from exact sums, and noise leaves "
            raise InvalidValueError(msg + "none: give schedule=plain, or take rfa-one-step")
        if self.early_stop:
            msg = f"early_stop={self.early_stop} needs the exact objective, which sums with noise "
            raise InvalidValueError(msg + "do not hold: give early_stop=0")


@final
@dataclass(frozen=True, kw_only=True)
class OneStepRFA(RadiusAggregator):
    """One Weiszfeld step from the current model, with the communication of FedAvg (Algorithm 3).

    Attributes:
        nu: the smoothing radius; None for half the median distance of the updates, learned from the
            sums.
    """

    nu: float | None = None

    @property
    def fixed_radius(self) -> float | None:
        """The smoothing radius; None if it is learned."""
        return self.nu

    def aggregate(
        self, oracles: Sequence[RecordingOracle], dim: int, state: AdaptiveRadius | None
    ) -> Vector:
        """Return one step over the sum of the one part."""
        return one_step(only(oracles), dim, nu=self.radius(state), max_step=self.max_step(state))
