"""Worker momentum: what devices send, what they keep, and what neither lies nor NaN may spoil."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.lab.simulation.rounds import LocalEngine, State, play_round
from rfa.lab.training.kept import NEVER, Slots
from rfa.lab.training.pool import open_pool
from tests.lab.simulation.lab import InProcess, play, tiny_devices

EVERYONE = list(range(24))


def test_two_rounds_by_hand() -> None:
    devices = tiny_devices(aggregator="fedavg", devices_per_round=24, worker_momentum=0.75)
    weights = devices.weights / devices.weights.sum()
    first = devices.initial()
    m = np.stack([devices.train(first, 0, device) for device in EVERYONE])
    second = first + (weights @ m).astype(np.float32)
    m = 0.75 * m + 0.25 * np.stack([devices.train(second, 1, device) for device in EVERYONE])
    third = second + weights @ m
    state, _, _ = play(devices, 2)
    assert np.allclose(state.model, third, atol=1e-6)
    assert not np.allclose(
        state.model, play(tiny_devices(aggregator="fedavg"), 2)[0].model, atol=1e-3
    )


def test_a_device_that_does_not_take_part_keeps_its_momentum(tmp_path: Path) -> None:
    devices = tiny_devices(worker_momentum=0.5)
    w, slots = devices.initial(), Slots.none(devices.count)
    later = w + np.float32(0.25)
    with open_pool(devices, 2, kept=tmp_path / "m") as pool:
        pool.train(w, 0, [3, 4], slots)
        pool.train(later, 1, [4, 5], slots)
        slots.save()
        sent = pool.train(later, 2, [3, 4, 6], slots).copy()
    trained = {
        (t, i): devices.train(w if t == 0 else later, t, i) for t in range(3) for i in range(7)
    }
    expected = [
        0.5 * trained[0, 3] + 0.5 * trained[2, 3],
        0.25 * trained[0, 4] + 0.25 * trained[1, 4] + 0.5 * trained[2, 4],
        trained[2, 6],
    ]
    assert np.allclose(sent, expected, atol=1e-6)
    assert [device for device in EVERYONE if slots.current[device] != NEVER] == [3, 4, 5, 6]


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_do_what_one_process_would(tmp_path: Path, workers: int) -> None:
    devices = tiny_devices(worker_momentum=0.9, corruption="omniscient", rho=0.2)
    state, slots = State(0, devices.initial()), Slots.none(devices.count)
    with open_pool(devices, workers, kept=tmp_path / "m") as pool:
        for _ in range(5):
            state, _ = play_round(state, devices, LocalEngine(devices, pool, slots))
    assert np.allclose(state.model, play(devices, 5)[0].model, atol=1e-5)


def test_the_model_is_evaluated_without_momentum(tmp_path: Path) -> None:
    devices = tiny_devices(worker_momentum=0.9)
    w, slots = devices.initial(), Slots.none(devices.count)
    with open_pool(devices, 1, kept=tmp_path / "m") as pool:
        before = pool.evaluate(w, slots)
        pool.train(w, 0, EVERYONE[:8], slots)
        assert pool.evaluate(w, slots) == before


def test_a_corrupted_device_forges_what_it_would_have_sent_and_keeps_what_is_honest(
    tmp_path: Path,
) -> None:
    how: dict[str, Any] = {"worker_momentum": 0.5, "devices_per_round": 24, "aggregator": "fedavg"}
    devices = tiny_devices(corruption="tests.tiny:backwards", rho=0.3, **how)
    weights, bad = devices.weights / devices.weights.sum(), devices.is_corrupted
    state, slots = State(0, devices.initial()), Slots.none(devices.count)
    m, model = None, devices.initial()
    with open_pool(devices, 1, kept=tmp_path / "m") as pool:
        for t in range(3):
            state, _ = play_round(state, devices, LocalEngine(devices, pool, slots))
            updates = np.stack([devices.train(model, t, device) for device in EVERYONE])
            m = updates if m is None else 0.5 * m + 0.5 * updates
            sent = np.where(bad[:, None], -10 * m, m)
            model = (model + weights @ sent).astype(np.float32)
            assert np.allclose(state.model, model, atol=1e-5)
    assert bad.any()


def test_an_update_that_is_not_finite_is_sent_and_not_kept(tmp_path: Path) -> None:
    devices = tiny_devices(worker_momentum=0.5)
    w, slots = devices.initial(), Slots.none(devices.count)
    broken = np.full_like(w, np.nan)
    with open_pool(devices, 1, kept=tmp_path / "m") as pool:
        pool.train(w, 0, [3], slots)
        assert np.isnan(pool.train(broken, 1, [3, 4], slots)).any(axis=1).all()
        assert slots.current[4] == NEVER
        sent = pool.train(w, 2, [3, 4], slots).copy()
    expected = 0.5 * devices.train(w, 0, 3) + 0.5 * devices.train(w, 2, 3)
    assert np.allclose(sent[0], expected, atol=1e-6)
    assert np.array_equal(sent[1], devices.train(w, 2, 4)), "as if it took part for the first time"


@pytest.mark.parametrize("secure", ["unmasked", "on"])
def test_secure_sums_are_over_what_devices_send(secure: str) -> None:
    how: dict[str, Any] = {"worker_momentum": 0.8, "aggregator": "fedavg", "devices_per_round": 8}
    plain, _, _ = play(tiny_devices(**how), 3)
    summed, _, _ = play(tiny_devices(secure=secure, **how), 3)
    assert np.allclose(plain.model, summed.model, atol=1e-3)


def test_momentum_lowers_the_variance_of_honest_updates_across_rounds() -> None:
    """At a fixed model, to (1 - beta) / (1 + beta) of what independent batches have."""
    how: dict[str, Any] = {"local_steps": 1, "batch_size": 4, "aggregator": "fedavg"}
    rounds, settled = 300, 50
    variance: dict[float, float] = {}
    for beta in (0.0, 0.5, 0.9):
        devices = tiny_devices(worker_momentum=beta, **how)
        pool, w = InProcess(devices), devices.initial()
        sent = np.stack([pool.train(w, t, EVERYONE) for t in range(rounds)])
        variance[beta] = float(sent[settled:].var(axis=0).sum())
    assert variance[0.5] / variance[0.0] == pytest.approx(1 / 3, rel=0.1)
    assert variance[0.9] / variance[0.0] == pytest.approx(1 / 19, rel=0.2)
