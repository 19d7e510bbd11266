"""The attacks of the literature do what their papers say, and those that know the defense more."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfa.aggregators.registry import ENTRIES
from rfa.lab.attacks.corruption import AttackError, UpdateAttack, forge, poison
from rfa.lab.attacks.honest import Honest
from rfa.lab.attacks.literature import EPSILON, alie_deviations
from rfa.lab.attacks.registry import BUILT_IN, find_corruption
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation.aggregation import aggregate
from rfa.lab.simulation.defense import OTHER, Defense
from rfa.lab.simulation.rounds import evaluate
from rfa.lab.tasks import sent140
from rfa.lab.tasks.registry import TASKS
from tests.lab.simulation.lab import data_attack, play, tiny_devices

DIM = 40
CALLS = 16


def attack_on(
    devices: int = 12, bad: int = 3, seed: int = 0, *, equal: bool = False, **values: Any
) -> UpdateAttack:
    """Honest updates around a mean that is not zero, and a defense with such settings."""
    rng = np.random.default_rng(seed)
    updates = (1 + rng.standard_normal((devices, DIM)) * rng.uniform(0.1, 3, DIM)).astype(
        np.float32
    )
    weights = np.ones(devices) if equal else rng.uniform(1, 9, devices)
    corrupted = np.sort(rng.choice(devices, bad, replace=False))
    values = {"corruption": "anti-median", "rho": bad / devices / 2, **values}
    settings = Settings.where_taken("tests.tiny:TASK", **values)
    return UpdateAttack(
        round=2,
        model=np.zeros(DIM, np.float32),
        updates=updates,
        weights=weights,
        corrupted=corrupted,
        rng=np.random.default_rng(5),
        aggregate=Defense(updates, weights, corrupted, settings, trusted=np.ones(DIM, np.float32)),
    )


def sent(attack: UpdateAttack, name: str) -> Any:
    return forge(BUILT_IN[name], attack, name).astype(np.float64)


def honest_of(attack: UpdateAttack) -> tuple[Any, Any]:
    keep = np.setdiff1d(np.arange(len(attack.updates)), attack.corrupted)
    return attack.updates[keep].astype(np.float64), attack.weights[keep] / attack.weights[
        keep
    ].sum()


def harm(attack: UpdateAttack, rows: Any) -> float:
    honest, shares = honest_of(attack)
    mean = shares @ honest
    return float((mean - attack.aggregate(rows)) @ mean / np.linalg.norm(mean))


def test_what_needs_no_arithmetic() -> None:
    attack = attack_on()
    honest, shares = honest_of(attack)
    assert np.array_equal(sent(attack, "sign-flip"), -attack.updates[attack.corrupted])
    assert not sent(attack, "zero-update").any()
    assert np.allclose(sent(attack, "ipm"), -EPSILON * (shares @ honest), atol=1e-6)


@pytest.mark.parametrize(
    ("devices", "corrupted", "share"),
    [(50, 24, 24 / 26), (10, 3, 4 / 7), (25, 6, 12 / 19), (9, 7, 1 / 2), (4, 1, 1 / 3)],
)
def test_the_deviations_of_a_little_is_enough(devices: int, corrupted: int, share: float) -> None:
    z = alie_deviations(devices, corrupted)
    below = (np.random.default_rng(0).standard_normal(400_000) < z).mean()
    assert below == pytest.approx(share, abs=0.005)


def test_a_little_is_enough_without_anybody_honest_or_with_one() -> None:
    assert alie_deviations(3, 3) == 0
    assert alie_deviations(2, 1) == 0


def test_a_little_is_enough_is_the_mean_less_z_sample_deviations() -> None:
    attack = attack_on(equal=True)
    honest, _ = honest_of(attack)
    z = alie_deviations(12, 3)
    assert np.allclose(sent(attack, "alie"), honest.mean(0) - z * honest.std(0, ddof=1), atol=1e-5)


def test_mimic_copies_the_honest_update_that_stands_out_most() -> None:
    attack = attack_on(seed=3)
    honest, shares = honest_of(attack)
    rows = sent(attack, "mimic")
    _, _, directions = np.linalg.svd(np.sqrt(shares)[:, None] * (honest - shares @ honest))
    assert np.array_equal(rows, np.tile(honest[np.abs(honest @ directions[0]).argmax()], (3, 1)))


@given(seed=st.integers(0, 99), equal=st.booleans())
def test_min_max_and_min_sum_go_exactly_as_far_as_they_may(seed: int, equal: bool) -> None:
    attack = attack_on(seed=seed, equal=equal)
    honest, shares = honest_of(attack)
    between = np.square(honest[:, None] - honest).sum(axis=2)
    far, summed = (
        np.square(sent(attack, name)[0] - honest).sum(axis=1) for name in ("min-max", "min-sum")
    )
    assert far.max() == pytest.approx(between.max(), rel=1e-4)
    assert summed.sum() == pytest.approx(between.sum(axis=1).max(), rel=1e-4)
    push = sent(attack, "min-max")[0] - shares @ honest
    assert (push <= 1e-5).all()


@given(seed=st.integers(0, 99), bad=st.integers(2, 8))
def test_the_anchor_sits_on_the_mean_which_is_turned_over(seed: int, bad: int) -> None:
    attack = attack_on(seed=seed, bad=bad)
    updates = attack.updates.astype(np.float64)
    before = attack.weights @ updates / attack.weights.sum()
    updates[attack.corrupted] = sent(attack, "anchor")
    mean = attack.weights @ updates / attack.weights.sum()
    scale = np.abs(updates).max()
    assert np.allclose(mean, -before, atol=1e-5 * scale)
    assert np.allclose(updates[attack.corrupted[-1]], mean, atol=1e-6 * scale)


def test_a_start_at_the_mean_stays_at_the_anchor_and_one_at_zero_at_zero() -> None:
    for name, start in (("anchor", "mean"), ("zero-update", "current")):
        attack = attack_on(start=start, aggregator="rfa")
        honest, shares = honest_of(attack)
        assert harm(attack, sent(attack, name)) > 0.9 * np.linalg.norm(shares @ honest)


@pytest.mark.parametrize("aggregator", ["fedavg", "rfa", "krum", "trimmed-mean", "norm-clipping"])
def test_the_optimized_harm_at_least_as_much_in_few_questions(aggregator: str) -> None:
    pairs = {
        "ipm-optimized": ("ipm",),
        "alie-optimized": ("alie",),
        "anti-median": ("zero-update", "anchor"),
    }
    for seed in range(5):
        attack = attack_on(seed=seed, aggregator=aggregator)
        asked: list[Any] = []

        def count(rows: Any, ask: Any = attack.aggregate, asked: list[Any] = asked) -> Any:
            asked.append(rows)
            return ask(rows)

        for name, weaker in pairs.items():
            asked.clear()
            found = harm(attack, sent(dataclasses.replace(attack, aggregate=count), name))
            assert 0 < len(asked) <= CALLS
            for other in weaker:
                assert found >= harm(attack, sent(attack, other)) * (1 - 1e-6)


@pytest.mark.parametrize("start", ["mean", "current"])
def test_the_attack_on_the_median_harms_it_more_than_the_papers(start: str) -> None:
    for seed in range(5):
        attack = attack_on(seed=seed, aggregator="rfa", start=start, nu=1e-6)
        found = harm(attack, sent(attack, "anti-median"))
        others = ("omniscient", "ipm", "alie", "mimic", "min-max", "min-sum", "sign-flip")
        assert found > max(harm(attack, sent(attack, name)) for name in others)


@pytest.mark.parametrize("name", ENTRIES)
def test_the_defense_is_the_round_and_leaves_no_trace(name: str) -> None:
    steps = 1 if name == "sgd" else 0
    attack = attack_on(aggregator=name, local_steps=steps)
    before, rows = attack.updates.copy(), np.full((3, DIM), 0.5)
    found = [attack.aggregate(rows) for _ in range(2)]
    whole = before.copy()
    whole[attack.corrupted] = rows
    defense: Any = attack.aggregate
    drawn = OTHER + defense.round  # by the server's secret, which attackers do not know
    expected, _ = aggregate(whole, attack.weights, defense.settings, drawn, trusted=defense.trusted)
    assert np.array_equal(found[0], expected.point)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(attack.updates, before)


def test_what_the_server_rejects_or_cannot_aggregate_is_no_step() -> None:
    attack = attack_on(aggregator="fedavg", max_norm=5)
    assert not attack.aggregate(np.full((3, DIM), 1e5)).any()
    assert not attack.aggregate(np.full((3, DIM), 1e300)).all()  # infinite in float32, dropped
    attack = attack_on(bad=12, aggregator="fedavg")
    assert not attack.aggregate(np.full((12, DIM), np.nan)).any()


def test_secure_sums_are_tried_in_the_clear() -> None:
    common: dict[str, Any] = {
        "aggregator": "rfa",
        "nu": 0.1,
        "start": "current",
        "devices_per_round": 12,
    }
    more = {"clip_norm": 7.0, "max_share": 0.5, "honest_per_query": 0}
    modes: list[tuple[str, Any]] = [("off", {}), ("unmasked", more)]
    clear, secure = (attack_on(secure=how, **more, **common) for how, more in modes)
    rows = np.full((3, DIM), 4.0)
    assert np.array_equal(clear.aggregate(rows), secure.aggregate(rows))


@pytest.mark.parametrize("name", sorted(set(BUILT_IN) - {"nan"}))
@pytest.mark.parametrize("honest", [0, 1, 2, 9])
def test_broken_honest_devices_do_not_break_an_attack(name: str, honest: int) -> None:
    attack = attack_on(devices=honest + 3, rho=0.2)
    good = np.setdiff1d(np.arange(honest + 3), attack.corrupted)
    if honest > 1:
        attack.updates[good[0], 3] = np.inf
        attack.updates[good[1], 5] = np.nan
    assert np.isfinite(sent(attack, name)).all()
    whole = Honest.of(attack)
    assert len(whole.rows) == max(1, honest - 2 if honest > 1 else honest)


def test_an_attack_that_asks_needs_somebody_who_answers() -> None:
    attack = attack_on()
    bare = UpdateAttack(
        attack.round, attack.model, attack.updates, attack.weights, attack.corrupted, attack.rng
    )
    assert sent(bare, "alie").any()
    with pytest.raises(AttackError, match=r"ipm-optimized failed .* its aggregate"):
        sent(bare, "ipm-optimized")


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_attack_runs_and_the_same_seed_gives_the_same(name: str) -> None:
    values = {"corruption": name, "rho": 0.25, "aggregator": "rfa", "divergence_factor": 0}
    once, again = (play(tiny_devices(**values), 2)[0] for _ in range(2))
    assert np.array_equal(once.model, again.model)
    assert not np.array_equal(once.model, play(tiny_devices(), 2)[0].model)


def test_label_flip_reverses_the_classes_of_every_task() -> None:
    x, y = np.zeros((3, 2), np.float32), np.array([0, 1, 1], np.uint8)
    for task in TASKS.values():
        found: Any = find_corruption("label-flip", task.poisons)
        assert poison(found, x, y, data_attack(62))[1].tolist() == [61, 60, 60]
        two = poison(found, x, y, data_attack(2))[1]
        assert np.array_equal(two, poison(sent140.flip, x, y, data_attack(2))[1])


def test_the_attack_on_the_median_harms_training() -> None:
    accuracy: dict[str, float] = {}
    for name in ("mimic", "omniscient", "anti-median"):
        devices = tiny_devices(
            aggregator="rfa",
            corruption=name,
            rho=0.2,
            devices_per_round=24,
            max_norm=0,
            nu=1e-6,
            start="mean",
        )
        state, _, engine = play(devices, 15)
        accuracy[name] = evaluate(state, engine).test_accuracy
    assert accuracy["anti-median"] < min(accuracy["omniscient"], accuracy["mimic"])
