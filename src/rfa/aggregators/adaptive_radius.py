"""The smoothing radius nu, learned from sums: half the median distance of the updates from v.

The server knows of each sum how many devices are within 2 nu of v (`Sum.near`), and no more. If
fewer than half are, nu is too small, else too large. So it is steered from round to round: in far
steps while the answers agree, in halved ones when they turn. Corrupted devices can give what bits
they like: while answers of honest devices differ, a minority can push the radius, once it has
settled in strides of at most 1.5, until 2 nu leaves the distances of the others; then these agree,
and it comes back.

Where sums have noise, so do counts. Strides are then no longer than the count is far from a half,
and shorter the more noise it has: what one round does not tell, many do. A turn counts as one where
the count is farther from a half than noise usually takes it. Where the noise is as large as the
cohort the radius hardly moves: give nu there.

A device that lies inside a sum can make the count whatever it likes. *Formal guarantee*: once the
radius has settled, whatever the counts are, it is T rounds later at most 2 * 1.02^T times what it
was (4.5 times in 40 rounds); it shrinks as fast as ever. In random groups the median of their
counts is taken, so that liars need half of the groups. Before it has settled, a liar in a cohort of
one part can set it: what the liar makes of the sum is the sum of honest devices that are farther
away, and no look at the sum tells which. It grows by 32 a round at most then, up to 1e6, and a step
is no longer than what the next radius may allow. Give nu, or groups, where there may be a liar from
the first round on.

    >>> radius = AdaptiveRadius()
    >>> for _ in range(20):
    ...     radius = radius.after(1.0 if radius.nu >= 7.0 else 0.0)
    >>> 6 < radius.nu < 8
    True
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rfa._checks import check_number
from rfa.aggregators.base import MIN_NU, SumAggregator, near_noise, nearness
from rfa.errors import InvalidValueError
from rfa.oracle import REACH, RecordingOracle

FIRST = 0.1
"""The radius before anything is known."""
MAX_NU = 1e6
"""The largest radius that is learned; the smallest is the least that devices accept."""
RADIUS_RANGE = (1e-12, 1e9)
"""The radii for which sums of whole numbers keep their digits."""
SHORTEST, LONGEST, GROWN = 0.05, math.log(32), math.log(1.5)
"""The shortest and the longest stride, in logarithms, and what one may grow to after a turn."""
AHEAD, CREEP = math.log(2), math.log(1.02)
"""How far a settled radius may be above its anchor, and the anchor's stride, in logarithms."""
LONGEST_STEP = 2 * REACH
"""The longest step of Weiszfeld's algorithm, in radii, where the radius is learned. A device that
is near has a mass of 1 / REACH of its weight or more; so where half of the devices are near, and
weights are equal, no step is longer, and shortening changes nothing but lies."""
LONGEST_NOISY, NOISY = 1.0, 0.1
"""The longest stride where counts have noise, in logarithms, and that of one which is off by all
devices."""
AGREED = 3
"""So many answers of the same kind in a row mean that the median distance is far."""


@dataclass(frozen=True)
class AdaptiveRadius:
    """A radius on its way to half the median distance.

    Attributes:
        nu: the radius for the next round.
        stride: how far its logarithm last moved.
        toward: 1 if it grew, -1 if it shrank, 0 at the beginning.
        run: how often in a row.
        turned: whether it has ever turned.
        anchor: what follows the radius slowly, and holds it back, since it settled; 0 before.
    """

    nu: float = FIRST
    stride: float = 0.5
    toward: int = 0
    run: int = AGREED
    turned: bool = False
    anchor: float = 0.0

    def __post_init__(self) -> None:
        """Check the radius."""
        check_number("nu", self.nu, positive=True)

    def after(self, near: float, noise: float = 0.0) -> AdaptiveRadius:
        """The radius after a round, in whose last sum that fraction of the devices was near v.

        Args:
            near: the fraction.
            noise: how far it is off because of noise in the sum: the more, the shorter the strides.

        Raises:
            InvalidValueError: if it is no fraction.
        """
        if not 0 <= near <= 1:
            msg = f"near is a fraction of the devices, from 0 to 1, not {near}"
            raise InvalidValueError(msg)
        toward = 1 if near < 1 / 2 else -1
        run = self.run + 1 if toward == self.toward or not self.toward else 1
        turned = self.turned or (run == 1 and abs(near - 1 / 2) >= noise)
        stride = self._stride(run, turned=turned)
        if noise:
            stride = min(stride, abs(1 - 2 * near) * min(LONGEST_NOISY, NOISY / noise))
        most = self.anchor * math.exp(AHEAD) if self.anchor else MAX_NU
        nu = min(max(self.nu * math.exp(toward * stride), MIN_NU), most, MAX_NU)
        anchor = self._anchor(nu, settled=turned and stride <= GROWN)
        return AdaptiveRadius(nu, stride, toward, run, turned, anchor)

    def _anchor(self, nu: float, *, settled: bool) -> float:
        if not self.anchor:
            return nu if settled else 0.0
        far = math.log(nu / self.anchor)
        return self.anchor * math.exp(min(max(far, -CREEP), CREEP))

    def _stride(self, run: int, *, turned: bool) -> float:
        if run < AGREED:
            return max(self.stride / 2, SHORTEST)
        most = max(self.stride, GROWN) if turned else LONGEST
        return min(2 * self.stride, most)


@dataclass(frozen=True, kw_only=True)
class RadiusAggregator(SumAggregator[AdaptiveRadius | None]):
    """A private aggregator with one radius, which is fixed, or learned from the sums."""

    radius_name: ClassVar[str] = "nu"

    def __post_init__(self) -> None:
        """Check a fixed radius."""
        if self.fixed_radius is not None:
            check_radius(self.radius_name, self.fixed_radius)

    @property
    @abstractmethod
    def fixed_radius(self) -> float | None:
        """The radius, or None where it is learned."""

    def radius(self, state: AdaptiveRadius | None) -> float:
        """The radius of a round."""
        if self.fixed_radius is not None:
            return self.fixed_radius
        return (state or AdaptiveRadius()).nu

    def max_step(self, state: AdaptiveRadius | None) -> float | None:
        """The longest step of a round: LONGEST_STEP radii where the radius is learned, else any.

        Until the radius has turned, the next one may be by the longest stride larger, and so may be
        the step: who lies in the first round sets a step, and not any step.
        """
        if self.fixed_radius is not None:
            return None
        state = state or AdaptiveRadius()
        return LONGEST_STEP * state.nu * (1.0 if state.turned else math.exp(LONGEST))

    def init(self) -> AdaptiveRadius | None:
        """The first radius, where it is learned."""
        return AdaptiveRadius() if self.fixed_radius is None else None

    def next_state(
        self, oracles: Sequence[RecordingOracle], state: AdaptiveRadius | None
    ) -> AdaptiveRadius | None:
        """The next radius, by how many devices the last sums count as near."""
        near = nearness(oracles)
        return state if state is None or near is None else state.after(near, near_noise(oracles))

    @property
    def statistics(self) -> frozenset[str]:
        """What its steps read, and the devices that are near where the radius is learned."""
        return self.step_totals | ({"near"} if self.fixed_radius is None else set[str]())

    @property
    def step_totals(self) -> frozenset[str]:
        """What a step reads, and what proves its certificate: the masses."""
        return frozenset({"mass", "squares"})

    def certificate(self, oracle: RecordingOracle) -> float | None:
        """The bound of the last sum, which made the last step; none if that has noise."""
        last = oracle.last
        return last.certificate() if last and not last.noise else None

    @property
    def min_nu(self) -> float:
        """The fixed radius, or the smallest that is learned."""
        return MIN_NU if self.fixed_radius is None else self.fixed_radius


def check_radius(name: str, radius: float) -> None:
    """Check that sums of whole numbers keep their digits at a radius.

    Raises:
        InvalidValueError: naming the radius.
    """
    check_number(name, radius, positive=True)
    if not RADIUS_RANGE[0] <= radius <= RADIUS_RANGE[1]:
        msg = f"{name} must be from {RADIUS_RANGE[0]:g} to {RADIUS_RANGE[1]:g}, not {radius!r}"
        raise InvalidValueError(msg)
