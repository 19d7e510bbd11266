"""Devices that lie inside of secure sums, in the rounds of a run: with groups, and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa.errors import InvalidValueError
from rfa.lab.attacks.corruption import SumCorruption
from rfa.lab.attacks.registry import NoSuchAttackError, find_corruption
from rfa.lab.simulation.rounds import evaluate
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
    with pytest.raises(InvalidValueError, match="near must be at most 1, not 7"):
        accuracy(1, corruption="ring-liar:near=7", aggregator="rfa-one-step")
