"""What opened sums tell together: the analysis itself, and what it finds with the rules off.

What stays open with the rules on is said plainly: tests that end in `_is_a_limit`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
import pytest

from rfa import PlainOracle
from rfa._types import Floats
from rfa.aggregators import RFA, CenteredClipping, Mean, OneStepRFA
from rfa.oracle import Sum, SumOracle
from rfa.secagg.device.machine import Device
from rfa.secagg.device.profile import Profile
from rfa.secagg.errors import ExposingSumError
from rfa.secagg.fixed_point import Contribution, Encoding
from rfa.secagg.in_process import InProcess
from rfa.secagg.oracle import SecureOracle, open_round
from rfa.secagg.security.terms import Terms
from rfa.secagg.unmasked import UnmaskedOracle
from tests.secagg.opened import OpenedSum, Population, Prior, analyze, rounding_noise, spread
from tests.secagg.opened_runs import converged, opened, population, typical

LARGE = 10_000


def sample(devices: int, dim: int, seed: int = 0, weights: str = "examples") -> Population:
    truth = population(np.random.default_rng(seed), devices, dim, weights=weights)
    return Population(truth.updates / typical(truth), truth.weights)


def asked(truth: Population, budget: int, cohort: int, nu: float = 0.5) -> list[OpenedSum]:
    everyone = range(truth.shape[1])
    return opened(truth, RFA(nu=nu, budget=budget), [[everyone] * budget], cohort)


def mean_sum(members: Sequence[int], dim: int, version: int = 0) -> OpenedSum:
    """A sum at the current model, as FedAvg and evaluation ask for it."""
    noise = rounding_noise(Encoding(20).scale, len(members))
    return OpenedSum(
        np.zeros(dim), 100.0, tuple(members), noise, version=version, scalars=("weight",)
    )


def forward(truth: Population, sums: Sequence[OpenedSum], unknowns: Floats) -> Floats:
    """All that the sums open, as a function of updates and weights."""
    count, dim = truth.updates.shape[1:]
    updates, weights = unknowns[: count * dim].reshape(count, dim), unknowns[count * dim :]
    told: list[Floats] = []
    for one in sums:
        rows = list(one.members)
        total = PlainOracle(updates[rows], weights[rows])(one.v, one.nu)
        told.append(np.array([*total.push, total.mass, total.squares, total.weight]))
    return np.concatenate(told)


def slopes(truth: Population, sums: Sequence[OpenedSum]) -> Floats:
    """Its derivatives by differences."""
    at = np.concatenate([truth.updates.ravel(), truth.weights])
    steps = 1e-6 * np.eye(len(at))
    columns = [(forward(truth, sums, at + e) - forward(truth, sums, at - e)) / 2e-6 for e in steps]
    return np.stack(columns, axis=1)


def test_the_analysis_agrees_with_differences_of_the_sums_themselves() -> None:
    """With nine coordinates beyond the span of all, and members that leave."""
    truth = sample(4, 15, seed=1)
    members = [range(4), range(1, 4)]
    sums = opened(truth, RFA(nu=0.7, budget=2), [members], 5)
    rows = slopes(truth, sums)
    _, sizes, turned = np.linalg.svd(rows, full_matrices=False)
    space = turned[sizes > 1e-7 * sizes[0]]
    updates = (space[:, :60].reshape(-1, 4, 15) ** 2).sum(axis=(0, 2)) / 15
    weights = (space[:, 60:] ** 2).sum(axis=0)
    # A prior so narrow that no device may be on the other side of the kink.
    found = analyze(truth, sums, Prior(1e-3, 1e-3))
    np.testing.assert_allclose(found.updates.row_space[0], updates, atol=1e-5)
    np.testing.assert_allclose(found.weights.row_space, weights, atol=1e-5)


def test_an_attacker_with_real_sums_gets_as_near_as_the_bound_says() -> None:
    """Three honest devices, three sums over whole numbers: Gauss-Newton from a rough guess.

    Devices refuse three sums in one round of three, so that they are asked in three rounds here.
    """
    dim, terms = 12, Terms(colluder_fraction=0, max_dropout_fraction=0)
    truth = sample(3, dim, seed=2)
    truth = Population(truth.updates.astype(np.float32).astype(np.float64), truth.weights)
    brought = {
        i: Contribution(truth.updates[0, i].astype(np.float32), truth.weights[i]) for i in range(3)
    }
    sums = [
        dataclasses.replace(one, v=one.v.astype(np.float32).astype(np.float64))
        for one in asked(truth, 3, 3)
    ]
    totals = [_total(one, terms, brought, turn) for turn, one in enumerate(sums)]
    names = "mass", "squares", "weight"
    seen = np.concatenate([[*t.push, *map(t.need, names)] for t in totals])
    at = np.concatenate([truth.updates.ravel(), truth.weights])
    guess = at * (1 + 1e-3 * np.random.default_rng(0).standard_normal(len(at)))
    noise = np.concatenate([[*[one.noise] * dim, 1e-12, 1e-12, 1e-12] for one in sums])
    for _ in range(6):
        now = Population(guess[:-3].reshape(1, 3, dim), guess[-3:])
        missing = seen - forward(now, sums, guess)
        guess += np.linalg.lstsq(slopes(now, sums) / noise[:, None], missing / noise)[0]
    off = np.linalg.norm((guess - at)[:-3].reshape(3, dim), axis=1)
    errors = off / np.linalg.norm(truth.updates[0], axis=1)
    bound = analyze(truth, sums, spread(truth)).updates.error[0]
    assert (errors < 1e-3).all()
    assert 0.2 < float(np.linalg.norm(errors) / np.linalg.norm(bound)) < 5


def _total(one: OpenedSum, terms: Terms, brought: dict[int, Contribution], turn: int) -> Sum:
    keys = {device: hashlib.sha256(b"%d %d" % (device, turn)).digest() for device in brought}
    opening = open_round(1, terms, queries=1, dim=len(one.v))
    return UnmaskedOracle(opening, terms, brought, rounding=keys)(one.v, one.nu)


@pytest.mark.parametrize("seed", range(3))
def test_three_sums_over_three_honest_devices_tell_all_updates_and_counts(seed: int) -> None:
    """Four devices, one colluder."""
    truth = sample(3, LARGE, seed)
    found = analyze(truth, asked(truth, 3, cohort=4), spread(truth))
    assert found.updates.determined.all()
    assert (found.updates.error < 1e-3).all()
    assert (found.weights.error < 1e-5).all()


@pytest.mark.parametrize("seed", range(3))
def test_four_sums_over_four_honest_devices_tell_all_updates(seed: int) -> None:
    truth = sample(4, LARGE, seed)
    found = analyze(truth, asked(truth, 4, cohort=4), spread(truth))
    assert (found.updates.error < 0.01).all()


def test_rounding_alone_hides_six_devices_in_six_sums() -> None:
    """They are determined, and some of them are not seen: the rule does not rest on that."""
    truth = sample(6, LARGE)
    found = analyze(truth, asked(truth, 6, cohort=6), spread(truth)).updates
    assert found.determined.all()
    assert found.error.max() > 1
    assert found.share.min() < 0.5
    fewer = analyze(truth, asked(truth, 5, cohort=6), spread(truth)).updates
    assert not fewer.determined.any()
    assert np.isinf(fewer.error).all()


def test_two_honest_devices_give_their_distances_away() -> None:
    """Which is why three is the least: from the totals of masses and of squares."""
    two, three = (sample(count, LARGE, weights="equal") for count in (2, 3))
    found = [analyze(truth, asked(truth, 1, 4), spread(truth)) for truth in (two, three)]
    assert found[0].directions.determined.all()
    assert not found[1].directions.determined.any()


def test_a_stand_in_that_differs_by_node_tells_all_counts() -> None:
    """In evaluation, other models to each node: what they stand for is known, the weights not."""
    rng = np.random.default_rng(0)
    counts = rng.uniform(0.1, 1, 8)
    digests = np.floor(rng.uniform(0, 2**24, (1, 8, 8)))
    one = dataclasses.replace(mean_sum(range(8), 8), nu=1.0)
    known = Prior(update=0.0, weight=0.3)
    chosen = analyze(Population(digests, counts), [one], known)
    assert chosen.weights.determined.all()
    assert (chosen.weights.error < 1e-6).all()
    same = Population(np.ones((1, 8, 8)), counts)
    assert not analyze(same, [one], known).weights.determined.any()


def test_a_device_that_leaves_between_two_sums_is_told_near_convergence() -> None:
    """What the rule on drop-outs is for; of three who leave together, no one is determined."""
    truth = converged(sample(25, LARGE))
    one, three = ([range(25), range(gone, 25)] for gone in (1, 3))
    alone = analyze(truth, opened(truth, RFA(nu=0.5, budget=2), [one], 40), spread(truth))
    assert alone.metrics.determined[0, 0]
    assert alone.updates.share[0, 0] > 0.99
    together = analyze(truth, opened(truth, RFA(nu=0.5, budget=2), [three], 40), spread(truth))
    assert not together.metrics.determined.any()
    assert together.updates.share.max() < 0.9


def test_disjoint_parts_tell_no_more_than_each_by_itself() -> None:
    truth = sample(8, 30)
    parts = [[range(4)] * 2, [range(4, 8)] * 2]
    sums = [one for part in parts for one in opened(truth, RFA(nu=0.5, budget=2), [part], 4)]
    both = analyze(truth, sums, spread(truth))
    first = Population(truth.updates[:, :4], truth.weights[:4])
    alone = analyze(first, sums[:2], spread(truth))
    np.testing.assert_allclose(both.updates.share[0, :4], alone.updates.share[0], atol=1e-9)
    np.testing.assert_allclose(both.weights.share[:4], alone.weights.share, atol=1e-9)


def test_with_equal_weights_nothing_is_left_to_learn_of_counts() -> None:
    truth = sample(20, 30, weights="equal")
    found = analyze(truth, asked(truth, 1, 20), spread(truth))
    assert not found.weights.share.any()


@pytest.mark.parametrize("drift", [1e-6, 1e-3])
def test_two_rounds_from_nearly_the_same_model_is_a_limit(drift: float) -> None:
    """One node is left out, and training repeats itself but for a drift: its update is told."""
    truth = sample(20, 50)
    first = mean_sum(range(20), 50)
    second = dataclasses.replace(first, members=tuple(range(1, 20)), drift=drift)
    found = analyze(truth, [first, second], spread(truth))
    assert found.updates.determined[0].tolist() == [True] + [False] * 19
    length = float(np.linalg.norm(truth.updates[0, 0]))
    assert found.updates.error[0, 0] < 40 * drift * np.sqrt(50) / length
    assert found.weights.determined.tolist() == [True] + [False] * 19
    assert found.metrics.determined[0].tolist() == [True] + [False] * 19


def test_total_weights_of_two_rounds_that_differ_by_one_node_is_a_limit() -> None:
    """Updates and metrics are new in each round, example counts are not."""
    rng = np.random.default_rng(0)
    truth = Population(rng.standard_normal((2, 20, 10)), rng.uniform(0.1, 1, 20))
    sums = [mean_sum(range(20), 10), mean_sum(range(1, 20), 10, version=1)]
    found = analyze(truth, sums, spread(truth))
    assert found.weights.determined.tolist() == [True] + [False] * 19
    assert not found.updates.determined.any()
    assert not found.metrics.determined.any()
    equal = Population(truth.updates, np.ones(20))
    assert not analyze(equal, sums, spread(equal)).weights.share.any()


def far_devices(count: int, far: int, dim: int = LARGE) -> Population:
    """Devices within the radius 1, but for some of which the updates are 2 to 4 long."""
    rng = np.random.default_rng(far)
    lengths = np.concatenate([rng.uniform(2, 4, far), rng.uniform(0.2, 0.6, count - far)])
    updates = rng.standard_normal((count, dim))
    updates *= lengths[:, None] / np.linalg.norm(updates, axis=1, keepdims=True)
    return Population(updates[None], rng.uniform(0.5, 1, count))


@pytest.mark.parametrize("kind", [RFA(nu=1.0, budget=2), CenteredClipping(clip_norm=1.0, budget=2)])
def test_one_device_alone_beyond_the_radius_is_told_by_two_sums(
    kind: RFA | CenteredClipping,
) -> None:
    """However many devices there are: all within nu move alike, so two sums differ by the one.

    Thirty honest devices, more than the 19 that the rule asks for.
    """
    truth = far_devices(30, 1)
    found = analyze(truth, opened(truth, kind, [[range(30)] * 2], 40), spread(truth))
    assert found.updates.determined[0].tolist() == [True] + [False] * 29
    assert found.updates.error[0, 0] < 0.01
    assert found.weights.error[0] < 1e-3
    once = analyze(truth, opened(truth, kind, [[range(30)]], 40), spread(truth))
    assert not once.updates.determined.any()
    many = far_devices(30, 19)
    crowd = analyze(many, opened(many, kind, [[range(30)] * 2], 40), spread(many))
    assert crowd.updates.share.max() < 0.8


def two_sums(honest_per_query: int) -> tuple[Contribution, Sum, Sum, Floats]:
    """What a server is told of twenty devices, the first of which is alone beyond the radius."""
    terms = Terms(0, 0, honest_per_query=honest_per_query)
    truth = far_devices(20, 1, 500)
    brought = {
        i: Contribution(truth.updates[0, i].astype(np.float32), truth.weights[i]) for i in range(20)
    }
    ask = UnmaskedOracle(open_round(1, terms, queries=2, dim=500), terms, brought)
    first = ask(np.zeros(500), 1.0)
    v = (first.push / first.need("mass")).astype(np.float32).astype(np.float64)
    return brought[0], first, ask(v, 1.0), v


def test_without_the_rule_two_real_sums_tell_the_one_device_beyond_the_radius() -> None:
    """In closed form, from what a server that follows the protocol is told.

    With W, M and Q the totals of weights, masses and squares: W - M = alpha (1 - nu / r), and the
    squares of all others cancel in Q1 - Q2.
    """
    victim, first, second, v = two_sums(honest_per_query=0)
    sums = first, second
    away = [total.need("weight") - total.need("mass") for total in sums]
    squares = [total.need("squares") for total in sums]
    alpha = ((squares[0] - squares[1]) / (away[1] - away[0]) + sum(away)) / 2
    near, then = (1 - part / alpha for part in away)  # nu / r at both points
    others = (first.need("weight") - alpha) * v + alpha * then * v
    found = (first.push - second.push - others) / (alpha * (near - then))
    error = np.linalg.norm(found - victim.update) / np.linalg.norm(victim.update)
    assert abs(alpha / victim.weight - 1) < 1e-6
    assert error < 1e-3


def test_no_second_sum_is_asked_for_where_few_devices_are_beyond_the_radius() -> None:
    with pytest.raises(
        ExposingSumError, match=r"1 honest devices are sure to be beyond .* unless 8"
    ):
        two_sums(honest_per_query=16)


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize(("beyond", "sums"), [(7, 1), (8, 2), (15, 2), (16, 3)])
def test_as_many_sums_as_devices_beyond_the_radius_bear(
    beyond: int, sums: int, *, secure: bool
) -> None:
    """The real protocol and the sum without masks: 8 for a second sum, 16 for a third."""
    terms, rng = Terms(0, 0), np.random.default_rng(beyond)
    rows = rng.standard_normal((40, 6)).astype(np.float32)
    rows *= (
        np.where(np.arange(40) < beyond, 9.0, 0.1)[:, None] / np.linalg.norm(rows, axis=1)[:, None]
    )
    brought = {i: Contribution(row.astype(np.float32)) for i, row in enumerate(rows)}
    opening = open_round(1, terms, queries=3, dim=6, statistics=("mass",))
    ask: SumOracle = UnmaskedOracle(opening, terms, brought)
    if secure:
        devices = {i: Device(part, Profile(i)) for i, part in brought.items()}
        ask = SecureOracle(opening, terms, devices, InProcess(devices))
    for _ in range(sums):
        ask(np.zeros(6), 1.0)
    if sums < 3:
        with pytest.raises(ExposingSumError):
            ask(np.zeros(6), 1.0)


def test_distances_of_three_devices_of_which_one_is_within_the_radius_is_a_limit() -> None:
    """With equal weights, one sum of masses and one of squares; a mean needs neither."""
    truth = far_devices(3, 2)
    equal = Population(truth.updates, np.ones(3))
    (one,) = opened(equal, OneStepRFA(nu=1.0), [[range(3)]], 4)
    assert analyze(equal, [one], spread(equal)).directions.determined[0, :2].all()
    (mean,) = opened(equal, Mean(clip_norm=1.0), [[range(3)]], 4)
    sent = dataclasses.replace(mean, scalars=())
    assert not analyze(equal, [sent], spread(equal)).directions.determined.any()
