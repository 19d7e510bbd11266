"""The plain oracle: its sums, their bounds, and the errors for questions without a meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

import rfa
from rfa.radii import Radius
from tests.clouds import Points, clouds, radii


@given(clouds(), radii)
def test_the_sums_are_what_the_devices_add(cloud: Points, nu: float) -> None:
    v = cloud.points.mean(axis=0) + 0.2
    total = rfa.PlainOracle(cloud.points, cloud.alpha)(v, nu)
    pushes: list[NDArray[np.float64]] = []
    masses: list[float] = []
    near = 0
    for w, alpha in zip(cloud.points, cloud.alpha, strict=True):
        r = float(np.linalg.norm(w - v))
        direction = (w - v) / r if r else np.zeros_like(v)
        pushes.append(alpha * min(1, r / nu) * direction)
        masses.append(nu * alpha / max(nu, r))
        near += r <= 2 * nu
    assert total.push == pytest.approx(np.sum(pushes, axis=0), abs=1e-12)
    assert total.mass == pytest.approx(sum(masses))
    assert total.weight == pytest.approx(1)
    assert total.near == near
    assert total.count == len(cloud.points)


@given(clouds(), radii)
def test_no_update_makes_them_large(cloud: Points, nu: float) -> None:
    """|push| <= sum of alpha and 0 < mass <= sum of alpha, whatever the devices send."""
    points = np.concatenate([cloud.points, 1e8 * cloud.points])
    alpha = np.concatenate([cloud.alpha, cloud.alpha])
    total = rfa.PlainOracle(points, alpha)(np.ones(int(points.shape[1])), nu)
    assert np.linalg.norm(total.push) <= total.need("weight") * (1 + 1e-12)
    assert 0 < total.need("mass") <= total.need("weight") * (1 + 1e-12)


def test_weights_are_used_as_they_are() -> None:
    total = rfa.PlainOracle(np.ones((3, 2)), [0.5, 0.25, 0.125])(np.zeros(2), 10.0)
    assert total.need("weight") == 0.875
    assert total.need("mass") == pytest.approx(0.875)
    assert rfa.PlainOracle(np.ones((3, 2)))(np.zeros(2), 10.0).weight == 3


def test_a_clipped_mean_is_the_same_sum_over_the_weight() -> None:
    """FedAvg when nothing is farther than nu, centered clipping otherwise."""
    rng = np.random.default_rng(0)
    points, alpha = rng.standard_normal((6, 4)), rng.random(6)
    total = rfa.PlainOracle(points, alpha)(np.zeros(4), 100.0)
    mean = alpha @ points / alpha.sum()
    assert 100.0 * total.push / total.need("weight") == pytest.approx(mean)
    total = rfa.PlainOracle(points, alpha)(np.zeros(4), 0.5)
    clipped = points * np.minimum(1, 0.5 / np.linalg.norm(points, axis=1))[:, None]
    assert 0.5 * total.push / total.need("weight") == pytest.approx(alpha @ clipped / alpha.sum())


def test_bad_updates_are_refused_or_dropped() -> None:
    points = np.ones((3, 2))
    points[1, 0] = np.nan
    with pytest.raises(ValueError, match=r"points \[1\] are not finite"):
        rfa.PlainOracle(points)
    ask = rfa.PlainOracle(points, [1.0, 5.0, 2.0], on_bad="drop")
    assert ask.dropped == (1,)
    assert ask(np.zeros(2), 1.0).weight == 3


@pytest.mark.parametrize(
    ("v", "nu", "message"),
    [
        (np.zeros(3), 1.0, "v must have shape \\(2,\\), not \\(3,\\)"),
        (np.array([0.0, np.inf]), 1.0, "v must be finite: coordinate 1 is not"),
        (np.zeros(2), 0.0, "nu must be a positive number, not 0.0"),
        (np.zeros(2), np.nan, "nu must be a positive number, not nan"),
        (np.full(2, 1e160), 1.0, "v is too far away"),
    ],
)
def test_questions_without_a_meaning_are_refused(v: Any, nu: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rfa.PlainOracle(np.eye(2))(v, nu)


def test_the_early_stop_needs_an_objective() -> None:
    def secure(v: Any, nu: Radius) -> rfa.Sum:
        return rfa.Sum(push=np.ones(2), mass=1.0, weight=1.0, near=0, count=3, squares=1.0)

    with pytest.raises(ValueError, match="a secure one does not"):
        rfa.weiszfeld(secure, np.zeros(2), nu=1.0, steps=2, early_stop=1e-6)


def test_no_mass_is_an_error() -> None:
    def empty(v: Any, nu: Radius) -> rfa.Sum:
        return rfa.Sum(push=np.zeros(2), mass=0.0, weight=0.0, near=0, count=0, squares=0.0)

    with pytest.raises(ValueError, match=r"the mass of 0 devices at v is 0\.0"):
        rfa.weiszfeld(empty, np.zeros(2), nu=1.0, steps=2)
    with pytest.raises(ValueError, match="nu must be a positive number"):
        rfa.weiszfeld(empty, np.zeros(2), nu=0.0, steps=2)
    with pytest.raises(ValueError, match="early_stop must be a number from 0 on, not -1"):
        rfa.weiszfeld(empty, np.zeros(2), nu=1.0, steps=2, early_stop=-1)
    with pytest.raises(ValueError, match="dim must be a whole number from 1 on, not -1"):
        rfa.one_step(empty, -1, nu=1.0)
    with pytest.raises(ValueError, match="steps must be a whole number"):
        rfa.weiszfeld(empty, np.zeros(2), nu=1.0, steps=0)


def test_the_certificate_bounds_every_devices_share_of_the_step() -> None:
    """min(1, sqrt(Q)) / Gamma, on clouds of all kinds; with colluders, of what is left."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        m = int(rng.integers(1, 12))
        updates = rng.standard_normal((m, 3)) * 10.0 ** rng.integers(-3, 4, (m, 1))
        weights, nu = rng.uniform(1e-3, 1, m), 10.0 ** rng.integers(-3, 3)
        total = rfa.PlainOracle(updates, weights)(np.zeros(3), nu)
        masses = weights * np.minimum(1, nu / np.linalg.norm(updates, axis=1))
        assert np.isclose(total.need("squares"), masses @ masses)
        assert total.certificate() >= masses.max() / masses.sum() * (1 - 1e-12)
        for colluders in range(1, m):
            left = np.sort(masses)[: m - colluders]
            assert total.certificate(colluders) >= (left / left.sum()).max() * (1 - 1e-12)
            worst = masses[colluders:]
            assert total.certificate(colluders) >= (worst / worst.sum()).max() * (1 - 1e-12)
    equal = rfa.PlainOracle(np.eye(4))(np.zeros(4), 1.0)
    assert equal.certificate() == pytest.approx(0.25)


def test_the_certificate_of_a_sum_of_nothing_says_nothing() -> None:
    total = rfa.Sum(push=np.zeros(2), mass=0.0, weight=0.0, near=0, count=0, squares=0.0)
    assert total.certificate() == 1.0
