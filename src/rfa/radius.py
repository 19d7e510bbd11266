"""The smoothing radius nu, learned from sums: half the median distance of the updates from v.

The server knows of each sum how many devices are within 2 nu of v (`Sum.near`), and no more. If
fewer than half are, nu is too small, else too large. So it is steered from round to round: in far
steps while the answers agree, in halved ones when they turn. Corrupted devices can give what bits
they like, and as long as they are a minority 2 nu stays among the distances of the others.

    >>> radius = Radius()
    >>> for _ in range(20):
    ...     radius = radius.after(1.0 if radius.nu >= 7.0 else 0.0)
    >>> 6 < radius.nu < 8
    True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

FIRST = 0.1
"""The radius before anything is known."""
LEAST, MOST = 1e-6, 1e6
"""From where to where radii may go: devices refuse smaller ones."""
STRIDES = (0.05, math.log(32))
"""The shortest and the longest step of the logarithm."""
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
    """

    nu: float = FIRST
    stride: float = 0.5
    toward: int = 0
    run: int = AGREED

    def after(self, near: float) -> Radius:
        """The radius after a round, in whose last sum that share of the devices was near v."""
        toward = 1 if near < 1 / 2 else -1
        run = self.run + 1 if toward == self.toward or not self.toward else 1
        least, most = STRIDES
        stride = min(max(self.stride * (2 if run >= AGREED else 1 / 2), least), most)
        nu = min(max(self.nu * math.exp(toward * stride), LEAST), MOST)
        return replace(self, nu=nu, stride=stride, toward=toward, run=run)
