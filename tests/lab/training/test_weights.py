"""How devices of the lab are weighted: by examples, by buckets, or alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa.errors import InvalidValueError
from rfa.lab.settings.settings import Settings
from rfa.secagg.weights import MODES, lower
from tests.lab.simulation.lab import play, tiny_devices

UNEQUAL: dict[str, Any] = {"aggregator": "fedavg"}


def test_devices_count_by_their_examples_unless_told() -> None:
    devices = tiny_devices(**UNEQUAL)
    assert np.array_equal(devices.weights, devices.examples)
    assert len(set(devices.weights)) > 1


def test_equal_weights_are_equal() -> None:
    devices = tiny_devices(weights="equal", **UNEQUAL)
    assert set(devices.weights) == {1.0}
    assert len(set(devices.examples)) > 1


def test_buckets_are_the_powers_around_the_share_and_right_on_average() -> None:
    drawn: list[Any] = []
    for seed in range(200):
        devices = tiny_devices(weights="buckets", seed=seed, **UNEQUAL)
        assert np.array_equal(
            devices.weights, tiny_devices(weights="buckets", seed=seed, **UNEQUAL).weights
        )
        drawn.append(devices.weights)
    examples = tiny_devices(**UNEQUAL).examples
    cap = 2.0 ** np.ceil(np.log2(examples.max()))
    shares = examples / cap
    below = np.array([lower(share) for share in shares])
    assert all(set(row / below) <= {1.0, 2.0} for row in drawn)
    deviation = np.sqrt((shares - below) * (2 * below - shares) / len(drawn))
    assert (abs(np.mean(drawn, axis=0) - shares) <= 5 * deviation).all()


@pytest.mark.parametrize("weights", MODES)
def test_secure_sums_weigh_as_those_in_the_clear(weights: str) -> None:
    how: dict[str, Any] = {
        "weights": weights,
        "devices_per_round": 8,
    }
    how |= {"aggregator": "rfa", "nu": 1.0, "start": "current", "budget": 2}
    plain, _, _ = play(tiny_devices(early_stop=0.0, **how), 2)
    ours, _, _ = play(tiny_devices(secure="on", **how), 2)
    assert ours.stopped == 0
    moved = np.linalg.norm(plain.model - tiny_devices(**how).initial())
    assert np.linalg.norm(ours.model - plain.model) < 1e-4 * moved


def test_the_corrupted_fraction_is_of_the_data_whatever_devices_weigh() -> None:
    attack: dict[str, Any] = {"corruption": "sign-flip", "rho": 0.3}
    corrupted = [tiny_devices(weights=mode, **UNEQUAL, **attack).is_corrupted for mode in MODES]
    assert all(np.array_equal(corrupted[0], other) for other in corrupted)


def test_runs_keep_their_names_and_others_have_other_names() -> None:
    names = {mode: Settings.of("digits-linear", weights=mode).run_name for mode in MODES}
    assert len(set(names.values())) == len(MODES)
    assert names["examples"] == Settings.of("digits-linear").run_name
    assert "weights" not in Settings.of("digits-linear").identity["training"]
    with pytest.raises(InvalidValueError, match="weights must be one of examples, buckets, equal"):
        Settings.of("digits-linear", weights="heavy")
