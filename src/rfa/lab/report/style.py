"""The look of lines and matrices, the same on the page and in pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rfa.lab.report.exhibit import Exhibit, Matrix

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31")
"""Okabe and Ito's colors, which color-blind readers can tell apart; the style sheet has the
same."""
FIXED = {"RFA": 0, "FedAvg": 1, "one-step RFA": 2}
"""Lines that look the same in every exhibit."""


def looks(exhibit: Exhibit) -> dict[str, int]:
    """Return a number for each label of an exhibit, which decides color and mark.

    A bound has the number of its line, if its name begins with that line's.
    """
    dashed = {line.label: line.dashed for panel in exhibit.panels for line in panel.lines}
    numbers = {label: FIXED[label] for label in dashed if label in FIXED}
    free = iter(n for n in range(len(dashed) + len(FIXED)) if n not in numbers.values())
    for label, bound in dashed.items():
        bounded = next((name for name in numbers if label.startswith(f"{name}, ")), None)
        if label not in numbers:
            numbers[label] = numbers[bounded] if bound and bounded else next(free)
    return numbers


SHADES = (
    "#00224e", "#123570", "#3b496c", "#575d6d", "#707173",
    "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838",
)  # fmt: skip
"""The shades of matrices, from low to high: cividis, which looks the same to color-blind readers;
the style sheet has the same."""
DEEP = 5
"""This many of the shades are dark, with white text; the others have black text."""


@dataclass(frozen=True)
class Shading:
    """The shades of a picture, from its lowest number to its highest."""

    low: float
    high: float

    def of(self, value: float) -> int | None:
        """Return the number of the shade of a value; None if it is unknown."""
        if not math.isfinite(value):
            return None
        if self.high <= self.low:
            return len(SHADES) - 1
        share = (value - self.low) / (self.high - self.low)
        return min(len(SHADES) - 1, max(0, int(share * len(SHADES))))


def shading(matrices: Iterable[Matrix]) -> Shading:
    """Return the shading of all matrices of a picture."""
    values = [entry.value for matrix in matrices for row in matrix.entries for entry in row]
    known = [value for value in values if math.isfinite(value)]
    return Shading(min(known, default=0.0), max(known, default=0.0))
