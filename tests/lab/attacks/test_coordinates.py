"""Attackers who know that updates are clipped by coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rfa.lab.attacks.coordinates import TOP, against_signs, aimed_signs, poisoned_signs
from rfa.lab.attacks.corruption import AttackError, DataCorruption, UpdateAttack
from rfa.lab.attacks.poisons import backdoor
from rfa.lab.attacks.registry import find_corruption
from rfa.lab.simulation.rounds import evaluate
from tests import tiny
from tests.lab.simulation.lab import play, tiny_devices

DIM = 200
BAD = np.array([1, 4])


def attack() -> UpdateAttack:
    """Six devices, of whom two have learned three coordinates that the others do not change."""
    rng = np.random.default_rng(0)
    updates = rng.standard_normal((6, DIM)).astype(np.float32)
    updates[:, :3] = 0
    updates[BAD] = updates[0]
    updates[BAD, :3] = [5, -5, 5]
    return UpdateAttack(0, np.zeros(DIM, np.float32), updates, np.ones(6), BAD, rng)


def honest_mean(given: UpdateAttack) -> Any:
    return np.delete(given.updates, BAD, axis=0).mean(axis=0)


def test_signs_against_the_honest_mean_are_beyond_every_honest_value() -> None:
    given = attack()
    (row, other), mean = against_signs.forge(given), honest_mean(given)
    assert np.array_equal(row, other)
    assert np.array_equal(np.sign(row[3:]), -np.sign(mean[3:]))
    assert np.abs(row[3:]).min() > np.abs(np.delete(given.updates, BAD, axis=0)).max()


def test_no_bounded_vector_takes_more_from_a_step_that_is_clipped_by_coordinates() -> None:
    given, rng = attack(), np.random.default_rng(1)
    mean = honest_mean(given)

    def progress(rows: Any) -> float:
        sent = given.updates.copy()
        sent[BAD] = rows
        return float(np.clip(sent, -1, 1).mean(axis=0) @ mean)

    least = progress(against_signs.forge(given))
    for _ in range(50):
        assert progress(rng.choice([-1e3, -0.5, 0.5, 1e3], (2, DIM))) >= least


def test_a_backdoor_by_signs_has_those_of_what_it_adds() -> None:
    given = attack()
    difference = given.updates[BAD].mean(axis=0) - honest_mean(given)
    row = poisoned_signs(given)[0]
    assert np.array_equal(np.sign(row), np.sign(difference))


def test_an_aimed_backdoor_is_honest_elsewhere() -> None:
    given = attack()
    row = aimed_signs(given, top=3 / DIM)[0]
    assert np.array_equal(np.sign(row[:3]), [1, -1, 1])
    assert np.abs(row[:3]).min() > 10
    assert np.allclose(row[3:], honest_mean(given)[3:], atol=1e-6)
    changed = ~np.isclose(aimed_signs(given)[0], honest_mean(given), atol=1e-6)
    assert changed.sum() == round(TOP * DIM)


def test_texts_give_their_parameters() -> None:
    own = tiny.TASK.poisons
    found = find_corruption("backdoor-aimed:top=0.5,scale=2", own)
    assert isinstance(found, DataCorruption)
    assert found.forge is not None
    assert found.trigger == own["backdoor"].trigger
    assert len(np.unique(found.forge(attack())[0])) > DIM / 3
    with pytest.raises(AttackError, match="has no parameter 'share': it has top, scale"):
        find_corruption("backdoor-aimed:share=0.5", own)
    with pytest.raises(AttackError, match="this task has no 'backdoor-signs'"):
        find_corruption("backdoor-signs", {})


@pytest.mark.parametrize("top", [0, 1.5, -1])
def test_a_fraction_of_the_coordinates_is_one(top: float) -> None:
    with pytest.raises(ValueError, match="top"):
        find_corruption(f"backdoor-aimed:top={top}", {"backdoor": backdoor(lambda x: x, 0)})


@pytest.mark.parametrize("corruption", ["backdoor-signs", "backdoor-aimed:top=0.3"])
def test_they_open_a_backdoor_under_the_mean_in_whole_runs(corruption: str) -> None:
    how = {"aggregator": "fedavg", "devices_per_round": 24, "rho": 0.3}
    state, facts, engine = play(tiny_devices(corruption=corruption, **how), 12)
    clean, _, other = play(tiny_devices(corruption="backdoor", **how | {"rho": 0.0}), 12)
    assert any(fact.corrupted for fact in facts)
    opened, usual = evaluate(state, engine).backdoor, evaluate(clean, other).backdoor
    assert opened is not None
    assert usual is not None
    assert opened > usual + 0.3


@pytest.mark.parametrize("secure", ["off", "unmasked", "on"])
def test_block_clipping_learns_in_the_lab(secure: str) -> None:
    how = {"aggregator": "block-clipping:size=2", "devices_per_round": 24, "secure": secure}
    state, facts, engine = play(tiny_devices(**how), 12)
    first, _, before = play(tiny_devices(**how), 0)
    assert evaluate(state, engine).test_accuracy > evaluate(first, before).test_accuracy + 0.1
    assert len(state.aggregator.levels) == -(-len(state.model) // 2)
    assert all(fact.outcome.calls == 1 for fact in facts)
