"""The results of the paper as functions: devices per round, bounds, rates.

    >>> devices_needed(0.1, theta=0.3, rounds=100, delta=0.05)
    96
    >>> devices_needed_exactly(0.1, theta=0.3, rounds=100, delta=0.05, population=1000)
    34

The letters are the paper's: rho is the fraction of corrupted devices, theta the fraction that a
round tolerates, T the number of rounds, 1 - delta the confidence. `rfa.lab.paper.theorem` measures
each result on least squares, and has the findings of a check of the proofs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rfa._checks import check_count, check_number
from rfa._types import Floats
from rfa.errors import InvalidValueError
from rfa.numerics.draws import LARGEST_POPULATION, deviance, first_above, tail
from rfa.oracle import REACH

SLACK = 1e-9
"""How far a fraction of the devices may be from a whole number of them."""
LARGEST_ROUND = 1 << 20
"""The largest round that is looked for: what a secure sum can hold."""
_CHUNK = 1 << 14


@dataclass(frozen=True)
class Constants:
    """The constants in the bound of thm:rfa:convergence.

    Attributes:
        d: the number of features.
        sigma2: the variance of the noise.
        mu: the least eigenvalue of any covariance.
        r_squared: R^2, the largest squared length of a feature vector.
        omega_x: how different covariances are, max_i |H^-1 H_i|.
        omega_y: how far the devices' optima are apart, Omega_{Y|X}.
    """

    d: int
    sigma2: float
    mu: float
    r_squared: float
    omega_x: float
    omega_y: float

    @property
    def kappa(self) -> float:
        """R^2 / mu."""
        return self.r_squared / self.mu

    @property
    def omega(self) -> float:
        """Omega = Omega_X Omega_{Y|X}."""
        return self.omega_x * self.omega_y

    def reweighted(self, alpha: Floats) -> Constants:
        """The substitution of remark:rfa:convergence for weights alpha_i that sum to 1."""
        c_1, c_2 = float(alpha.size * alpha.max()), float(alpha.size * alpha.min())
        return dataclasses.replace(
            self,
            sigma2=c_1 * self.sigma2,
            mu=c_2 * self.mu,
            r_squared=c_1 * self.r_squared,
            omega_x=c_1 / c_2 * self.omega_x,
        )


def dissimilarity(covariances: Floats, optima: Floats) -> tuple[float, float]:
    """Omega_X and Omega_{Y|X} of eq:rfa:niid_xy, measured.

    Args:
        covariances: the H_i of the devices' features, one matrix each.
        optima: the least-squares solutions w_i* of the devices, one row each.

    Returns:
        max_i |H^-1 H_i|_2, the paper's Omega_X where the H_i commute, and the diameter of the w_i*.
    """
    inverse = np.asarray(np.linalg.inv(np.asarray(covariances.mean(axis=0))), np.float64)
    relative = inverse @ covariances
    omega_x = float(np.linalg.norm(relative, 2, axis=(1, 2)).max())
    distinct = np.unique(optima, axis=0)
    apart = max(float(np.linalg.norm(distinct - optimum, axis=1).max()) for optimum in distinct)
    return omega_x, apart


def measured(devices: Sequence[tuple[Floats, Floats]]) -> Constants:
    """The constants of devices, from their data.

    Solutions from n examples scatter by up to sigma (d / (mu n))^1/2, so devices that are alike
    seem to be a few times that apart: Omega_{Y|X} comes out too large, and never 0.

    Args:
        devices: features, one row for each example, and answers of each device.

    Raises:
        ValueError: if a device has too few examples to have one solution, and noise around it.
    """
    covariances = np.stack([features.T @ features / len(features) for features, _ in devices])
    solved = [_least_squares(*data, device) for device, data in enumerate(devices)]
    optima = np.stack([solution for solution, _ in solved])
    omega_x, omega_y = dissimilarity(covariances, optima)
    return Constants(
        d=optima.shape[1],
        sigma2=max(noise for _, noise in solved),
        mu=float(np.linalg.eigvalsh(covariances).min()),
        r_squared=max(float((features**2).sum(axis=1).max()) for features, _ in devices),
        omega_x=omega_x,
        omega_y=omega_y,
    )


def c_theta(theta: float) -> float:
    """C_theta = (1 - 2 theta)^-2."""
    if not 0 <= theta < 1 / 2:
        msg = f"theta must be from 0 to below 1/2, not {theta}"
        raise InvalidValueError(msg)
    return (1 - 2 * theta) ** -2


def devices_needed(rho: float, theta: float, rounds: int, delta: float) -> int:
    """The devices m of eq:rfa:mainthm:ndev-per-round.

    With probability 1 - delta no round of T has more than theta m corrupted devices.
    """
    _check_fractions(rho, theta, delta)
    check_count("rounds", rounds)
    return max(1, math.ceil(math.log(rounds / delta) / (2 * (theta - rho) ** 2)))


def devices_needed_exactly(
    rho: float, theta: float, rounds: int, delta: float, population: int
) -> int:
    """Return the smallest m for which this holds, from sampling without replacement.

    The number of corrupted devices in a round is hypergeometric, and rounds are independent.
    Hoeffding's inequality, which the theorem uses for its m, requires more.

    Raises:
        InvalidValueError: if a value is out of range, or millions of devices are needed.
    """
    theorem, corrupted = devices_needed(rho, theta, rounds, delta), _corrupted(rho, population)
    accepted = -math.expm1(math.log1p(-delta) / rounds)
    most = min(population, theorem, _chernoff(theta, corrupted / population, accepted))
    if most > LARGEST_ROUND and 1 - holds_with(rho, theta, LARGEST_ROUND, population) > accepted:
        msg = f"rho={rho} and theta={theta} are so close that up to {most} devices per round are "
        msg += f"needed, and no secure sum has more than {LARGEST_ROUND}: give a smaller rho, a "
        raise InvalidValueError(msg + "theta farther from it, or less confidence")
    top = math.floor(theta * most + SLACK)
    for high in range(top, -1, -_CHUNK):
        bear = np.arange(high, max(-1, high - _CHUNK), -1, dtype=np.float64)
        ends = np.minimum(most, _largest_round(bear, theta))
        place = first_above(accepted, bear + 1, corrupted, ends, population)
        if place is not None:
            return int(ends[place]) + 1
    return 1


def holds_with(rho: float, theta: float, m: int, population: int) -> float:
    """Return the probability that at most theta m of m drawn devices are corrupted."""
    check_count("m", m)
    corrupted = _corrupted(rho, population)
    if m > population:
        msg = f"m={m} devices of a population of {population}: give at most {population}"
        raise InvalidValueError(msg)
    return 1 - tail(math.floor(theta * m + SLACK) + 1, corrupted, m, population)


def steps_needed(constants: Constants, theta: float) -> int:
    """The least tau >= 4 kappa log(128 C_theta kappa) that has halves."""
    kappa = constants.kappa
    return 2 * math.ceil(2 * kappa * math.log(128 * c_theta(theta) * kappa))


def bound_sgd(constants: Constants, tau: int, distance2: float) -> float:
    """thm:sgd:central: E|v - w_i*|^2 after tau steps from that squared distance."""
    bias = 2 * constants.kappa * math.exp(-tau / (4 * constants.kappa)) * distance2
    return bias + 8 * constants.d * constants.sigma2 / (constants.mu * tau)


def gamma(constants: Constants, theta: float, eps_over_m: float = 0.0) -> float:
    """Gamma = 2 C_theta (eps^2 / m^2 + 16 Omega^2) of the proof."""
    return 2 * c_theta(theta) * (eps_over_m**2 + 16 * constants.omega**2)


def bound(
    constants: Constants,
    *,
    delta0: float,
    theta: float,
    taus: Sequence[int],
    eps_over_m: float = 0.0,
) -> float:
    """thm:rfa:convergence: E[|w^(T) - w*|^2 | E] after T = len(taus) rounds.

    Delta_0 / 2^T + (128 C_theta d sigma^2 / mu) sum_{t<T} 2^-(T-1-t) / tau_t + 2 Gamma, for each
    tau_t >= 4 kappa log(128 C_theta kappa), and sum_i |v - w_i| within eps of its minimum.
    """
    rounds = len(taus)
    series = sum(2.0 ** -(rounds - 1 - t) / tau for t, tau in enumerate(taus))
    noise = 128 * c_theta(theta) * constants.d * constants.sigma2 / constants.mu * series
    return delta0 / 2**rounds + noise + 2 * gamma(constants, theta, eps_over_m)


def lower_bound(rho: float, omega_y: float) -> float:
    """Return a lower bound on the error of every method: rho^2 Omega_{Y|X}^2 up to a constant."""
    return (rho * omega_y) ** 2


def robustness(theta: float, spread2: float, eps_over_m: float = 0.0) -> float:
    """How far the median can be from any point z, squared, with theta of the devices corrupted.

    8 C_theta mean_{honest} |w_i - z|^2 + 2 C_theta eps^2 / m^2, where the sum of the distances is
    within eps of its minimum.
    """
    return c_theta(theta) * (8 * spread2 + 2 * eps_over_m**2)


def weiszfeld_gap(distance: float, nu: float, steps: int, *, separated: bool = False) -> float:
    """prop:weiszfeld:main: how far g(v^(R)) is from min g, at most.

    Args:
        distance: |v^(0) - v*|, from a start in the convex hull of the points.
        nu: the smoothing radius, or the least distance of an iterate from a point if that is more.
        steps: R.
        separated: whether the median is at least nu from every point, and smoothing costs nothing.
    """
    check_number("nu", nu, positive=True)
    check_count("steps", steps)
    return 2 * distance**2 / (nu * steps) + (0.0 if separated else nu / 2)


def weiszfeld_gap_along(
    distance: float, nu: float, curvatures: Sequence[float], *, separated: bool = False
) -> float:
    """eq:weiszfeld:main: a smaller bound, from the curvatures of the steps.

    Args:
        distance: |v^(0) - v*|, as before.
        nu: the smoothing radius.
        curvatures: L^(s) = sum_i alpha_i / max(nu, |v^(s) - w_i|) of each step, which a server
            knows from its sums: `mass / (nu * weight)`.
        separated: as before.
    """
    check_count("the number of curvatures", len(curvatures))
    speed = sum(1 / curvature for curvature in curvatures)
    return 2 * distance**2 / speed + (0.0 if separated else nu / 2)


def local_rate(points: Floats, median: Floats, nu: float) -> float:
    """Return the factor by which a step near the smoothed median v* reduces the distance to it.

    The largest eigenvalue of the derivative of a step at v*, which is sum_i beta_i u_i u_i^T over
    the points farther than nu, by sum_i beta_i over all, u_i being the direction of w_i from v*.
    The paper leaves local rates for future work; without smoothing it is that of Katz (1974).
    """
    check_number("nu", nu, positive=True)
    away = points - median
    distances = np.linalg.norm(away, axis=1)
    beta = 1 / np.maximum(nu, distances)
    far = distances >= nu
    if not far.any():
        return 0.0
    weights = beta[far] / beta.sum()
    units = away[far] / distances[far, None]
    return float(np.linalg.norm(units * np.sqrt(weights)[:, None], 2)) ** 2


def largest_share(m: int, diameter: float, nu: float) -> float:
    """prop:rfa:privacy-preservation: the largest share of a device in a step, with equal weights.

    B / (B + (m - 1) nu), where no two of the m updates are farther apart than B, nor is one from
    the point v of the step: a start outside their convex hull counts.
    """
    check_count("m", m)
    check_number("nu", nu, positive=True)
    apart = max(diameter, nu)
    return apart / (apart + (m - 1) * nu)


def largest_certificate(near: int, reach: float = REACH) -> float:
    """Return the largest `Sum.certificate` if this number of devices is within reach * nu of v.

    Devices of weight 1 have a mass of 1 / reach or more there: with m devices, half of them near,
    no share exceeds 2 reach / m, wherever the others are.
    """
    check_count("near", near)
    check_number("reach", reach, positive=True)
    return min(1.0, max(1.0, reach) / near)


def _least_squares(features: Floats, answers: Floats, device: int) -> tuple[Floats, float]:
    """The solution w_i* of a device's data, and the variance of the answers around it."""
    count, d = features.shape
    if count <= d or np.linalg.matrix_rank(features) < d:
        msg = f"device {device} has {count} examples of {d} features: give more, or fewer features"
        raise InvalidValueError(msg)
    solution = np.asarray(np.linalg.lstsq(features, answers)[0], np.float64)
    rest = answers - features @ solution
    return solution, float(rest @ rest) / (count - d)


def _check_fractions(rho: float, theta: float, delta: float) -> None:
    check_number("rho", rho)
    c_theta(theta)
    if not rho < theta:
        msg = f"theta={theta} must exceed rho={rho}"
        raise InvalidValueError(msg)
    if not 0 < delta < 1:
        msg = f"delta must be between 0 and 1, not {delta}"
        raise InvalidValueError(msg)


def _corrupted(rho: float, population: int) -> int:
    """How many of a population are corrupted."""
    check_count("population", population)
    if population > LARGEST_POPULATION:
        msg = f"a population of {population} devices is more than can be counted with: give at "
        raise InvalidValueError(msg + f"most {LARGEST_POPULATION}; larger ones differ by nothing")
    return math.floor(rho * population + SLACK)


def _chernoff(theta: float, rho: float, accepted: float) -> int:
    """Devices from which on no round has more than theta corrupted but with that probability."""
    cells = np.asarray([theta, 1 - theta]), np.asarray([rho, 1 - rho])
    exponent = float(deviance(*cells).sum())
    return max(1, math.ceil(-math.log(accepted) / exponent)) if exponent < math.inf else 1


def _largest_round(bear: Floats, theta: float) -> Floats:
    """The largest rounds of which theta is no more than a number of whole devices."""
    ends = np.floor((bear + 1 - SLACK) / theta) + 1
    for _ in range(3):  # the quotient is off by one at most
        ends = np.where(np.floor(theta * ends + SLACK) > bear, ends - 1, ends)
    return ends
