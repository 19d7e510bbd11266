"""Least squares whose optimum is known, and Algorithm 1 on it: the setting of thm:rfa:convergence.

A device i draws features phi = Q_i (a_i * s) with random signs s, so that they are centered, have
length |a_i| in every draw and covariance H_i = Q_i diag(a_i^2) Q_i^T, and answers
y = phi^T w_i* + N(0, sigma_i^2). All that the theorem speaks of is then known exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats, Ints
from rfa.aggregators.weiszfeld import weiszfeld
from rfa.lab.randomness import stream
from rfa.median import geometric_median
from rfa.numerics.plain_oracle import PlainOracle
from rfa.theory import dissimilarity

BLOCK = 64
"""Steps of SGD whose samples are drawn together."""
FAR = 1e3
NU = 1e-6
SLACK = 1e-9


@dataclass(frozen=True)
class Problem:
    """F(w) = (1/n) sum_i F_i(w) of eq:sgd:sq-loss."""

    scales: Floats  # a_i, one row for each device
    axes: Floats  # Q_i, one orthogonal matrix for each device
    optima: Floats  # w_i*, one row for each device
    sigma: Floats  # the standard deviation of the noise of each device

    @property
    def n(self) -> int:
        """How many devices there are."""
        return self.optima.shape[0]

    @property
    def d(self) -> int:
        """How many features there are."""
        return self.optima.shape[1]

    @property
    def r_squared(self) -> float:
        """R^2: the largest squared length of a feature vector."""
        return float((self.scales**2).sum(axis=1).max())

    @property
    def mu(self) -> float:
        """The smallest eigenvalue of any H_i."""
        return float((self.scales**2).min())

    @cached_property
    def covariances(self) -> Floats:
        """The H_i."""
        return (self.axes * self.scales[:, None] ** 2) @ self.axes.transpose(0, 2, 1)

    @cached_property
    def minimizer(self) -> Floats:
        """w* = H^-1 (1/n) sum_i H_i w_i*."""
        pulls: Floats = np.einsum("nij,nj->i", self.covariances, self.optima) / self.n
        return self._inverse @ pulls

    @cached_property
    def _inverse(self) -> Floats:
        """H^-1."""
        mean: Floats = self.covariances.mean(axis=0)
        return np.asarray(np.linalg.inv(mean), np.float64)

    @cached_property
    def omega_x(self) -> float:
        """Omega_X of eq:rfa:niid_xy: H^-1/2 H_i H^-1/2 has the eigenvalues of H^-1 H_i."""
        return float(np.linalg.eigvals(self._inverse @ self.covariances).real.max())

    @cached_property
    def omega_x_norm(self) -> float:
        """max_i |H^-1 H_i|_2, which the proof needs: Omega_X where the H_i commute."""
        return dissimilarity(self.covariances, self.optima)[0]

    @cached_property
    def omega_y(self) -> float:
        """Omega_{Y|X} of eq:rfa:niid_xy: the diameter of the w_i*."""
        return dissimilarity(self.covariances, self.optima)[1]


def two_groups(  # noqa: PLR0913
    n: int, d: int, *, omega_y: float, skew: float = 0.5, share: float = 0.4, sigma: float = 1.0
) -> Problem:
    """Two groups of n devices in all, whose optima lie apart, with covariances that commute.

    Omega_{Y|X} is omega_y exactly, and the eigenvalues of the covariances are in [1, 1 + skew].
    `share` is that of the smaller group: the median favors the larger one; w* does not.
    """
    rng = stream(n, "two groups", d)
    axes, _ = np.linalg.qr(rng.standard_normal((d, d)))
    scales = np.sqrt(1 + skew * rng.random((n, d)))
    direction = np.full(d, 1 / np.sqrt(d))
    optima = np.zeros((n, d))
    optima[: round(share * n)] = omega_y * direction
    return Problem(scales, np.broadcast_to(axes, (n, d, d)), optima, np.full(n, sigma))


def twisted(flat: float, thirds: int = 1) -> Problem:
    """Covariances that do not commute: a third of the devices couple a steep and a flat direction.

    H = diag(1, flat), and |w* - w_i*| for the other two thirds grows like flat^-1/2, while Omega_X
    stays below 2.
    """
    coupling = 0.99 * np.sqrt(flat)
    coupled = np.array([[1, coupling], [coupling, flat]])
    others = np.array([[1, -coupling / 2], [-coupling / 2, flat]])
    pairs = [np.linalg.eigh(each) for each in [coupled, others, others] * thirds]
    scales = np.sqrt([values for values, _ in pairs])
    optima = np.tile([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]], (thirds, 1))
    return Problem(scales, np.array([axes for _, axes in pairs]), optima, np.ones(3 * thirds))


def two_worlds(n: int, d: int, rho: float, omega_y: float) -> tuple[Problem, Problem, Floats]:
    """Two problems that no server can tell apart, and what the devices show in both.

    Half of the devices show an optimum of 0 and half one at distance Omega_{Y|X}, by training on
    such data. In the first world, rho n of those that show 0 lie: theirs is the other one. In the
    second, rho n of the others do. The minimizers are 2 rho Omega_{Y|X} apart and every message has
    the same law in both, so for every algorithm and every w that it returns
    max |w - w*| >= rho Omega_{Y|X}: in one of the two worlds this has probability at least 1/2.
    That is the lower bound after thm:rfa:convergence with the constant 1.
    """
    shown = two_groups(n, d, omega_y=omega_y, skew=0.0, share=0.5)
    low, high = shown.optima.copy(), shown.optima.copy()
    high[liars(n, rho, 0)] = shown.optima[0]
    low[liars(n, rho, 1)] = 0
    first, second = (dataclasses.replace(shown, optima=optima) for optima in (high, low))
    return first, second, shown.optima


def liars(n: int, rho: float, world: int) -> Ints:
    """The corrupted devices of the worlds of `two_worlds`."""
    return np.arange(round(rho * n)) + (0 if world else n // 2)


def reweighted(problem: Problem, alpha: Floats) -> Problem:
    """remark:rfa:convergence: F~_i = n alpha_i F_i, so that F~ = sum_i alpha_i F_i.

    The F~_i count alike: their median has no weights, and those of F are in local training alone.
    """
    factors = np.sqrt(problem.n * alpha / alpha.sum())
    return dataclasses.replace(
        problem, scales=problem.scales * factors[:, None], sigma=problem.sigma * factors
    )


def draw(
    problem: Problem, devices: Ints, steps: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Fresh samples for each step and device: features in the device's axes, and noise."""
    size = steps * devices.size * problem.d
    bits = np.unpackbits(np.frombuffer(rng.bytes(-(-size // 8)), np.uint8), count=size)
    signs = bits.reshape(steps, devices.size, problem.d) * 2.0 - 1.0
    noise = rng.standard_normal((steps, devices.size)) * problem.sigma[devices]
    return signs * problem.scales[devices], noise


def local_models(  # noqa: PLR0913
    problem: Problem,
    devices: Ints,
    start: Floats,
    tau: int,
    rng: np.random.Generator,
    *,
    shown: Floats | None = None,
) -> Floats:
    """Tail-averaged SGD with rate 1/(2 R^2) on each device, with a fresh sample in each step.

    The average is over the last tau/2 iterates. (The sum in the text runs from tau/2 to tau, which
    is one term more than the factor 2/tau allows for.) Row r is device devices[r] and begins at
    start[r]; where `shown` is given, devices label their data by these optima, not by their own.
    """
    gamma = 1 / (2 * problem.r_squared)
    optima = (problem.optima if shown is None else shown)[devices]
    axes = problem.axes[devices]
    e = np.einsum("rji,rj->ri", axes, start - optima)
    tail = np.zeros_like(e)
    for begin in range(0, tau, BLOCK):
        features, noise = draw(problem, devices, min(BLOCK, tau - begin), rng)
        for k, (phi, zeta) in enumerate(zip(features, noise, strict=True), begin + 1):
            residual = np.einsum("rj,rj->r", phi, e) - zeta
            e -= (gamma * residual)[:, None] * phi
            if k > tau // 2:
                tail += e
    return np.einsum("rij,rj->ri", axes, tail * (2 / tau)) + optima


@dataclass(frozen=True)
class View:
    """What corrupted devices know: everything."""

    honest: Floats  # the models of the honest devices of the round
    corrupted: int  # how many corrupted devices there are in the round
    w: Floats  # the current model
    target: Floats  # w*


def _far(view: View) -> Floats:
    return view.w + FAR / np.sqrt(view.w.size)


def _opposite(view: View) -> Floats:
    """Return updates that turn the mean of all into the negative mean of the honest ones."""
    updates = view.honest - view.w
    twice_honest = 2 * len(updates) + view.corrupted
    return view.w - updates.mean(axis=0) * twice_honest / view.corrupted


def _cluster(view: View) -> Floats:
    """One point beyond the honest ones, on the side away from w*."""
    mean = view.honest.mean(axis=0)
    away = mean - view.target
    spread = np.sqrt(((view.honest - mean) ** 2).sum(axis=1).mean())
    return mean + 3 * spread * away / max(float(np.linalg.norm(away)), SLACK)


Attack: TypeAlias = Callable[[View], Floats]
ATTACKS: dict[str, Attack] = {"far": _far, "opposite": _opposite, "cluster": _cluster}
"""What all corrupted devices of a round send, by name."""


@dataclass(frozen=True)
class Plan:
    """How to run Algorithm 1, `repeats` times in parallel."""

    m: int  # devices in a round
    taus: tuple[int, ...]  # the local steps of each round
    theta: float  # the share of corrupted devices of a round that the event E allows
    attack: str = "far"  # one of ATTACKS, or "" where corrupted devices train on what they show
    steps: int = 0  # Weiszfeld steps from the current model; 0 for the geometric median itself
    repeats: int = 5  # independent runs
    seed: int = 1  # decides every random choice


@dataclass(frozen=True)
class Paths:
    """The trajectories of the runs."""

    errors: Floats  # |w^(t) - w*|^2, a row for each run, from t = 0 on
    held: NDArray[np.bool_]  # whether the event E held, for each run
    eps: float  # the largest excess of sum_i |v - w_i| over its minimum in any round
    last: Floats  # the last model of each run


def play(
    problem: Problem, plan: Plan, start: Floats, corrupted: Ints, shown: Floats | None = None
) -> Paths:
    """Algorithm 1 with tail averaging, from the same start in all runs."""
    w, size = np.tile(start, (plan.repeats, 1)), (plan.repeats, plan.m, problem.d)
    errors, held, eps = [_squares(w, problem)], np.ones(plan.repeats, np.bool_), 0.0
    for t, tau in enumerate(plan.taus):
        rng = stream(plan.seed, "least squares", t)
        order = rng.permuted(np.tile(np.arange(problem.n), (plan.repeats, 1)), axis=1)
        chosen = order[:, : plan.m]
        begin = np.repeat(w, plan.m, axis=0)
        models = local_models(problem, chosen.ravel(), begin, tau, rng, shown=shown).reshape(size)
        bad = np.isin(chosen, corrupted)
        held &= bad.sum(axis=1) <= plan.theta * plan.m + SLACK
        for run, points in enumerate(models):
            if plan.attack and bad[run].any():
                view = View(points[~bad[run]], bad[run].sum(), w[run], problem.minimizer)
                points[bad[run]] = ATTACKS[plan.attack](view)
            w[run], excess = _aggregate(points, w[run], plan.steps)
            eps = max(eps, excess)
        errors.append(_squares(w, problem))
    return Paths(np.stack(errors, axis=1), held, eps, w)


def draw_liars(problem: Problem, rho: float) -> Ints:
    """A random set C of exactly a rho share of the devices."""
    return stream(problem.n, "corrupted").permutation(problem.n)[: round(rho * problem.n)]


def _squares(w: Floats, problem: Problem) -> Floats:
    return ((w - problem.minimizer) ** 2).sum(axis=1)


def _aggregate(points: Floats, w: Floats, steps: int) -> tuple[Floats, float]:
    """The aggregate, and its eps."""
    median: Floats = geometric_median(points).point
    if not steps:
        return median, 0.0
    v = weiszfeld(PlainOracle(points), w, nu=NU, steps=steps)
    excess = (np.linalg.norm(points - end, axis=1).sum() for end in (v, median))
    return v, float(max(0.0, next(excess) - next(excess)))
