"""The same numbers as byzfl 0.0.11 on numpy arrays, with and without outliers.

What differs on purpose, and how it is made the same here:

- Krum and multi-Krum score with the m - f - 2 nearest others, as their paper says; byzfl takes one
  more, so ours are told `neighbors`.
- byzfl's centered clipping cannot be given a start, and keeps its answer as the next one; ours
  starts where it is told. Both start at zero here, and byzfl's is made anew for each call.
- byzfl draws buckets from numpy's global randomness; here it is given our generator. A last bucket
  with fewer points weighs less in ours; here all are full.
- Of values at one distance from the median MeaMed takes the lower one first; byzfl takes any. Where
  the distances differ by less than rounding, either may come first: these points have no such ties.
- byzfl averages with equal weights only, and has no Bulyan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from rfa import geometric_median
from rfa.aggregators.clear import (
    Bucketing,
    CenteredClipping,
    CoordinateMedian,
    InnerAggregator,
    Krum,
    MeaMed,
    MultiKrum,
    NearestNeighborMixing,
    TrimmedMean,
)
from tests.peers import byzfl

theirs: Any = byzfl.load("aggregators")
before: Any = byzfl.load("preaggregators")

Points: TypeAlias = NDArray[Any]

M, D, F = 30, 2000, 7
CLIP_NORM = 0.5 * D**0.5


def median_steps(points: Any, weights: Any = None, /) -> Any:
    return geometric_median(points, weights, nu=0.1, steps=3, start="zero")


def their_buckets(points: Points) -> Points:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(before, "random_tool", our_generator)
        return theirs.Median()(before.Bucketing(5)(points))


def our_generator(_: Points) -> np.random.Generator:
    return np.random.default_rng(7)


def their_clipping(points: Points) -> Points:
    return theirs.CenteredClipping(L=3, tau=CLIP_NORM)(points)


CASES: dict[str, tuple[InnerAggregator, Callable[[Points], Points]]] = {
    "coordinate median": (CoordinateMedian(), theirs.Median()),
    "trimmed mean": (TrimmedMean(F / M), theirs.TrMean(F)),
    "geometric median": (median_steps, theirs.GeometricMedian(nu=0.1, T=3)),
    "Krum": (Krum(F, neighbors=M - F - 1), theirs.Krum(F)),
    "multi-Krum": (MultiKrum(F, neighbors=M - F - 1), theirs.MultiKrum(F)),
    "MeaMed": (MeaMed(F), theirs.Meamed(F)),
    "mixing, then the trimmed mean": (
        NearestNeighborMixing(F, TrimmedMean(F / M)),
        lambda points: theirs.TrMean(F)(before.NNM(F)(points)),
    ),
    "mixing, then the geometric median": (
        NearestNeighborMixing(F, median_steps),
        lambda points: theirs.GeometricMedian(nu=0.1, T=3)(before.NNM(F)(points)),
    ),
    "bucketing, then the median": (Bucketing(5, CoordinateMedian(), 7), their_buckets),
    "centered clipping": (CenteredClipping(CLIP_NORM, steps=3), their_clipping),
}


def cloud(kind: str, dtype: Any) -> Points:
    rng = np.random.default_rng(11)
    points = rng.standard_normal((M, D)) * rng.uniform(0.5, 2, (M, 1))
    if kind == "outliers":
        points[:F] *= 1e4
    if kind == "offset":
        points += 10
    return points.astype(dtype)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["plain", "outliers", "offset"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_numbers_of_byzfl(name: str, kind: str, dtype: Any) -> None:
    points = cloud(kind, dtype)
    ours, peer = CASES[name]
    expected = peer(points)
    close = 10 * float(np.finfo(dtype).eps) * max(float(np.abs(expected).max()), 1)
    np.testing.assert_allclose(ours(points).point, expected, rtol=0, atol=close)
