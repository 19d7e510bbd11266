"""Noise in the lab: how much there is, what devices are charged, and when a budget is spent."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest

from rfa.errors import OracleStoppedError
from rfa.lab.settings.settings import Settings
from rfa.lab.simulation import secure
from rfa.lab.simulation.defense import Defense
from rfa.lab.simulation.losses import draw_losses, who_joins
from rfa.lab.simulation.meter import Meter
from rfa.lab.simulation.noise import RunNoise, most_participations, noise_of
from rfa.lab.simulation.outcome import BudgetSpentError, Outcome, RoundStoppedError
from rfa.lab.simulation.rounds import LocalEngine, State, play_round
from rfa.lab.simulation.secure import aggregate_securely
from rfa.lab.training.devices import Devices
from rfa.privacy import Charges, NoisySum, epsilon_of
from rfa.secagg import Moment, Stage
from rfa.secagg.device.machine import Device
from rfa.secagg.in_process import Losses
from tests.lab.simulation.lab import InProcess, play, tiny_devices
from tests.tiny import lax

ONE: dict[str, Any] = {"aggregator": "rfa-one-step"}
COHORT, DIM = 30, 40


def noise_for(settings: Settings, multiplier: float = 1.0, population: int = 100) -> RunNoise:
    return RunNoise(settings, DIM, population, 5, multiplier)


def settings(**values: Any) -> Settings:
    given: dict[str, Any] = {"secure": "unmasked", "noise": 1.0, "devices_per_round": COHORT}
    return Settings.where_taken("emnist-linear", **ONE | given | lax(given | values))


def updates(seed: int = 0, m: int = COHORT) -> Any:
    return (np.random.default_rng(seed).standard_normal((m, DIM)) / 8 + 0.1).astype(np.float32)


def round_of(
    chosen: Settings, t: int = 0, multiplier: float = 1.0, charges: Charges | None = None
) -> tuple[Outcome, Meter]:
    meter = Meter(noise_for(chosen, multiplier), range(COHORT), charges or Charges())
    outcome, _ = aggregate_securely(updates(t), np.ones(COHORT), chosen, t, None, meter=meter)
    return outcome, meter


# How much noise there is


def test_the_most_rounds_of_a_device_are_counted_from_the_seed() -> None:
    devices = tiny_devices(**ONE, epsilon=8, rounds=37, seed=4)
    counted = Counter(device for t in range(37) for device in devices.sample(t))
    assert most_participations(devices) == max(counted.values())
    assert max(counted.values()) < 37


@pytest.mark.parametrize(
    "values",
    [
        ONE,
        {"aggregator": "adaptive-clipping"},
        {"aggregator": "fedavg", "clip_norm": 0.5},
        {"aggregator": "rfa", "budget": 3},
        {"aggregator": "rfa", "budget": 3, "schedule": "sub-cohorts", "devices_per_round": 12},
        {**ONE, "groups": 2, "devices_per_round": 13},
        {**ONE, "dropout_rate": 0.1, "devices_per_round": 20},
        {**ONE, "noise_cohort": 800},
        {**ONE, "delta": 1e-7, "epsilon": 0.5},
    ],
)
def test_epsilon_alone_is_spent_by_all_rounds_and_no_more(values: dict[str, Any]) -> None:
    devices = tiny_devices(**{"epsilon": 8.0, "rounds": 9, **values})
    privacy = devices.settings.privacy
    state, facts, engine = play(devices, 9)
    assert state.round == 9
    found = facts[-1].epsilon_server
    assert found == state.charges.epsilon(privacy.delta)
    assert found <= privacy.epsilon
    lossless = "dropout_rate" not in values and not any(fact.stopped for fact in facts)
    if lossless and devices.settings.layout.queries == 1:
        assert found > 0.99 * privacy.epsilon, "the noise is the least that is enough"
    noise = engine.noise
    assert noise is not None
    less = dataclasses.replace(noise, multiplier=0.97 * noise.multiplier, _prices={})
    longest = noise.participations * less.round_price
    assert epsilon_of(longest, privacy.delta) > privacy.epsilon


def test_readers_are_told_as_much_as_the_dearest_of_the_rounds_tells() -> None:
    """Where devices drop out before a round, its sums are over fewer, and cost a little more."""
    devices = tiny_devices(**ONE, noise=3.0, rounds=9, dropout_rate=0.1, devices_per_round=20)
    noise = noise_of(devices)
    assert noise is not None
    terms, dim = devices.settings.secure.terms, devices.dim
    joined = {len(who_joins(range(20), draw_losses(20, devices.settings, t))) for t in range(9)}
    prices = [NoisySum(n, terms.honest(n), 3.0, dim).rho for n in joined]
    assert min(joined) < 20
    assert noise.told_price == max(prices) > noise.round_price


def test_the_noise_of_a_mean_is_what_was_asked_for() -> None:
    chosen = settings(aggregator="fedavg", clip_norm=2.0, noise=1.5)
    exact = settings(aggregator="fedavg", clip_norm=2.0, noise=0.0, weights="equal")
    off: list[Any] = []
    for t in range(60):
        noisy = round_of(chosen, t, multiplier=1.5)[0].point
        off.append(noisy - aggregate_securely(updates(t), np.ones(COHORT), exact, t)[0].point)
    parameters = chosen.secure.terms.parameters(COHORT)
    scales = NoisySum(COHORT, parameters.honest, 1.5, DIM, mass=False, near=False)
    wanted = 2.0 * scales.noise_of(COHORT) / COHORT
    assert np.std(off) == pytest.approx(wanted, rel=0.06)
    assert abs(np.mean(off)) < 5 * wanted / np.sqrt(60 * DIM)


def test_a_simulated_cohort_has_its_noise_over_fewer_devices() -> None:
    """A mean over 30 devices gets the noise that a mean over 3000 would have."""
    spread: dict[int, float] = {}
    for simulated in (0, 3000):
        chosen = settings(
            aggregator="fedavg", clip_norm=2.0, noise=1.5, noise_cohort=simulated, weights="equal"
        )
        points = [round_of(chosen, t, multiplier=1.5)[0].point for t in range(40)]
        exact = settings(aggregator="fedavg", clip_norm=2.0, noise=0.0, weights="equal")
        clear = [aggregate_securely(updates(t), np.ones(COHORT), exact, t)[0] for t in range(40)]
        spread[simulated] = float(np.std([p - c.point for p, c in zip(points, clear, strict=True)]))
    assert spread[0] / spread[3000] == pytest.approx(100, rel=0.1)


def test_a_simulated_cohort_is_charged_as_one_of_its_size() -> None:
    chosen = settings(noise=1.5, noise_cohort=3000)
    honest = chosen.secure.terms.parameters(3000).honest
    noise = noise_for(chosen, 1.5)
    assert noise.price(COHORT) == NoisySum(3000, honest, 1.5, DIM).rho
    assert noise.opened == pytest.approx(1.5 * COHORT / 3000)


def test_other_rounds_and_devices_have_other_noise_and_the_same_seed_the_same() -> None:
    chosen = settings()
    first, again = (round_of(chosen, 3)[0].point for _ in range(2))
    assert np.array_equal(first, again)
    meter = Meter(noise_for(chosen), range(COHORT), Charges())
    other, _ = aggregate_securely(updates(3), np.ones(COHORT), chosen, 4, None, meter=meter)
    assert not np.array_equal(first, other.point)
    keys = {secure.noise_key(chosen, t, row) for t in range(4) for row in range(4)}
    rounding = {secure.rounding_key(chosen, t, row) for t in range(4) for row in range(4)}
    assert len(keys) == 16
    assert not keys & rounding


# With masks and without


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"aggregator": "rfa", "budget": 3},
        {"groups": 2, "dropout_rate": 0.1},
        {"dropout_rate": 0.15, "aggregator": "rfa", "budget": 2},
        {"aggregator": "adaptive-clipping", "server_model": "malicious"},
    ],
)
def test_ring_and_protocol_give_the_same_bits_and_charges(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lab charges its devices what they charge themselves."""
    made: dict[int, Device] = {}
    original = secure.InProcess

    def keeping(devices: Any, lost: Any) -> Any:
        made.update(devices)
        return original(devices, lost)

    monkeypatch.setattr(secure, "InProcess", keeping)
    for t in range(3):
        found: list[Any] = []
        for mode in ("unmasked", "on"):
            meter = Meter(noise_for(settings(**values)), range(COHORT), Charges())
            chosen = settings(secure=mode, **values)
            try:
                outcome, after = aggregate_securely(
                    updates(t), np.ones(COHORT), chosen, t, None, meter=meter
                )
                found.append((outcome.point.tobytes(), outcome.calls, after))
            except RoundStoppedError as error:
                found += [str(error).partition(" (")[0]]
            found.append(meter.charges)
        assert found[:2] == found[2:]
        own = {row: device.spent_rho for row, device in made.items()}
        assert {row: meter.charges.of(row) for row in own} == pytest.approx(own)
        made.clear()


# Charges


def test_each_query_of_a_device_is_charged() -> None:
    once = round_of(settings())[1]
    chosen = settings(aggregator="rfa", budget=3)
    outcome, thrice = round_of(chosen)
    assert outcome.charges == thrice.charges
    assert thrice.charges.of(0) == pytest.approx(outcome.calls * noise_for(chosen).price(COHORT))
    assert once.charges.of(7) == pytest.approx(noise_for(settings()).price(COHORT))
    parts = round_of(settings(aggregator="rfa", budget=3, schedule="sub-cohorts"))[1]
    charged = [parts.charges.of(row) for row in range(COHORT)]
    assert min(charged) == max(charged) == pytest.approx(noise_for(settings()).price(10), rel=0.05)


def lose(monkeypatch: pytest.MonkeyPatch, gone: Losses) -> None:
    def drawn(*_: object) -> Losses:
        return gone

    monkeypatch.setattr(secure, "draw_losses", drawn)


def test_who_leaves_is_charged_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {
        0: Moment(0, Stage.OPEN),
        1: Moment(0, Stage.ROSTER),
        2: Moment(0, Stage.SUM),
        3: Moment(0, Stage.UNMASK),
    }
    lose(monkeypatch, gone)
    meter = round_of(settings())[1]
    price = noise_for(settings()).price(COHORT - 1)
    assert [meter.charges.of(row) for row in range(5)] == [0, 0, 0, price, price]


def test_a_round_that_opens_nothing_is_charged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {row: Moment(0, Stage.UNMASK) for row in range(20)}
    lose(monkeypatch, gone)
    chosen = settings()
    meter = Meter(noise_for(chosen), range(COHORT), Charges())
    with pytest.raises(RoundStoppedError, match="opened the sum") as stopped:
        aggregate_securely(updates(), np.ones(COHORT), chosen, 0, None, meter=meter)
    assert stopped.value.charges == meter.charges
    assert meter.charges.of(0) == meter.charges.of(29) == noise_for(chosen).price(COHORT)

    class Stopping:
        devices = tiny_devices(**ONE, noise=1.0)

        def collect(self, state: State, asked: list[int]) -> Any:
            msg = "nothing"
            raise RoundStoppedError(msg, state.charges.after(asked, 0.5))

    engine: Any = Stopping()
    state, facts = play_round(State(0, engine.devices.initial()), engine.devices, engine)
    assert facts.stopped == "nothing"
    assert state.charges.largest == 0.5
    assert facts.epsilon_server == epsilon_of(0.5, 1e-5)


def test_noise_that_nobody_charges_for_is_refused() -> None:
    with pytest.raises(ValueError, match="ask for noise: give the meter"):
        aggregate_securely(updates(), np.ones(COHORT), settings(), 0)


# Budgets


class Training(InProcess):
    """Counts how often devices trained."""

    trained = 0

    def train(self, model: Any, t: int, chosen: Any, slots: Any = None) -> Any:
        self.trained += 1
        return super().train(model, t, chosen, slots)


def test_a_round_that_would_overspend_is_refused_before_devices_train() -> None:
    devices = tiny_devices(**ONE, epsilon=8.0, noise=3.0, rounds=100)
    pool: Any = Training(devices)
    engine, state = LocalEngine(devices, pool), State(0, devices.initial())
    try:
        while True:
            state, _ = play_round(state, devices, engine)
    except BudgetSpentError as error:
        said = str(error)
    assert "epsilon=8 is spent: another round would take" in said
    assert pool.trained == state.round > 3
    assert state.charges.epsilon(1e-5) <= 8
    price = engine.noise.round_price if engine.noise else 0.0
    next_up = max(state.charges.of(device) for device in devices.sample(state.round))
    assert epsilon_of(next_up + price, 1e-5) > 8
    assert state.charges.largest == pytest.approx(
        price * max(Counter(d for t in range(state.round) for d in devices.sample(t)).values())
    )


def test_sums_over_fewer_devices_than_expected_do_not_overspend() -> None:
    """Updates that are not finite leave smaller cohorts, whose sums cost a little more."""
    chosen = settings(noise=1.0, epsilon=8.0)
    noise = noise_for(chosen)
    assert noise.budget is not None
    left = Charges(tuple((row, noise.budget.rho - 1.0001 * noise.price(30)) for row in range(30)))
    meter = Meter(noise, range(COHORT), left)
    meter.admit(0)
    broken = updates()
    broken[:20] = np.nan
    assert noise.price(10) > 1.0002 * noise.price(30)
    with pytest.raises(BudgetSpentError):
        aggregate_securely(broken, np.ones(COHORT), chosen, 0, None, meter=meter)
    assert meter.charges == left


def test_a_budget_that_cannot_be_had_says_what_would_help() -> None:
    devices = tiny_devices(**ONE, epsilon=1e-4, rounds=50)
    with pytest.raises(ValueError, match=r"epsilon=0.0001 cannot be had .* more devices per round"):
        noise_of(devices)


# A trusted server


def central(**values: Any) -> Devices:
    given: dict[str, Any] = {"noise": 0.2, "noise_model": "central", "aggregator": "fedavg"}
    return tiny_devices(**given | {"clip_norm": 0.5, **values})


def test_a_trusted_server_adds_the_noise_once() -> None:
    off: list[Any] = []
    noisy = central()
    exact = tiny_devices(aggregator="fedavg", clip_norm=0.5, weights="equal")
    model = noisy.initial()
    for t in range(60):
        outcomes = [
            LocalEngine(devices, pool).collect(State(t, model), devices.sample(t))[0]
            for devices in (noisy, exact)
            for pool in [_pool(devices)]
        ]
        off.append(outcomes[0].point - outcomes[1].point)
        assert outcomes[0].charges is None
    assert np.std(off) == pytest.approx(0.5 * 0.2 / 8, rel=0.06)


def _pool(devices: Devices) -> Any:
    return InProcess(devices)


def test_a_trusted_server_charges_nobody_and_repeats_itself() -> None:
    runs = [play(central(aggregator="adaptive-clipping", clip_norm=0), 4) for _ in range(2)]
    models = [state.model for state, _, _ in runs]
    assert np.array_equal(models[0], models[1])
    state, facts, _ = runs[0]
    assert state.charges == Charges()
    assert facts[-1].epsilon_server is None


# Attackers


def test_attackers_who_try_the_defense_see_no_noise() -> None:
    devices = tiny_devices(**ONE, noise=1.0, corruption="anti-median", rho=0.3)
    model = devices.initial()
    chosen = devices.sample(0)
    sent = np.stack([devices.train(model, 0, device) for device in chosen])
    bad = np.array([0, 1])
    tried = Defense(sent, np.ones(len(chosen)), bad, devices.settings)
    assert np.array_equal(tried(sent[bad]), tried(sent[bad]))
    plain = tiny_devices(**ONE, weights="equal")
    clear = Defense(sent, np.ones(len(chosen)), bad, plain.settings)
    assert np.allclose(tried(sent[bad]), clear(sent[bad]))


def test_stopped_rounds_are_oracle_stopped_errors() -> None:
    assert issubclass(RoundStoppedError, OracleStoppedError)
