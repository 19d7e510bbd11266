"""The smoothing radius nu, learned from sums: half the median distance of the updates from v.

Each sum tells the server how many devices are within 2 nu of v (`Sum.near`), and nothing else about
distances. If fewer than half are, nu is too small; otherwise it is too large. So nu moves from
round to round: in long strides while the answers agree, in halved ones when they change. Corrupted
devices can give any answer. While the answers of honest devices differ, a minority can push the
radius, in strides of at most 1.5 once it has settled, until 2 nu is outside the distances of the
honest devices. Then their answers agree, and the radius returns.

If sums have noise, so do counts. A stride is then limited by the distance of the count from a half,
and shorter with more noise. Several rounds together decide what one round cannot. A change of
direction counts only if the count is farther from a half than noise usually moves it. If the noise
is as large as the cohort, the radius hardly moves: give nu then.

A device that lies in a sum can set the count to any value. *Formal guarantee*: once the radius has
settled, for any counts, it is after T rounds at most 2 * 1.02^T times as large (4.5 times after 40
rounds); there is no such limit on its decrease. With random groups, the median of their counts is
used, so liars need half of the groups. Before it has settled, a liar in a cohort of one part can
set it, because the liar can make the sum equal to that of honest devices that are farther away, and
the sum does not reveal the difference. The radius then grows by at most 32 per round, up to 1e6,
and a step is no longer than the next radius may allow. Give nu, or use groups, if there may be a
liar from the first round on.

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
"""The radius of the first round."""
MAX_NU = 1e6
"""The largest learned radius; the smallest is the least that devices accept."""
RADIUS_RANGE = (1e-12, 1e9)
"""The radii for which sums of whole numbers keep their digits."""
SHORTEST, LONGEST, GROWN = 0.05, math.log(32), math.log(1.5)
"""The shortest and the longest stride, in logarithms, and the longest after a change of
direction."""
AHEAD, CREEP = math.log(2), math.log(1.02)
"""How far a settled radius may be above its anchor, and the anchor's stride, in logarithms."""
LONGEST_STEP = 2 * REACH
"""The longest step of Weiszfeld's algorithm, in radii, if the radius is learned. A near device has
a mass of at least 1 / REACH of its weight. So if half of the devices are near, and weights are
equal, no step is longer, and the limit changes only steps that lies made."""
LONGEST_NOISY, NOISY = 1.0, 0.1
"""The longest stride with noisy counts, in logarithms, and that with a standard error of all
devices."""
AGREED = 3
"""This many equal answers in a row mean that the median distance is far."""


@dataclass(frozen=True)
class AdaptiveRadius:
    """A radius that is learned: half the median distance of the updates.

    Attributes:
        nu: the radius for the next round.
        stride: how far its logarithm last moved.
        toward: 1 if it grew, -1 if it shrank, 0 at the beginning.
        run: the number of moves in a row in that direction.
        turned: whether it has ever changed direction.
        anchor: follows the radius slowly and limits it, once it has settled; 0 before.
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
        """Return the radius after a round.

        Args:
            near: the fraction of the devices that were near v in the last sum.
            noise: the standard error of this fraction through noise in the sum; more noise makes
                strides shorter.

        Raises:
            InvalidValueError: if `near` is not a fraction.
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
    """A private aggregator with one radius, which is fixed or learned from the sums."""

    radius_name: ClassVar[str] = "nu"

    def __post_init__(self) -> None:
        """Check a fixed radius."""
        if self.fixed_radius is not None:
            check_radius(self.radius_name, self.fixed_radius)

    @property
    @abstractmethod
    def fixed_radius(self) -> float | None:
        """The radius, or None if it is learned."""

    def radius(self, state: AdaptiveRadius | None) -> float:
        """Return the radius of a round."""
        if self.fixed_radius is not None:
            return self.fixed_radius
        return (state or AdaptiveRadius()).nu

    def max_step(self, state: AdaptiveRadius | None) -> float | None:
        """Return the longest step of a round: LONGEST_STEP learned radii; None if nu is fixed.

        Until the radius has changed direction, the next one may be larger by the longest stride,
        and so may the step. So a liar in the first round can choose a step only up to this length.
        """
        if self.fixed_radius is not None:
            return None
        state = state or AdaptiveRadius()
        return LONGEST_STEP * state.nu * (1.0 if state.turned else math.exp(LONGEST))

    def init(self) -> AdaptiveRadius | None:
        """Return the first radius, if it is learned."""
        return AdaptiveRadius() if self.fixed_radius is None else None

    def next_state(
        self, oracles: Sequence[RecordingOracle], state: AdaptiveRadius | None
    ) -> AdaptiveRadius | None:
        """Return the next radius, from the number of near devices in the last sums."""
        near = nearness(oracles)
        return state if state is None or near is None else state.after(near, near_noise(oracles))

    @property
    def statistics(self) -> frozenset[str]:
        """The totals that its steps read, and the near devices if the radius is learned."""
        return self.step_totals | ({"near"} if self.fixed_radius is None else set[str]())

    @property
    def step_totals(self) -> frozenset[str]:
        """The totals that a step and its certificate read: the masses."""
        return frozenset({"mass", "squares"})

    def certificate(self, oracle: RecordingOracle) -> float | None:
        """Return the bound from the last sum, which made the last step; None if it has noise."""
        last = oracle.last
        return last.certificate() if last and not last.noise else None

    @property
    def min_nu(self) -> float:
        """The fixed radius, or the smallest learned one."""
        return MIN_NU if self.fixed_radius is None else self.fixed_radius


def check_radius(name: str, radius: float) -> None:
    """Check that sums of whole numbers keep their digits at a radius.

    Raises:
        InvalidValueError: if they do not; the message names the radius.
    """
    check_number(name, radius, positive=True)
    if not RADIUS_RANGE[0] <= radius <= RADIUS_RANGE[1]:
        msg = f"{name} must be from {RADIUS_RANGE[0]:g} to {RADIUS_RANGE[1]:g}, not {radius!r}"
        raise InvalidValueError(msg)
