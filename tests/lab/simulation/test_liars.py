"""Devices that lie inside of secure sums, in the rounds of a run: with groups, and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.errors import InvalidValueError
from rfa.lab.api.run import run
from rfa.lab.attacks.corruption import SumCorruption
from rfa.lab.attacks.registry import NoSuchAttackError, find_corruption
from rfa.lab.runs.checkpoint import Checkpoint, load, save
from rfa.lab.settings.fields import ConfigError
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.ledger import left_out
from rfa.lab.simulation.rounds import evaluate, play_round
from tests.lab.simulation.lab import play, tiny_devices

LYING: dict[str, Any] = {
    "corruption": "ring-liar",
    "rho": 0.02,
    "secure": "unmasked",
    "devices_per_round": 24,
    "weights": "equal",
}


def accuracy(rounds: int = 12, **changes: Any) -> float:
    state, _, engine = play(tiny_devices(**LYING | changes), rounds)
    return evaluate(state, engine).test_accuracy


def test_one_liar_ruins_a_mean_and_spoils_only_its_group() -> None:
    assert accuracy(aggregator="fedavg:clip_norm=10") < 0.5
    assert accuracy(aggregator="rfa-one-step", groups=4) > 0.7


def test_without_a_liar_in_the_cohort_the_run_is_the_honest_one() -> None:
    how = {"aggregator": "rfa-one-step", "groups": 4}
    lying, _, _ = play(tiny_devices(**LYING | how | {"rho": 0.0}), 3)
    honest, _, _ = play(tiny_devices(**LYING | how | {"corruption": "none", "rho": 0.0}), 3)
    assert np.array_equal(lying.model, honest.model)


def test_sums_of_groups_without_a_liar_are_those_of_honest_runs() -> None:
    """A lie changes the total of its own sum and passes the checks of the server."""
    state, facts, _ = play(tiny_devices(**LYING, aggregator="rfa-one-step"), 5)
    assert not any(fact.stopped for fact in facts)
    assert all(len(fact.corrupted) == 1 for fact in facts)
    honest, _, _ = play(
        tiny_devices(**LYING | {"corruption": "none", "rho": 0.0}, aggregator="rfa-one-step"), 5
    )
    assert not np.allclose(state.model, honest.model, atol=0.05)


@pytest.mark.parametrize("mode", ["off", "on"])
def test_where_the_lab_sees_no_secure_sum_it_says_what_to_set(mode: str) -> None:
    with pytest.raises(InvalidValueError, match=f"give secure=unmasked, not {mode}"):
        tiny_devices(**LYING | {"secure": mode}, aggregator="rfa-one-step")


def test_parameters_are_shares() -> None:
    assert isinstance(find_corruption("ring-liar:mass=0.9,near=0.9", {}), SumCorruption)
    with pytest.raises(NoSuchAttackError, match="ring-liar has no parameter 'z': it has mass, nea"):
        find_corruption("ring-liar:z=1", {})
    with pytest.raises(NoSuchAttackError, match="near must be at most 1, not 7"):
        accuracy(1, corruption="ring-liar:near=7", aggregator="rfa-one-step")


def test_an_arena_of_liars_without_secure_sums_is_refused_before_it_starts() -> None:
    with pytest.raises(ConfigError, match="give secure=unmasked, not off"):
        Settings.of("digits-linear", corruption="ring-liar", rho=0.1)


def test_a_ledger_that_would_hear_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"there are none: give groups"):
        Settings.of(
            "digits-linear", aggregator="rfa-one-step", secure="unmasked", exclude_liars=True
        )


LEDGER: dict[str, Any] = {"aggregator": "rfa-one-step", "groups": 6, "exclude_liars": True}


def test_the_ledger_leaves_the_liar_out_and_nobody_else() -> None:
    devices = tiny_devices(**LYING | LEDGER)
    state, facts, _ = play(devices, 20)
    (liar,) = np.flatnonzero(devices.is_corrupted)
    assert left_out(state.suspicion, devices.count) == [liar]
    assert liar in facts[0].devices
    assert liar not in facts[-1].devices
    assert len(facts[-1].devices) == devices.count - 1


def test_without_the_setting_there_is_no_ledger_and_runs_keep_their_names() -> None:
    plain = tiny_devices(**LYING | LEDGER | {"exclude_liars": False})
    state, _, _ = play(plain, 2)
    assert state.suspicion is None
    assert "exclude_liars" not in plain.settings.identity["secure"]
    with pytest.raises(ConfigError, match="exclude_liars=True needs secure=unmasked"):
        tiny_devices(aggregator="rfa-one-step", exclude_liars=True)


def test_a_checkpoint_keeps_the_ledger(tmp_path: Path) -> None:
    devices = tiny_devices(**LYING | LEDGER)
    whole, _, _ = play(devices, 14)
    state, _, engine = play(devices, 5)
    path = tmp_path / "checkpoint.npz"
    save(Checkpoint(state, None, 1.0, 1.0, "data"), path)
    found = load(path, devices.settings.aggregation)
    assert found
    assert found.state.suspicion == state.suspicion
    state = found.state
    for _ in range(9):
        state, _ = play_round(state, devices, engine)
    assert state.suspicion == whole.suspicion
    assert np.array_equal(state.model, whole.model)


def test_a_run_with_liars_and_the_ledger_ends_and_is_kept(tmp_path: Path) -> None:
    how: dict[str, Any] = {
        "honest_per_query": 0,
        "rounds": 12,
        "workers": 1,
        "out": tmp_path,
        "progress": False,
    }
    result = run("tests.tiny:TASK", **LYING | LEDGER, **how)
    assert result.status == "finished"
    assert result.settings.secure.exclude_liars
