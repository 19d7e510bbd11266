"""The clipped mean, and centered clipping (Karimireddy et al. 2021), from sums.

>>> import numpy as np
>>> from rfa import PlainOracle
>>> near, far = np.random.default_rng(0).standard_normal((90, 5)), np.full((10, 5), 1e6)
>>> oracle = PlainOracle(np.vstack([near, far]))
>>> result, _ = CenteredClipping(clip_norm=2.0, budget=3)([oracle], 5)
>>> float(np.linalg.norm(result.point)) < 1
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from rfa._checks import check_count, check_number
from rfa._types import Vector
from rfa.aggregators.adaptive_radius import (
    RADIUS_RANGE,
    AdaptiveRadius,
    RadiusAggregator,
    check_radius,
)
from rfa.aggregators.base import Layout, only
from rfa.aggregators.weiszfeld import shortened
from rfa.errors import InvalidValueError
from rfa.oracle import RecordingOracle, SumOracle, next_sum

UNCLIPPED = 1e20
"""A length above that of any update that is not rejected anyway."""


@dataclass(frozen=True, kw_only=True)
class Clipping(RadiusAggregator):
    """A mean of clipped differences, whose radius is the clip norm.

    Attributes:
        clip_norm: the length to which differences are clipped; None for half their median length,
            learned from the sums.
    """

    radius_name: ClassVar[str] = "clip_norm"

    clip_norm: float | None = None

    @property
    def fixed_radius(self) -> float | None:
        """The clip norm, unless it is learned."""
        return self.clip_norm

    @property
    def step_totals(self) -> frozenset[str]:
        """The total weight, by which a mean divides."""
        return frozenset({"weight"})


@final
@dataclass(frozen=True, kw_only=True)
class CenteredClipping(Clipping):
    """Steps from the current model by the mean of the clipped differences.

    *Formal guarantee*: a step is no longer than the clip norm, whatever the sums hold.

    Attributes:
        clip_norm: the length to which differences are clipped; None for half their median length,
            learned from the sums.
        budget: the number of sums that a round may take; each is a step.
    """

    budget: int = 3

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        check_count("budget", self.budget)

    def layout(self, devices: int) -> Layout:  # noqa: ARG002
        """Return one part, with the budget as the number of queries."""
        return Layout(queries=self.budget)

    def aggregate(
        self, oracles: Sequence[RecordingOracle], dim: int, state: AdaptiveRadius | None
    ) -> Vector:
        """Return the result of steps over the sums of the one part."""
        start, radius = np.zeros(dim), self.radius(state)
        return centered_clipping(only(oracles), start, clip_norm=radius, steps=self.budget)


@final
@dataclass(frozen=True, kw_only=True)
class Mean(Clipping):
    """The weighted mean of the clipped updates: FedAvg if none is longer than the clip norm.

    Attributes:
        clip_norm: the length to which updates are clipped; None for half their median length,
            learned from the sums; infinite for no clipping, if the sums are in the clear.
    """

    clip_norm: float | None = 100.0

    def __post_init__(self) -> None:
        """Check the parameter."""
        if self.clip_norm is not None:
            check_clip_norm(self.clip_norm)

    def aggregate(
        self, oracles: Sequence[RecordingOracle], dim: int, state: AdaptiveRadius | None
    ) -> Vector:
        """Return the mean, from the sum of the one part."""
        return clipped_mean(only(oracles), dim, clip_norm=self.radius(state))

    def check_secure(self) -> None:
        """Check that updates are clipped."""
        if self.clip_norm is not None:
            check_secure_clip(self.clip_norm)


def clipped_mean(oracle: SumOracle, dim: int, *, clip_norm: float) -> Vector:
    """Return the weighted mean of the updates, each clipped to a length, from one sum."""
    return centered_clipping(oracle, np.zeros(dim), clip_norm=clip_norm, steps=1)


def centered_clipping(oracle: SumOracle, start: Vector, *, clip_norm: float, steps: int) -> Vector:
    """Take steps from v by the mean of the clipped differences of the updates from v.

    *Formal guarantee*: a step is no longer than the clip norm, whatever the sums hold.

    Args:
        oracle: the secure average oracle.
        start: the first center.
        clip_norm: the length to which the differences are clipped, positive.
        steps: the number of steps; each is one call of the oracle.

    Raises:
        InvalidValueError: if an argument is wrong, or if no device has any weight.
        OracleStoppedError: if the oracle gives no sum at all.
    """
    check_clip_norm(clip_norm)
    check_count("steps", steps)
    v, radius = np.asarray(start, np.float64), min(clip_norm, UNCLIPPED)
    for step in range(steps):
        total = next_sum(oracle, v, radius, first=step == 0)
        if total is None:
            break
        weight = total.need("weight")
        if not weight > 0:
            msg = f"the weight of {total.count} devices is {weight}: nothing to average"
            raise InvalidValueError(msg)
        v = v + shortened(radius * total.push / weight, radius)
    return v


def check_clip_norm(clip_norm: float) -> None:
    """Check that a clip norm is positive; it may be infinite."""
    if clip_norm != math.inf:
        check_number("clip_norm", clip_norm, positive=True)


def check_secure_clip(clip_norm: float) -> None:
    """Check that secure sums can clip to a norm."""
    if clip_norm > RADIUS_RANGE[1]:
        msg = f"clip_norm={clip_norm:g}: secure sums are of clipped updates: "
        msg += f"give at most {RADIUS_RANGE[1]:g}"
        raise InvalidValueError(msg)
    check_radius("clip_norm", clip_norm)
