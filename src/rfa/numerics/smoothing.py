"""The smoothed norm of the paper's appendix, and the smoothing radius nu.

    |z|_(nu) = |z|^2 / (2 nu) + nu / 2   where |z| <= nu,   and |z| elsewhere

(eq:weiszfeld:norm:smooth). It lies between |z| and |z| + nu / 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rfa._checks import check_number
from rfa._types import Floats
from rfa.numerics.distances import weighted_median


@dataclass(frozen=True)
class Relative:
    """A smoothing radius as a multiple of the typical distance.

    At each step nu is `factor` times the weighted median of the distances of the points from the
    iterate. *Formal guarantee*: points with less than half of the weight cannot move it beyond the
    distances of the others.
    """

    factor: float

    def __post_init__(self) -> None:
        """Check the factor."""
        check_number("the factor of nu", self.factor)


Smoothing: TypeAlias = float | Relative
"""A smoothing radius nu: a length, or a multiple of the typical distance."""


def nu_at(nu: Smoothing, distances: Floats, alpha: Floats) -> float:
    """Return the smoothing radius for points at these distances."""
    return nu.factor * weighted_median(distances, alpha) if isinstance(nu, Relative) else nu


def smoothed_norms(distances: Floats, nu: float) -> Floats:
    """Return the smoothed norms of vectors of these lengths."""
    if nu == 0:
        return distances
    return np.where(distances <= nu, distances**2 / (2 * nu) + nu / 2, distances)


def betas(alpha: Floats, distances: Floats, nu: float) -> Floats:
    """Return beta_i = alpha_i / max(nu, |v - w_i|); with nu = 0, an iterate on a point stays."""
    eta = np.maximum(distances, nu)
    here = eta == 0
    return np.where(here, alpha, 0.0) if here.any() else alpha / eta
