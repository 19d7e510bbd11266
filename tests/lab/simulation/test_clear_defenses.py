"""Defenses that draw at random, or have data of their own, in the rounds of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa.aggregators.clear import FLTrust
from rfa.errors import InvalidValueError
from rfa.lab.simulation.rounds import evaluate
from tests.lab.simulation.lab import play, tiny_devices

NEW = ("dnc", "flame", "signguard", "fltrust:examples=20")


@pytest.mark.parametrize("aggregator", NEW)
def test_each_learns_and_repeats_to_the_bit(aggregator: str) -> None:
    how: dict[str, Any] = {"aggregator": aggregator, "devices_per_round": 12}
    first, _, engine = play(tiny_devices(**how), 6)
    again, _, _ = play(tiny_devices(**how), 6)
    assert np.array_equal(first.model, again.model)
    assert evaluate(first, engine).test_accuracy > 0.6


@pytest.mark.parametrize("aggregator", NEW)
@pytest.mark.parametrize("corruption", ["omniscient", "ipm-optimized", "fang-krum"])
def test_each_withstands_attackers_who_know_everything(aggregator: str, corruption: str) -> None:
    how = {"aggregator": aggregator, "devices_per_round": 24, "corruption": corruption, "rho": 0.2}
    state, _, engine = play(tiny_devices(**how), 8)
    assert evaluate(state, engine).test_accuracy > 0.5


def test_draws_differ_from_round_to_round_and_with_the_seed() -> None:
    plain, _, _ = play(tiny_devices(aggregator="flame:noise=0", devices_per_round=24), 2)
    noisy, _, _ = play(tiny_devices(aggregator="flame:noise=0.5", devices_per_round=24), 2)
    one, _, _ = play(tiny_devices(aggregator="flame:noise=0", devices_per_round=24), 1)
    half, _, _ = play(tiny_devices(aggregator="flame:noise=0.5", devices_per_round=24), 1)
    first, both = half.model - one.model, noisy.model - plain.model
    assert not np.allclose(2 * first, both, atol=0.1 * float(np.abs(first).max()))


def test_the_server_trains_on_clean_examples_of_its_own() -> None:
    devices = tiny_devices(aggregator="fltrust:examples=50", corruption="label-flip", rho=0.4)
    rows = devices._server_rows(50)  # pyright: ignore[reportPrivateUsage]
    assert len(np.unique(rows)) == 50
    owner = np.searchsorted(devices.starts, rows, side="right") - 1
    assert (rows >= devices.starts[owner]).all()
    assert (rows < devices.trains[owner]).all()
    assert len(set(owner.tolist())) > 10
    first, again, later = (devices.server_update(devices.initial(), t) for t in (0, 0, 1))
    assert first is not None
    assert again is not None
    assert later is not None
    assert np.array_equal(first, again)
    assert not np.array_equal(first, later)
    assert tiny_devices(aggregator="krum").server_update(devices.initial(), 0) is None


def test_the_server_alone_learns_whatever_devices_send() -> None:
    how = {"aggregator": "server-alone:examples=50", "devices_per_round": 8}
    alone, _, engine = play(tiny_devices(**how), 6)
    attacked, _, _ = play(tiny_devices(**how, corruption="omniscient", rho=0.4), 6)
    assert np.array_equal(alone.model, attacked.model)
    assert evaluate(alone, engine).test_accuracy > 0.5


def test_more_examples_than_there_are_is_one_line() -> None:
    devices = tiny_devices(aggregator="fltrust:examples=1000000")
    with pytest.raises(InvalidValueError, match="the server cannot have examples=1000000: all"):
        devices.server_update(devices.initial(), 0)


def test_the_number_of_examples_is_part_of_the_run() -> None:
    runs = [tiny_devices(aggregator=text).settings for text in ("fltrust", "fltrust:examples=50")]
    assert isinstance(runs[0].aggregation, FLTrust)
    assert "fltrust:examples=100" in runs[0].aggregator_text
    assert runs[0].run_name != runs[1].run_name
