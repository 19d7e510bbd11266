"""What the opened sums of a run determine together: rank and Cramer-Rao bound of each device.

The analysis of a transcript (`view`) says which sums a server can open. This one takes the opened
sums, and asks what they tell together about one honest device. A sum at (v, nu) opens, over its
members, with r_i = |w_i - v|,

    push    sum_i alpha_i (w_i - v) / max(nu, r_i)     d numbers, each rounded at random,
    mass    sum_i nu alpha_i / max(nu, r_i)            exact, as are the following,
    squares sum_i mass_i^2,   weight sum_i alpha_i,   and the sums of metrics.

The unknowns are the updates w_i, the weights alpha_i and the metrics of honest devices; what
colluders hold is known, and taken out before. The sums are linearized at the truth, in units of the
noise (rows) and of what is known before (columns: a Gaussian of a given spread). From the singular
values of that matrix follow, for each unknown of each device:

    row_space  the share of it that sums without rounding determine; 1: it is determined;
    share      the same with the rounding: how much of its variance the sums explain;
    error      the Cramer-Rao bound of an unbiased guess, relative to its size; infinite if it is
               not determined.

So `row_space` 1 with `share` 0 is hidden by rounding alone; `row_space` below 1 is not determined.

Scalars are known to as many digits as a device computes: they travel with 96 binary digits. That
near is a count, and says something of a distance beside 2 nu, is left out: it has no derivative.

The norm has a kink at r_i = nu: there a push stops to grow. A guess within the prior sees the mean
slope, so the side on which a device is counts as the probability that it is there. (At the truth
alone, a device that crosses nu between two sums would seem to give its distance away.)

Coordinates that are orthogonal to all updates and all v see the same R x h matrix, each by itself:
they are solved once, so that d may be as large as it likes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rfa._types import Floats

SCALARS = ("mass", "squares", "weight")
"""The statistics that have a derivative."""
DIGITS = 2.0**-50
"""The noise of scalars, relative to their size: what a device computes in float64."""
EXACT = 1e-7
"""Combinations of scalars above this size are taken for exact: nothing else competes with them."""
RESOLVED = 1e-13
"""Singular values count as rank above this, relative to the size of the matrix."""
ALL = 1e-6
"""An unknown is determined if no more than this share of it is missing."""


@dataclass(frozen=True)
class Population:
    """What the honest devices of a run hold: the truth, at which sums are linearized.

    Attributes:
        updates: by version, device and coordinate; a version is what one round trained.
        weights: by device: the same in all rounds.
    """

    updates: Floats
    weights: Floats

    @property
    def shape(self) -> tuple[int, int]:
        """Versions and devices."""
        return self.updates.shape[0], self.updates.shape[1]


@dataclass(frozen=True)
class OpenedSum:
    """A sum that was opened.

    Attributes:
        v: where it was asked.
        nu: with which radius.
        members: the honest devices in it.
        noise: the standard deviation of a coordinate of its push.
        version: which updates and metrics it is about.
        drift: by how much a coordinate of each update may have changed since other sums about the
            same version, as a standard deviation.
        scalars: which of SCALARS are opened.
        vector: whether the push is.
    """

    v: Floats
    nu: float
    members: tuple[int, ...]
    noise: float
    version: int = 0
    drift: float = 0.0
    scalars: tuple[str, ...] = SCALARS
    vector: bool = True


@dataclass(frozen=True)
class Prior:
    """What is known before any sum: the spread of each number around its truth; 0 if it is known.

    Attributes:
        update: of a coordinate of an update.
        weight: of a weight.
    """

    update: float
    weight: float


@dataclass(frozen=True)
class Knowledge:
    """What sums tell about one kind of unknown, by device (and version).

    Attributes:
        row_space: the share that sums without rounding determine.
        share: the share of its variance that the sums explain.
        error: the Cramer-Rao bound, relative to its size; infinite if it is not determined.
    """

    row_space: Floats
    share: Floats
    error: Floats

    @property
    def determined(self) -> NDArray[np.bool_]:
        """Where nothing but rounding hides it."""
        return self.row_space > 1 - ALL


@dataclass(frozen=True)
class Exposure:
    """What the opened sums of a run tell.

    Attributes:
        updates: by version and device.
        directions: the same, of the length of an update along itself alone.
        weights: by device.
        metrics: by version and device: of each metric, since all are summed alike.
    """

    updates: Knowledge
    directions: Knowledge
    weights: Knowledge
    metrics: Knowledge


@dataclass(frozen=True)
class _Factors:
    """Orthonormal directions of the unknowns, in units of the prior, and how well each is seen.

    Attributes:
        directions: one a row.
        signal: over noise, of each; infinite for an exact one.
    """

    directions: Floats
    signal: Floats

    @property
    def weights(self) -> Floats:
        """For each direction: rank, explained variance, inverse information."""
        inverse = self.signal**-2
        return np.stack([np.ones_like(inverse), 1 / (1 + inverse), inverse])


def rounding_noise(scale: int, members: int) -> float:
    """The standard deviation of a coordinate of a push, from the rounding of honest members."""
    return float(np.sqrt(members / 6)) / scale


def spread(population: Population) -> Prior:
    """The spread of a population around its means, as the prior of those who know the means."""
    around_mean = float(np.sqrt(population.updates.var(axis=1).mean()))
    return Prior(around_mean, float(population.weights.std()))


def analyze(population: Population, sums: Sequence[OpenedSum], prior: Prior) -> Exposure:
    """What sums tell about each device of a population.

    Args:
        population: the truth.
        sums: what was opened.
        prior: what is known before.
    """
    small, points, rest = _reduced(population, sums)
    inside = _factors(*_rows(small, sums, points, prior))
    (versions, devices), width = population.shape, small.updates.shape[2]
    count = versions * devices
    vectors, weights = np.split(inside.directions, [count * width], axis=1)
    vectors = vectors.reshape(-1, count, width)
    told = inside.weights @ (vectors**2).sum(axis=2)
    if rest:
        beyond = _factors(np.zeros((0, count)), _coefficients(small, sums, points, prior))
        told = told + rest * (beyond.weights @ beyond.directions**2)
    along = np.einsum("rcw,cw->rc", vectors, _units(small.updates.reshape(count, width)))
    unit = prior.update / np.linalg.norm(small.updates, axis=2).ravel()
    return Exposure(
        _knowledge(told, width + rest, unit, population.shape),
        _knowledge(inside.weights @ along**2, 1, unit, population.shape),
        _knowledge(inside.weights @ weights**2, 1, prior.weight / population.weights, (devices,)),
        _metrics(population, sums),
    )


def _metrics(population: Population, sums: Sequence[OpenedSum]) -> Knowledge:
    """What sums tell about a metric: the same of each, since they are added and nothing more."""
    rows = np.zeros((len(sums), *population.shape))
    for row, one in zip(rows, sums, strict=True):
        row[one.version, list(one.members)] = 1
    exact = rows.reshape(len(sums), -1)
    found = _factors(exact, np.zeros((0, exact.shape[1])))
    told = found.weights @ found.directions**2
    return _knowledge(told, 1, np.ones(exact.shape[1]), population.shape)


def _knowledge(told: Floats, size: int, unit: Floats, shape: tuple[int, ...]) -> Knowledge:
    """From rank, explained variance and inverse information of unknowns of some numbers each."""
    row_space, share, variance = told
    determined = row_space > size * (1 - ALL)
    error = np.where(determined, np.sqrt(variance) * unit, np.inf)
    numbers = (row_space / size, share / size, error)
    return Knowledge(*(number.reshape(shape) for number in numbers))


def _reduced(
    population: Population, sums: Sequence[OpenedSum]
) -> tuple[Population, list[Floats], int]:
    """The same geometry in the span of updates and points, and how many coordinates are beyond."""
    versions, devices = population.shape
    dim = population.updates.shape[2]
    flat = population.updates.reshape(-1, dim)
    stack = np.vstack([flat, *(one.v for one in sums)])
    if len(stack) < dim:
        stack = np.linalg.qr(stack.T).R.T
    width = stack.shape[1]
    updates = stack[: len(flat)].reshape(versions, devices, width)
    small = Population(updates, population.weights)
    return small, list(stack[len(flat) :]), dim - width


def _units(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def _rows(
    population: Population, sums: Sequence[OpenedSum], points: Sequence[Floats], prior: Prior
) -> tuple[Floats, Floats]:
    """The derivatives of all exact numbers, and of all rounded ones in units of their noise."""
    exact: list[Floats] = []
    rounded: list[Floats] = []
    for one, v in zip(sums, points, strict=True):
        push, scalars = _derivatives(population, one, v, prior)
        exact.append(scalars)
        if one.vector:
            rounded.append(push / _noise(population, one, v))
    columns = exact[0].shape[1]
    return np.vstack(exact), np.vstack([np.zeros((0, columns)), *rounded])


def _derivatives(
    population: Population, one: OpenedSum, v: Floats, prior: Prior
) -> tuple[Floats, Floats]:
    """The derivatives of a sum's push, and of its scalars, by all unknowns."""
    width, (versions, devices) = len(v), population.shape
    by_update = np.zeros((width + len(SCALARS), versions, devices, width))
    by_weight = np.zeros((width + len(SCALARS), devices))
    for i in one.members:
        alpha, step = population.weights[i], population.updates[one.version, i] - v
        r = float(np.linalg.norm(step))
        size, far = max(one.nu, r), _probability_beyond(one.nu, r, prior.update)
        unit = step / r if r else np.zeros(width)
        mass, slope = alpha * one.nu / size, -far * alpha * one.nu / size**2 * unit
        turning = np.eye(width) - far * np.outer(unit, unit)
        by_update[:width, one.version, i] = alpha / size * turning
        by_update[width:, one.version, i] = [slope, 2 * mass * slope, 0 * slope]
        by_weight[:width, i] = step / size
        by_weight[width:, i] = [mass / alpha, 2 * mass**2 / alpha, 1]
    flat = by_update.reshape(width + len(SCALARS), -1)
    rows = np.hstack([prior.update * flat, prior.weight * by_weight])
    wanted = [width + row for row, name in enumerate(SCALARS) if name in one.scalars]
    return rows[:width], rows[wanted]


def _probability_beyond(nu: float, r: float, spread: float) -> float:
    """The probability that a distance of about r is beyond nu."""
    if not spread:
        return float(r > nu)
    return math.erfc((nu - r) / spread / math.sqrt(2)) / 2


def _coefficients(
    population: Population, sums: Sequence[OpenedSum], points: Sequence[Floats], prior: Prior
) -> Floats:
    """What a coordinate orthogonal to everything sees of each update, in units of the noise."""
    rows = np.zeros((len(sums), *population.shape))
    for row, one, v in zip(rows, sums, points, strict=True):
        if one.vector:
            members = list(one.members)
            row[one.version, members] = _factor(population, one, v) / _noise(population, one, v)
    return prior.update * rows.reshape(len(sums), -1)


def _factor(population: Population, one: OpenedSum, v: Floats) -> Floats:
    """By what the members' updates are multiplied: alpha_i / max(nu, r_i)."""
    members = list(one.members)
    r = np.linalg.norm(population.updates[one.version, members] - v, axis=1)
    return population.weights[members] / np.maximum(one.nu, r)


def _noise(population: Population, one: OpenedSum, v: Floats) -> float:
    """The noise of a coordinate of a push: rounding, and what has changed since other sums."""
    drift = one.drift * float(np.linalg.norm(_factor(population, one, v)))
    return float(np.hypot(one.noise, drift))


def _factors(exact: Floats, rounded: Floats) -> _Factors:
    """The directions that scalars fix, then those that pushes and weaker scalars see."""
    fixed, least = np.zeros((0, rounded.shape[1])), RESOLVED * float(np.linalg.norm(rounded))
    if len(exact):
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
        kept = lengths.ravel() > 0
        _, sizes, turned = np.linalg.svd(exact[kept] / lengths[kept], full_matrices=False)
        fixed = turned[sizes > EXACT]
        weak = (sizes <= EXACT) & (sizes > 8 * DIGITS)
        rounded = np.vstack([rounded, (sizes[:, None] / DIGITS * turned)[weak]])
        for _ in range(2):  # once is not enough where a row is nearly fixed
            rounded = rounded - rounded @ fixed.T @ fixed
    _, signal, directions = np.linalg.svd(rounded, full_matrices=False)
    seen = signal > least
    return _Factors(
        np.vstack([fixed, directions[seen]]),
        np.concatenate([np.full(len(fixed), np.inf), signal[seen]]),
    )
