"""Optimized attacks that maximize the plain distance, against a search written otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rfa.aggregators.clear import MixedMedian
from rfa.lab.attacks.corruption import AttackError, UpdateAttack, forge
from rfa.lab.attacks.optimized import line_search
from rfa.lab.attacks.registry import find_corruption


def in_two_phases(height: Callable[[float], float]) -> float:
    """Expand while it goes up, then contract: 20 heights in all."""
    best, top, step, left = 0.0, height(0.0), 10.0, 19
    while left:
        left -= 1
        if (value := height(best + step)) <= top:
            step *= 0.8
            break
        best, top, step = best + step, value, 2 * step
    for _ in range(left):
        if (value := height(best + step)) > top:
            best, top = best + step, value
        step *= 0.8
    return best


@pytest.mark.parametrize("peak", [0.0, 0.3, 4.0, 10.0, 12.0, 47.0, 1e3, 1e9])
def test_the_factor_of_a_search_in_two_phases(peak: float) -> None:
    asked: list[float] = []

    def height(factor: float) -> float:
        asked.append(factor)
        return -abs(factor - peak)

    found = line_search(height)
    assert len(asked) == 20
    assert found == in_two_phases(height)


def attack_on(seed: int) -> UpdateAttack:
    rng = np.random.default_rng(seed)
    updates = (0.3 + rng.standard_normal((14, 40))).astype(np.float32)
    defense = MixedMedian(4, clip_norm=5, nu=0.1)

    def aggregate(rows: Any) -> Any:
        return defense(np.vstack([updates[:10], rows])).point.astype(np.float64)

    return UpdateAttack(
        round=0,
        model=np.zeros(40, np.float32),
        updates=updates,
        weights=np.ones(14),
        corrupted=np.arange(10, 14),
        rng=rng,
        aggregate=aggregate,
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["ipm-optimized", "alie-optimized"])
def test_rows_at_the_factor_that_is_farthest_from_the_mean(name: str, seed: int) -> None:
    attack = attack_on(seed)
    honest = attack.updates[:10].astype(np.float64)
    mean, std = honest.mean(axis=0), honest.std(axis=0, ddof=1)

    def row(factor: float) -> Any:
        return -factor * mean if name.startswith("ipm") else mean - factor * std

    def height(factor: float) -> float:
        rows = np.tile(row(factor), (4, 1)).astype(np.float32)
        return float(np.linalg.norm(attack.aggregate(rows) - mean))

    corruption: Any = find_corruption(f"{name}:goal=distance", {})
    sent = forge(corruption, attack, name)
    wanted = row(in_two_phases(height))
    assert np.allclose(sent, np.tile(wanted, (4, 1)), rtol=1e-5, atol=1e-5)


def test_another_goal_is_refused() -> None:
    with pytest.raises(AttackError, match="shortfall"):
        find_corruption("alie-optimized:goal=harm", {})
