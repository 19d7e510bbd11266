"""Random clouds of points for property tests, the degenerate ones among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KINDS = ("plain", "grid", "line", "copies", "scales", "offset")


@dataclass(frozen=True)
class Points:
    """m points in d dimensions with weights that sum to one."""

    points: Floats
    alpha: Floats

    @property
    def diameter(self) -> float:
        """B, the diameter of the convex hull: the largest distance of two points."""
        return max(float(np.linalg.norm(a - b)) for a in self.points for b in self.points)


def make_points(kind: str, m: int, d: int, rng: np.random.Generator) -> Floats:
    """A cloud of a kind."""
    points = rng.standard_normal((m, d))
    if kind == "grid":
        points = rng.integers(-2, 3, (m, d)).astype(float)
    if kind == "line":
        points = rng.standard_normal((m, 1)) * rng.standard_normal(d) + 1
    if kind == "copies":
        points[rng.integers(0, m, m)] = points[rng.integers(0, m, m)]
    if kind == "scales":
        points *= 10.0 ** rng.integers(-4, 5, (m, 1))
    if kind == "offset":
        points += 1e3
    return points


@st.composite
def clouds(draw: st.DrawFn, *, least: int = 1, equal: bool = False) -> Points:
    """Clouds of up to 8 points in up to 4 dimensions."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, d = draw(st.integers(least, 8)), draw(st.integers(1, 4))
    points = make_points(draw(st.sampled_from(KINDS)), m, d, rng)
    weights = np.ones(m)
    if not equal and draw(st.booleans()):
        weights = rng.integers(1, 10, m).astype(float)
    return Points(points, weights / weights.sum())


radii = st.sampled_from([1e-6, 1e-3, 0.1, 1.0])


def inside(cloud: Points, radius: float) -> float:
    """A radius below the diameter, as the paper assumes."""
    return min(radius, cloud.diameter / 2) or radius
