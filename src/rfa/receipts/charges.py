"""What recorded sums are charged to devices, in zCDP: their noise, as whoever has receipts sees it.

Every device that was asked for an opened sum is charged, whether or not its input came: one that
came late left the device all the same, which has charged it to itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from rfa.receipts.parts import CheckedPart


class Charges:
    """The charges of devices; infinite if a sum had no noise.

    Attributes:
        noisy: whether any sum had noise.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._charged: dict[int, float] = {}
        self.noisy = False

    @property
    def largest(self) -> float:
        """The largest charge of any device."""
        return max(self._charged.values(), default=0.0)

    def add(self, parts: Iterable[CheckedPart]) -> None:
        """Charge the opened sums of parts."""
        for part in parts:
            self.noisy = self.noisy or (bool(part.sums) and part.rho > 0)
            for opened in part.sums:
                for position in opened.alive:
                    device = part.keys[position].device
                    before = self._charged.get(device, 0.0)
                    self._charged[device] = before + (part.rho or math.inf)
