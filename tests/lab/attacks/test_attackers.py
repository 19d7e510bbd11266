"""Who is corrupted: the same devices always, or others in each round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.lab.datasets.cache import load
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import LocalEngine, State, play_round
from rfa.lab.training.devices import Devices
from rfa.lab.training.pool import open_pool
from tests import tiny
from tests.lab.runs.test_run import Notes, do, results
from tests.lab.simulation.lab import play, tiny_devices

RANDOM: dict[str, Any] = {"attackers": "random", "rho": 0.25}


def test_random_attackers_differ_by_round_and_keep_their_share() -> None:
    devices = tiny_devices(corruption="ipm", **RANDOM)
    rounds = [devices.corrupted_in(t) for t in range(40)]
    assert len({tuple(found) for found in rounds}) > 30
    for found in rounds:
        share = devices.weights[found].sum() / devices.weights.sum()
        assert 0.25 < share <= 0.25 + devices.weights.max() / devices.weights.sum()
    often = np.mean(rounds, axis=0)
    assert 0.1 < often.min() < often.max() < 0.6
    again = tiny_devices(corruption="ipm", **RANDOM)
    for t in (17, 3, 39):
        assert np.array_equal(again.corrupted_in(t), rounds[t])


def test_fixed_attackers_are_those_that_they_were() -> None:
    devices = tiny_devices(corruption="ipm", rho=0.25)
    assert all(devices.corrupted_in(t) is devices.is_corrupted for t in (0, 7))
    named = Settings.of("tests.tiny:TASK", corruption="ipm", rho=0.25, attackers="fixed")
    assert devices.settings.run_name == named.run_name


def test_only_those_of_the_round_are_poisoned() -> None:
    clean, devices = tiny_devices(), tiny_devices(corruption="data", **RANDOM)
    w = clean.initial()
    for t in (0, 1):
        bad = devices.corrupted_in(t)
        same = [
            np.array_equal(clean.train(w, t, device), devices.train(w, t, device))
            for device in range(clean.count)
        ]
        assert np.array_equal(same, ~bad)


def test_a_round_tells_who_was_corrupted() -> None:
    devices = tiny_devices(corruption="nan", **RANDOM)
    _, facts, _ = play(devices, 4)
    for fact in facts:
        bad = np.flatnonzero(devices.corrupted_in(fact.round - 1))
        assert set(fact.corrupted) == set(fact.devices) & set(bad.tolist()) == set(fact.dropped)


@pytest.mark.parametrize("corruption", ["data", "backdoor", "anti-median"])
def test_workers_agree_with_one_process(corruption: str) -> None:
    settings = Settings.of("tests.tiny:TASK", corruption=corruption, **RANDOM)
    devices = Devices(settings, tiny.TASK, load(tiny.TASK.reader, None))
    wanted, _, local = play(devices, 3)
    with open_pool(devices, 2) as pool:
        engine = LocalEngine(devices, pool)
        state = State(0, devices.initial())
        for _ in range(3):
            state, _ = play_round(state, devices, engine)
        assert np.array_equal(state.model, wanted.model)
        assert engine.evaluate(state) == local.evaluate(wanted)


def test_a_run_that_goes_on_is_the_same_to_the_bit(tmp_path: Path) -> None:
    values: dict[str, Any] = {"corruption": "backdoor", **RANDOM, "rounds": 6}
    whole = do(tmp_path / "whole", **values)
    with pytest.raises(KeyboardInterrupt):
        do(tmp_path / "parts", Notes(4), checkpoint_every=3, **values)
    again = do(tmp_path / "parts", checkpoint_every=3, **values)
    assert again["model_sha256"] == whole["model_sha256"]
    assert results(tmp_path / "parts", again["run"]) == results(tmp_path / "whole", whole["run"])
