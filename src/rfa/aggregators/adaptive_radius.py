"""The smoothing radius nu, learned from sums: half the median distance of the updates from v.

The server knows of each sum how many devices are within 2 nu of v (`Sum.near`), and no more. If
fewer than half are, nu is too small, else too large. So it is steered from round to round: in far
steps while the answers agree, in halved ones when they turn. Corrupted devices can give what bits
they like: while answers of honest devices differ, a minority can push the radius, once it has
settled in strides of at most 1.5, until 2 nu leaves the distances of the others; then these agree,
and it comes back.

    >>> radius = Radius()
    >>> for _ in range(20):
    ...     radius = radius.after(1.0 if radius.nu >= 7.0 else 0.0)
    >>> 6 < radius.nu < 8
    True
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rfa._checks import check_number
from rfa.errors import InvalidValueError

FIRST = 0.1
"""The radius before anything is known."""
LEAST, MOST = 1e-6, 1e6
"""From where to where radii may go: devices refuse smaller ones."""
SHORTEST, LONGEST, GROWN = 0.05, math.log(32), math.log(1.5)
"""The shortest and the longest stride, in logarithms, and what one may grow to after a turn."""
AGREED = 3
"""So many answers of the same kind in a row mean that the median distance is far."""


@dataclass(frozen=True)
class Radius:
    """A radius on its way to half the median distance.

    Attributes:
        nu: the radius for the next round.
        stride: how far its logarithm last moved.
        toward: 1 if it grew, -1 if it shrank, 0 at the beginning.
        run: how often in a row.
        turned: whether it has ever turned.
    """

    nu: float = FIRST
    stride: float = 0.5
    toward: int = 0
    run: int = AGREED
    turned: bool = False

    def __post_init__(self) -> None:
        """Refuse radii that are none."""
        check_number("nu", self.nu, positive=True)

    def after(self, near: float) -> Radius:
        """The radius after a round, in whose last sum that share of the devices was near v.

        Raises:
            ValueError: if it is no share.
        """
        if not 0 <= near <= 1:
            msg = f"near is a share of the devices, from 0 to 1, not {near}"
            raise InvalidValueError(msg)
        toward = 1 if near < 1 / 2 else -1
        run = self.run + 1 if toward == self.toward or not self.toward else 1
        turned = self.turned or run == 1
        stride = self._stride(run, turned=turned)
        nu = min(max(self.nu * math.exp(toward * stride), LEAST), MOST)
        return Radius(nu, stride, toward, run, turned)

    def _stride(self, run: int, *, turned: bool) -> float:
        if run < AGREED:
            return max(self.stride / 2, SHORTEST)
        most = max(self.stride, GROWN) if turned else LONGEST
        return min(2 * self.stride, most)
