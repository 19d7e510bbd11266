"""What corrupted devices do, and who they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfa.lab.attacks.corruption import (
    AttackError,
    DataAttack,
    DataCorruption,
    UpdateAttack,
    UpdateCorruption,
    draw_corrupted,
    forge,
    least_likely,
    poison,
)
from rfa.lab.attacks.registry import BUILT_IN, find_corruption
from rfa.lab.tasks import emnist, sent140, shakespeare
from rfa.lab.tasks.registry import TASKS


def attack_on(devices: int = 9, bad: int = 3, dim: int = 2000, seed: int = 0) -> UpdateAttack:
    rng = np.random.default_rng(seed)
    return UpdateAttack(
        round=4,
        model=rng.standard_normal(dim).astype(np.float32),
        updates=(rng.standard_normal((devices, dim)) * rng.uniform(1, 5, (devices, 1))).astype(
            np.float32
        ),
        weights=rng.uniform(1, 9, devices),
        corrupted=np.sort(rng.choice(devices, bad, replace=False)),
        rng=np.random.default_rng(5),
    )


def sent(attack: UpdateAttack, name: str) -> Any:
    updates = attack.updates.astype(np.float64)
    updates[attack.corrupted] = forge(BUILT_IN[name], attack, name)
    return updates


@given(seed=st.integers(0, 999), bad=st.integers(1, 9))
def test_omniscient_turns_the_mean_of_the_updates_over(seed: int, bad: int) -> None:
    attack = attack_on(bad=bad, dim=20, seed=seed)
    before = attack.weights @ attack.updates.astype(np.float64)
    after = attack.weights @ sent(attack, "omniscient")
    assert np.allclose(after, -before, rtol=1e-4, atol=1e-3)


@given(seed=st.integers(0, 999), bad=st.integers(1, 9))
def test_omniscient_parameters_turns_the_mean_of_the_models_over(seed: int, bad: int) -> None:
    attack = attack_on(bad=bad, dim=20, seed=seed)
    models = attack.model + attack.updates.astype(np.float64)
    after = attack.weights @ (attack.model + sent(attack, "omniscient-parameters"))
    assert np.allclose(after, -(attack.weights @ models), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["omniscient", "omniscient-parameters"])
def test_omniscient_devices_reckon_with_broken_ones(name: str) -> None:
    attack = attack_on(dim=20)
    broken = int(np.setdiff1d(np.arange(9), attack.corrupted)[0])
    attack.updates[broken, 3] = np.inf
    whole = np.isfinite(attack.updates).all(axis=1)
    base = attack.model if name.endswith("parameters") else 0
    before = attack.weights[whole] @ (base + attack.updates[whole].astype(np.float64))
    after = attack.weights[whole] @ (base + sent(attack, name)[whole])
    assert np.allclose(after, -before, rtol=1e-4, atol=1e-3)


def test_gaussian_adds_noise_of_the_updates_own_size_or_replaces_it() -> None:
    attack = attack_on()
    sizes = attack.updates[attack.corrupted].std(axis=1)
    added = sent(attack, "gaussian")[attack.corrupted] - attack.updates[attack.corrupted]
    assert np.allclose(added.std(axis=1), sizes, rtol=0.1)
    attack = attack_on()
    alone = sent(attack, "gaussian-replace")[attack.corrupted]
    assert np.allclose(alone.std(axis=1), sizes, rtol=0.1)
    correlation = [
        np.corrcoef(row, own)[0, 1]
        for row, own in zip(alone, attack.updates[attack.corrupted], strict=True)
    ]
    assert np.abs(correlation).max() < 0.1


@given(seed=st.integers(0, 10_000), rho=st.floats(0, 0.95))
def test_the_corrupted_set_is_cut_where_its_weight_first_exceeds_rho(seed: int, rho: float) -> None:
    weights = np.random.default_rng(seed).integers(40, 400, 50).astype(np.float64)
    chosen = draw_corrupted(weights, rho, seed)
    if rho == 0:
        assert chosen.size == 0
        return
    share = weights[chosen].sum() / weights.sum()
    assert share > rho
    assert share - weights[chosen].max() / weights.sum() <= rho + 1e-9
    assert np.array_equal(chosen, draw_corrupted(weights, rho, seed))
    assert len(set(chosen.tolist())) == len(chosen)


def data_attack(scores: Any = None, classes: int = 62) -> DataAttack:
    return DataAttack(
        round=1,
        device=3,
        classes=classes,
        model=np.zeros(1, np.float32),
        scores=scores,
        rng=np.random.default_rng(0),
    )


def test_the_papers_poisons() -> None:
    x, y = np.random.default_rng(0).random((4, 784)), np.arange(4)
    bad_x, bad_y = poison(emnist.negative, x, y, data_attack())
    assert np.allclose(bad_x, 1 - x)
    assert np.array_equal(bad_y, y)
    windows = np.arange(41, dtype=np.uint8)[None, :]
    bad_x, bad_y = poison(shakespeare.backwards, windows, np.array([20]), data_attack())
    assert bad_x[0, :20].tolist() == list(range(40, 20, -1))
    assert bad_y.tolist() == [20]
    bad_x, bad_y = poison(sent140.flip, x, np.array([0, 1, 1, 0]), data_attack(classes=2))
    assert np.array_equal(bad_x, x)
    assert bad_y.tolist() == [1, 0, 0, 1]


def test_adaptive_poisoning_labels_with_the_least_likely_class() -> None:
    scores = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, -1.0]])

    def of_model(_: Any) -> Any:
        return scores

    attack = data_attack(of_model, classes=3)
    _, y = poison(least_likely, np.zeros((2, 4)), np.array([0, 0]), attack)
    assert y.tolist() == [1, 2]


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_every_task_has_a_static_and_an_adaptive_poison(task: Any) -> None:
    for name, adaptive in (("data", False), ("adaptive", True)):
        found = find_corruption(name, task.poisons)
        assert isinstance(found, DataCorruption)
        assert found.adaptive is adaptive


def test_a_corruption_of_ones_own() -> None:
    assert isinstance(find_corruption("tests.tiny:backwards", {}), UpdateCorruption)
    assert isinstance(find_corruption("tests.tiny:flip", {}), DataCorruption)
    assert find_corruption("none", {}) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("omnicient", "corruption 'omnicient' is not known: give one of none, gaussian"),
        ("no_such_module:f", "no_such_module cannot be imported: ModuleNotFoundError"),
        ("tests.tiny:nothing", "there is no such name"),
        ("tests.tiny:unmarked", "must be a function marked with corrupts_data"),
        (":", "cannot be imported"),
    ],
)
def test_names_without_a_corruption(name: str, says: str) -> None:
    with pytest.raises(AttackError, match=says):
        find_corruption(name, {})


WRONG_ROWS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda a: a.updates[0], r"must return numbers of shape \(3, 2000\), not float32"),
    (lambda a: None, "not object"),
    (lambda a: a.nothing, "failed in round 4: AttributeError"),
    (lambda a: a.updates.fill(0), "failed in round 4: ValueError"),  # it may not change them
]


@pytest.mark.parametrize(("rows", "says"), WRONG_ROWS)
def test_updates_of_the_wrong_kind(rows: Any, says: str) -> None:
    attack = attack_on()
    attack.updates.flags.writeable = False
    with pytest.raises(AttackError, match=says):
        forge(UpdateCorruption(rows), attack, "mine")


WRONG_POISON: list[tuple[Callable[[Any, Any, Any], Any], str]] = [
    (lambda x, y, a: (x[:, 1:], y), "must return examples like"),
    (lambda x, y, a: (x, y[1:]), "one label each"),
    (lambda x, y, a: (x, y + 62), "whole labels from 0 to 61"),
    (lambda x, y, a: (x, y * 0.5), "whole labels"),
    (lambda x, y, a: x, "failed in round 1: ValueError"),
    (lambda x, y, a: (x[:0], y[:0]), "must return examples like"),
]


@pytest.mark.parametrize(("change", "says"), WRONG_POISON)
def test_poison_of_the_wrong_kind(change: Any, says: str) -> None:
    with pytest.raises(AttackError, match=says):
        poison(DataCorruption(change), np.zeros((5, 4), np.float32), np.arange(5), data_attack())


def test_a_poison_may_change_its_arguments_without_harm() -> None:
    def spoil(x: Any, y: Any, attack: DataAttack) -> tuple[Any, Any]:
        x[:] = 7
        return x, y

    x = np.zeros((5, 4), np.float32)
    found, _ = poison(DataCorruption(spoil), x, np.arange(5), data_attack())
    assert found.min() == 7
    assert not x.any()


def test_a_corruption_that_wants_to_exit_is_named() -> None:
    def leave(attack: Any) -> Any:
        raise SystemExit(0)

    with pytest.raises(AttackError, match=r"SystemExit: 0 \(test_corruption.py, line \d+\)"):
        forge(UpdateCorruption(leave), attack_on(), "mine")
