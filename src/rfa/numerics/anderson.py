"""Anderson acceleration of Weiszfeld's iteration, on the weights of the average.

Weiszfeld's map takes weights x to weights t(x), and the median is where they are equal. Near the
median the map is almost linear, so the last few pairs (x, t(x)) predict where x = t(x) holds. A
plain step never increases the objective. So if an extrapolation does, the plain step that it
replaced is taken instead: the objective always decreases, as it does without acceleration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rfa._types import Floats

DEPTH = 3
"""The number of earlier iterates in an extrapolation."""
RIDGE = 1e-14
"""Keeps the small system solvable if steps are almost equal."""
TINY = 1e-300
"""Keeps it solvable if all steps are equal."""


@dataclass(frozen=True)
class Merit:
    """The quality of an iterate: its objective, or its residual if rounding hides that."""

    objective: float
    residual: float
    noise: float

    def worse_than(self, other: Merit) -> bool:
        """Return whether this is a step back from the other."""
        rise = self.objective - other.objective
        return rise > self.noise or (rise > -self.noise and self.residual > other.residual)


class Anderson:
    """Proposes the next weights from the history of weights and their images."""

    def __init__(self) -> None:
        self._images: list[Floats] = []
        self._errors: list[Floats] = []
        self._merit = Merit(np.inf, np.inf, 0.0)
        self._plain: Floats | None = None
        self._stretch = 1.0

    def propose(self, weights: Floats, image: Floats, scale: Floats, merit: Merit) -> Floats:
        """Return the next weights.

        Args:
            weights: the weights at which the map was evaluated.
            image: the plain next step.
            scale: the importance of a change of each weight: the distances of the points.
            merit: the quality of `weights`.
        """
        if self._plain is not None and merit.worse_than(self._merit):
            return self._step_back(self._plain)
        self._merit = merit
        if self._stretch > 1:
            self._plain, self._stretch = image, 2 * self._stretch
            return weights + self._stretch / 2 * (image - weights)
        return self._mix(image, (image - weights) * scale)

    def _step_back(self, plain: Floats) -> Floats:
        """Drop a bad proposal.

        After mixing fails, longer and longer plain steps follow. They lead away from points near
        the median that mixing mistakes for the solution.
        """
        self._images, self._errors, self._plain = [], [], None
        self._stretch = 1.0 if self._stretch > 1 else 2.0
        return plain

    def _mix(self, image: Floats, error: Floats) -> Floats:
        images, errors = self._images, self._errors
        self._images, self._errors = [*images[-DEPTH + 1 :], image], [*errors[-DEPTH + 1 :], error]
        if not images:
            return image
        self._plain = image
        steps, moves = error - np.array(errors), image - np.array(images)
        square = steps @ steps.T
        square.flat[:: len(square) + 1] += RIDGE * square.trace() + TINY
        return image - np.linalg.solve(square, steps @ error) @ moves
