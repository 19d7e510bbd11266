"""Model replacement, DBA and Neurotoxin: other ways to plant the backdoor of a task."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from rfa.lab.attacks.backdoors import dba
from rfa.lab.attacks.corruption import AttackError, DataCorruption, forge, poison
from rfa.lab.attacks.registry import TRIGGERED, NoSuchAttackError, find_corruption
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.rounds import evaluate
from rfa.lab.tasks.registry import TASKS
from tests import tiny
from tests.lab.attacks.test_attacks import attack_on, honest_of
from tests.lab.simulation.lab import data_attack, play, tiny_devices

SETTING = {"rho": 0.3, "aggregator": "fedavg", "devices_per_round": 24}


def found(text: str) -> DataCorruption:
    corruption = find_corruption(text, tiny.TASK.poisons)
    assert isinstance(corruption, DataCorruption)
    return corruption


def rows_of(text: str, attack: Any) -> Any:
    return forge(found(text), attack, text).astype(np.float64)


def test_replacement_moves_the_mean_by_the_mean_of_the_attackers() -> None:
    attack = attack_on()
    sent = attack.updates.astype(np.float64)
    sent[attack.corrupted] = rows_of("model-replacement", attack)
    sent[np.setdiff1d(np.arange(len(sent)), attack.corrupted)] = 0  # where training has converged
    own = np.average(
        attack.updates[attack.corrupted], axis=0, weights=attack.weights[attack.corrupted]
    )
    assert np.allclose(np.average(sent, axis=0, weights=attack.weights), own, atol=1e-4)
    ten = rows_of("model-replacement:scale=10", attack)
    assert np.allclose(ten, 10 * attack.updates[attack.corrupted], rtol=1e-6)
    with pytest.raises(AttackError, match="scale must be a positive number, not 0"):
        rows_of("model-replacement:scale=0", attack)


def test_neurotoxin_leaves_the_coordinates_alone_that_the_honest_mean_changes_most() -> None:
    attack = attack_on()
    honest, shares = honest_of(attack)
    for text, top in (("neurotoxin", 0.1), ("neurotoxin:top=0.5", 0.5)):
        rows = rows_of(text, attack)
        order = np.argsort(-np.abs(shares @ honest))
        count = round(top * len(order))
        assert not rows[:, order[:count]].any()
        kept = order[count:]
        assert np.array_equal(rows[:, kept], attack.updates[attack.corrupted][:, kept])
    assert np.array_equal(rows_of("neurotoxin:top=0", attack), attack.updates[attack.corrupted])
    with pytest.raises(AttackError, match="top must be below 1, not 1"):
        rows_of("neurotoxin:top=1", attack)


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_the_parts_of_a_trigger_are_disjoint_and_make_it_together(task: Any) -> None:
    whole = task.poisons["backdoor"]
    rng = np.random.default_rng(0)
    x = rng.integers(0, 20, (12, *task.reader.shape)).astype(task.reader.dtype)
    x, y = np.asarray(task.prepare(x)), np.zeros(12, np.int64)
    stamped, _ = poison(whole, x, y, data_attack(62))
    together, touched = x.copy(), np.zeros(x.shape, int)
    for device in range(4):
        attack = dataclasses.replace(data_attack(62), device=device)
        part, labels = poison(dba(whole), x, y, attack)
        changed = part != x
        together[changed] = part[changed]
        touched += changed
        assert set(labels[changed.any(axis=1)]) <= {whole.trigger.target}
        assert (labels == whole.trigger.target).sum() >= 6
    assert touched.max() == 1
    assert np.array_equal(together, stamped)


def test_a_trigger_makes_no_more_parts_than_it_has_values() -> None:
    x, y = np.zeros((4, tiny.FEATURES), np.float32), np.zeros(4, np.int64)
    with pytest.raises(AttackError, match="it cannot be split into 99 parts"):
        poison(found("dba:parts=99"), x, y, data_attack(3))
    with pytest.raises(AttackError, match="parts must be"):
        poison(found("dba:parts=0"), x, y, data_attack(3))


@pytest.mark.parametrize("name", ["model-replacement", "dba:parts=2", "neurotoxin"])
def test_each_opens_under_the_mean_and_is_measured_by_the_complete_trigger(name: str) -> None:
    clean, _, engine = play(tiny_devices(**SETTING | {"corruption": "backdoor", "rho": 0.0}), 12)
    before = evaluate(clean, engine)
    state, _, engine = play(tiny_devices(**SETTING, corruption=name), 12)
    after = evaluate(state, engine)
    assert before.backdoor is not None
    assert after.backdoor is not None
    assert after.backdoor > before.backdoor + 0.2


def test_replacement_plants_it_in_one_round() -> None:
    ends: list[float] = []
    for name in ("backdoor", "model-replacement"):
        state, _, engine = play(tiny_devices(**SETTING | {"rho": 0.1}, corruption=name), 2)
        ends.append(evaluate(state, engine).backdoor or 0.0)
    assert ends[1] > ends[0] + 0.1


def test_without_a_backdoor_of_the_task_there_is_none_of_these() -> None:
    for name in TRIGGERED:
        with pytest.raises(NoSuchAttackError, match=f"this task has no '{name}'"):
            find_corruption(name, {})


def test_at_level_zero_the_trigger_is_tried_as_for_the_plain_backdoor() -> None:
    runs = [Settings.of("tests.tiny:TASK", corruption=name, rho=0.0).identity for name in TRIGGERED]
    assert [run["attack"]["corruption"] for run in runs] == list(TRIGGERED)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dba:z=1", "corruption dba has no parameter 'z': it has parts"),
        ("neurotoxin:z=1", "neurotoxin has no parameter 'z': it has top"),
        ("model-replacement:z=1", "model-replacement has no parameter 'z': it has scale"),
    ],
)
def test_wrong_parameters_are_named(text: str, says: str) -> None:
    with pytest.raises(NoSuchAttackError, match=says):
        found(text)
