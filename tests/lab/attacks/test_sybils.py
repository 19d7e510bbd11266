"""Corrupted devices without data that join every round."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from rfa.lab.attacks.corruption import UpdateAttack, corrupts_updates
from rfa.lab.on_flower.launch import Where, check
from rfa.lab.runs.sweep import settle
from rfa.lab.settings.fields import ConfigError
from rfa.lab.settings.settings import Settings
from tests.lab.simulation.lab import play, tiny_devices

TINY = "tests.tiny:TASK"
SEEN: list[UpdateAttack] = []


@corrupts_updates
def keep_view(attack: UpdateAttack) -> Any:
    """Remember what attackers know, and send ones."""
    SEEN.append(dataclasses.replace(attack, updates=attack.updates.copy()))
    return np.ones((len(attack.corrupted), attack.updates.shape[1]))


def test_they_come_last_weigh_as_an_average_device_and_move_the_mean() -> None:
    SEEN.clear()
    devices = tiny_devices(
        aggregator="fedavg", corruption="tests.lab.attacks.test_sybils:keep_view", sybils=3
    )
    clean = tiny_devices(aggregator="fedavg")
    before = clean.initial()
    after, facts, _ = play(devices, 1)
    (attack,) = SEEN
    m = devices.settings.training.devices_per_round
    weights = devices.weights[list(facts[0].devices)]
    assert len(attack.updates) == m + 3
    assert attack.corrupted.tolist() == [m, m + 1, m + 2]
    assert np.allclose(attack.weights, [*weights, *[weights.mean()] * 3])
    assert not attack.updates[m:].any()
    honest = play(clean, 1)[0].model.astype(np.float64) - before
    total = weights.sum() + 3 * weights.mean()
    wanted = (weights.sum() * honest + 3 * weights.mean()) / total
    assert np.allclose(after.model - before, wanted, atol=1e-5)


def test_a_round_tells_of_devices_alone() -> None:
    devices = tiny_devices(aggregator="rfa", corruption="nan", sybils=2)
    _, facts, engine = play(devices, 2)
    for fact in facts:
        assert fact.corrupted == fact.dropped == ()
        assert fact.outcome.weights is not None
        assert len(fact.outcome.weights) == len(fact.devices)
        assert fact.outcome.weights.sum() == pytest.approx(1)
    assert engine.devices.is_honest.all()


def test_with_corrupted_devices_beside_them() -> None:
    devices = tiny_devices(corruption="nan", rho=0.25, sybils=2)
    _, facts, _ = play(devices, 3)
    assert any(fact.corrupted for fact in facts)
    assert all(fact.corrupted == fact.dropped for fact in facts)


def test_defenses_are_told_how_many_there_are() -> None:
    for count in (1, 2, 3, 4):
        settings = Settings.of(
            TINY, aggregator="krum", corruption="ipm", sybils=count, devices_per_round=10
        )
        aggregator: Any = settings.aggregation
        assert aggregator.count_corrupted(10 + count) == count


def test_runs_without_them_keep_their_names() -> None:
    plain = Settings.of(TINY, corruption="ipm", rho=0.25)
    assert "sybils" not in plain.identity["attack"]
    assert plain.run_name == plain.replace(sybils=0).run_name != plain.replace(sybils=1).run_name
    assert Settings.of(TINY).run_name == Settings.of(TINY, sybils=0).run_name


def test_a_sweep_at_level_0_keeps_their_attack() -> None:
    settings = settle({"task": TINY, "corruption": "ipm", "rho": 0.0, "sybils": 2})
    assert settings.attack.corruption == "ipm"
    assert settle({"task": TINY, "corruption": "ipm", "rho": 0.0}).attack.corruption == "none"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"sybils": 2}, "needs a corruption"),
        ({"sybils": -1, "corruption": "ipm"}, "sybils"),
        (
            {"sybils": 10**6, "corruption": "ipm"},
            "sybils must be at most 10000, not 1000000",
        ),
        ({"sybils": 2, "corruption": "data"}, "no data"),
        ({"sybils": 2, "corruption": "ipm", "secure": "unmasked"}, "secure=off"),
    ],
)
def test_wrong_settings_are_named(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Settings.of(TINY, **values)


def test_flower_has_no_such_nodes(tmp_path: Any) -> None:
    settings = Settings.of("digits-linear", corruption="ipm", sybils=2)
    with pytest.raises(ValueError, match="sybils=2"):
        check(settings, Where(tmp_path))
