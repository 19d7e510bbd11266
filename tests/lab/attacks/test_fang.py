"""Fang's attacks: values beyond the honest ones, and the farthest point that Krum still chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa.aggregators.clear import TrimmedMean
from rfa.lab.attacks.corruption import AttackError, forge
from rfa.lab.attacks.registry import find_corruption
from tests.lab.attacks.test_attacks import attack_on, honest_of, sent


def krum_of(points: Any, corrupted: int) -> int:
    """Krum's choice, from all differences."""
    neighbors = len(points) - corrupted - 2
    squares = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    return int(np.sort(squares, axis=1)[:, 1 : neighbors + 1].sum(axis=1).argmin())


def test_values_lie_beyond_the_honest_ones_and_away_from_their_mean() -> None:
    attack = attack_on(seed=1)
    honest, shares = honest_of(attack)
    rows, mean = sent(attack, "fang-trimmed-mean"), shares @ honest
    low, high = honest.min(axis=0), honest.max(axis=0)
    for row in rows:
        for j, value in enumerate(row):
            if mean[j] > 0:
                limits = sorted((low[j], low[j] / 2 if low[j] > 0 else 2 * low[j]))
            else:
                limits = sorted((high[j], 2 * high[j] if high[j] > 0 else high[j] / 2))
            assert limits[0] - 1e-5 <= value <= limits[1] + 1e-5
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_the_trimmed_mean_moves_away_from_the_honest_one() -> None:
    attack = attack_on(devices=20, bad=6, equal=True)
    honest, _ = honest_of(attack)
    trimmed = TrimmedMean(0.3)
    clean = trimmed(attack.updates).point
    rows = attack.updates.copy()
    rows[attack.corrupted] = sent(attack, "fang-trimmed-mean")
    moved = trimmed(rows).point
    assert ((moved - clean) * np.sign(honest.mean(axis=0))).mean() < -0.1


def test_b_is_a_parameter_and_must_be_above_one() -> None:
    wide, usual = (
        forge(find_corruption(text, {}), attack_on(), text)  # pyright: ignore[reportArgumentType]
        for text in ("fang-trimmed-mean:b=8", "fang-trimmed-mean")
    )
    assert np.abs(wide).sum() > 1.5 * np.abs(usual).sum()
    with pytest.raises(AttackError, match="b must be above 1, not 1"):
        find_corruption("fang-trimmed-mean:b=1", {})


def bound_of(honest: Any, corrupted: int) -> float:
    """The paper's bound on lambda, of the models around a current one at zero."""
    devices, dim = len(honest) + corrupted, honest.shape[1]
    squares = np.sort(((honest[:, None] - honest[None]) ** 2).sum(axis=2), axis=1)
    nearest = squares[:, 1 : devices - corrupted - 1].sum(axis=1).min()
    first = np.sqrt(nearest / ((devices - 2 * corrupted - 1) * dim))
    return float(first + np.linalg.norm(honest, axis=1).max() / np.sqrt(dim))


@pytest.mark.parametrize(("devices", "bad"), [(12, 3), (30, 12), (9, 1), (25, 11)])
def test_krum_chooses_the_attackers_and_not_if_they_go_twice_as_far(devices: int, bad: int) -> None:
    attack = attack_on(devices=devices, bad=bad, equal=True, seed=devices)
    updates, (honest, _) = attack.updates.astype(np.float64), honest_of(attack)
    rows = sent(attack, "fang-krum")
    signs = np.sign(updates[krum_of(updates, bad)])
    length = -float(rows[0] @ signs) / len(signs)
    assert np.allclose(rows, -length * signs, rtol=1e-5)
    halved = np.log2(bound_of(honest, bad) / length)
    assert halved == pytest.approx(round(halved), abs=1e-4)
    assert round(halved) > 0
    for factor, is_chosen in ((1, True), (2, False)):
        updates[attack.corrupted] = -factor * length * signs
        assert (krum_of(updates, bad) in attack.corrupted) is is_chosen


def test_without_honest_devices_or_with_broken_ones_they_send_numbers() -> None:
    for name in ("fang-krum", "fang-trimmed-mean"):
        attack = attack_on(devices=6, bad=6)
        assert np.isfinite(sent(attack, name)).all()
        attack = attack_on()
        attack.updates[0], attack.updates[5, 3] = np.nan, np.inf
        assert np.isfinite(sent(attack, name)).all()
