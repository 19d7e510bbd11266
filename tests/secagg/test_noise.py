"""Noise in a sum: which rounds can have it, whose it is, and how much of it is in a total."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rfa.secagg.errors import (
    AbortError,
    AskedTwiceError,
    CohortError,
    NotCanonicalError,
    ParameterError,
    WeakTermsError,
)
from rfa.secagg.fixed_point import Contribution, EncodedInput, Encoding
from rfa.secagg.messages.opening import OpenRound
from rfa.secagg.messages.round import Roster, SumRequest
from rfa.secagg.messages.stages import Moment, Stage
from rfa.secagg.noise import least_charge, noisy_sum
from rfa.secagg.oracle import open_round
from rfa.secagg.security.parameters import derive
from rfa.secagg.security.terms import Terms
from rfa.secagg.statistics import mask_of, rows_of
from rfa.secagg.transcript import noise_key, rounding_key
from rfa.secagg.unmasked import UnmaskedOracle
from tests.secagg.attack import NU, altered, reach, refuses
from tests.secagg.party import MALICIOUS, SMALL, Party, equals, party, same

ZERO = np.zeros(0, np.float32)
KEY, NOISE = bytes(range(16)), bytes(range(16, 32))
TOTALS = mask_of(("mass", "near"))
TERMS = Terms(colluder_fraction=0.3, max_dropout_fraction=0.3, min_honest_fraction=0.2)


def names(opening: OpenRound) -> set[str]:
    return {row.name for row in rows_of(opening.statistics)}


def opened(**how: Any) -> OpenRound:
    options: dict[str, Any] = {"queries": 1, "dim": 3, "equal_weights": True, "noise": 1.2} | how
    return open_round(1, SMALL, **options)


def test_squares_and_weights_are_not_sent_in_them() -> None:
    assert names(opened()) == {"mass", "near", "count"}
    assert names(opened(statistics=("squares", "weight"))) == {"count"}


def test_how_many_are_near_is_sent_where_it_is_read_alone() -> None:
    """A further query does not depend on it, and each total is charged."""
    assert names(opened(queries=3, statistics=("mass",))) == {"mass", "count"}
    assert names(opened(queries=3, statistics=("mass",), noise=0)) == {"mass", "near", "count"}


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"equal_weights": False}, "of equal weight: give equal_weights=True"),
        ({"metrics": 2}, "2 metrics would be summed without it: give metrics=0"),
        ({"max_share": 0.5}, r"max_share=0\.5 limits are of exact sums: give max_share=0"),
        ({"noise": -1.0}, "noise must be a number from 0 on, not -1"),
        ({"noise": math.nan}, "noise must be a number"),
        ({"noise": math.inf}, "noise must be a number"),
        ({"noise": "1"}, "noise must be a number"),
    ],
)
def test_contradictions_are_refused_with_the_remedy(how: dict[str, Any], why: str) -> None:
    with pytest.raises(ParameterError, match=why):
        opened(**how)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"noise": -1.2}, "noise=-1.2: a multiplier is 0 for none, or positive"),
        ({"metrics": 1}, "1 metrics would be summed without it"),
        ({"max_share": 0.5}, "give max_share=0"),
        ({"statistics": mask_of(("mass", "squares"))}, "the totals squares would be summed"),
        ({"equal_weights": 0}, "of equal weight: give equal_weights=True"),
    ],
)
def test_devices_refuse_contradictions_by_name(changes: dict[str, Any], why: str) -> None:
    part = Contribution(np.ones(3, np.float32), metrics=(1.0,), equal_weights=True)
    table = party(dict.fromkeys(range(6), part), noise=0)
    request = dataclasses.replace(opened(), **changes).encode()
    refuses(table.devices[3], request, NotCanonicalError, why)
    assert table.devices[3].receive(opened().encode())


def test_the_charge_is_more_than_its_bound_before_the_cohort_is_known() -> None:
    for n, z, dim in ((6, 0.3, 1), (100, 1.2, 7850), (1000, 6.4, 10**6), (20, 0.01, 3)):
        opening, parameters = opened(dim=dim, noise=z), derive(n, num_colluders=1, num_dropouts=1)
        scales = noisy_sum(opening, parameters)
        assert scales is not None
        assert scales.rho > least_charge(opening.noise) == pytest.approx(1 / (2 * z * z))
    assert least_charge(0.0) == 0
    assert least_charge(5e-324) == math.inf


@pytest.mark.parametrize(("noise", "why"), [(1e-8, "too little"), (1e7, "leaves no digits")])
def test_noise_that_does_not_fit_the_cohort_ends_the_round(noise: float, why: str) -> None:
    table = party(6, noise=noise)
    with pytest.raises(AbortError, match=f"6 devices joined the round: .*{why}"):
        table.oracle()
    with pytest.raises(AbortError, match=f"6 devices joined the round: .*{why}"):
        table.unmasked()


@pytest.mark.parametrize("noise", [1e-8, 1e7, 1e300, 5e-324])
def test_devices_refuse_noise_that_does_not_fit_the_cohort(noise: float) -> None:
    table = party(6, noise=1.0)
    table.opening = dataclasses.replace(table.opening, noise=noise)
    device = table.devices[5]
    device.receive(table.opening.encode())
    roster = reach(party(6, noise=1.0), Roster)[5]
    changed = altered(roster, session=table.opening.session)
    refuses(device, changed, WeakTermsError, "the noise does not fit the parameters")


def test_a_device_that_was_told_of_other_noise_is_not_in_the_cohort() -> None:
    """Its leaf is another, so that no less noise than it was told of can be opened."""
    table = party(6, noise=1.0)
    device = table.devices[5]
    device.receive(dataclasses.replace(table.opening, noise=2.0).encode())
    table.devices[5] = party(6, noise=1.0).devices[5]
    refuses(device, reach(table, Roster)[5], CohortError)


@pytest.mark.parametrize("terms", [SMALL, MALICIOUS], ids=["semi_honest", "malicious"])
@pytest.mark.parametrize("lost", [{}, {5: Moment(0, Stage.SUM)}, {16: Moment(0, Stage.UNMASK)}])
def test_with_masks_and_without_them_totals_are_the_same_to_the_bit(
    terms: Terms, lost: dict[int, Moment]
) -> None:
    table = party(equals(10, 40), terms, queries=2, lost=lost, noise=0.7)
    ask, bare = table.oracle(), table.unmasked()
    for v in (np.zeros(40), np.full(40, 0.1)):
        try:
            total = ask(v, NU)
        except AbortError:
            with pytest.raises(AbortError):
                bare(v, NU)
            break
        assert total.noise == bare(v, NU).noise > 0
        assert same(ask.last, bare.last)
        assert ask.last is not None
        assert ask.last.metrics == ()


def test_noise_is_fresh_in_every_masked_sum_round_and_device() -> None:
    """The same updates at the same point: only the noise and the rounding differ."""
    parts = {
        name: Contribution(np.zeros(5000, np.float32), equal_weights=True) for name in range(6)
    }
    pushes: list[NDArray[np.float64]] = []
    for number in (1, 2):
        ask = party(parts, queries=2, noise=1.0, number=number).unmasked()
        pushes += [ask(np.zeros(5000), NU).push for _ in range(2)]
    fresh = party(parts, noise=1.0)
    pushes.append(UnmaskedOracle(fresh.opening, SMALL, parts)(np.zeros(5000), NU).push)
    for index, one in enumerate(pushes):
        for other in pushes[:index]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(5000)
    again = party(parts, queries=2, noise=1.0).unmasked()
    assert np.array_equal(again(np.zeros(5000), NU).push, pushes[0]), "given keys repeat"


def test_the_key_of_the_noise_is_not_that_of_the_rounding() -> None:
    """Nor is its secret, which the operating system gives by itself."""
    keys = [derived(KEY * 2, index) for index in (0, 1) for derived in (noise_key, rounding_key)]
    assert len(set(keys)) == 4
    table = party(6, noise=1.0, queries=2)
    device = table.devices[5]
    device._noise = device._rounding = None  # pyright: ignore[reportPrivateUsage]
    drawn: list[bytes] = []

    def draw(size: int) -> bytes:
        drawn.append(bytes([len(drawn)]) * size)
        return drawn[-1]

    device._entropy = draw  # pyright: ignore[reportPrivateUsage]
    device.receive(table.opening.encode())
    assert device.memory.noise != device.memory.rounding
    assert {device.memory.noise, device.memory.rounding} <= set(drawn)
    assert len(set(drawn)) == len(drawn)


def test_the_secret_of_the_noise_is_dropped_when_it_is_used() -> None:
    table = party(6, noise=1.0, queries=2)
    device, gone = table.devices[5], bytes(32)
    device.receive(reach(table, SumRequest)[5])
    assert device.memory.noise != gone
    table = party(6, noise=1.0, queries=2)
    device = table.devices[5]
    request = reach(table, SumRequest, masked_sum=1)[5]
    assert device.memory.noise != gone
    device.receive(request)
    assert device.memory.noise == gone
    plain = party(6)
    plain.devices[5].receive(plain.opening.encode())
    assert plain.devices[5].memory.noise == gone, "without noise there is none"


def parts_of(table: Party, who: list[int]) -> list[EncodedInput]:
    """What devices add to the first sum at zero, without masks."""
    encoding = Encoding.of(table.opening, table.terms.parameters(len(table.parts)))
    found: list[EncodedInput] = []
    for device in who:
        part = table.parts[device]
        assert part is not None
        keys = rounding_key(table.rounding[device], 0), noise_key(table.noise[device], 0)
        found.append(encoding.encode(part, ZERO, NU, keys[0], noise=keys[1]))
    return found


def test_without_drop_outs_and_colluders_the_promised_noise_is_left() -> None:
    """The noise of colluders is known to the server, and that of drop-outs is not there."""
    dim, z = 40_000, 1.3
    parts = {
        name: Contribution(np.zeros(dim, np.float32), equal_weights=True) for name in range(10)
    }
    lost = {device: Moment(0, Stage.SUM) for device in (0, 1, 2)}
    table = party(parts, TERMS, noise=z, lost=lost)
    ask = table.unmasked()
    total = ask(np.zeros(dim), NU)
    parameters = ask.parameters
    assert (parameters.num_dropouts, parameters.num_colluders, parameters.honest) == (3, 3, 4)
    scales = noisy_sum(table.opening, parameters)
    assert scales is not None
    left = np.rint(total.push * scales.scale)
    left -= sum(part.words.view(np.int32) for part in parts_of(table, [3, 4, 5]))
    spread = math.sqrt(float((left**2).mean())) / scales.scale
    assert spread == pytest.approx(z, rel=4 / math.sqrt(2 * dim))
    assert spread > z * (1 - 4 / math.sqrt(2 * dim))
    assert total.noise == scales.noise_of(7) == pytest.approx(z * math.sqrt(7 / 4), rel=1e-3)
    assert total.push.std() == pytest.approx(total.noise, rel=4 / math.sqrt(2 * dim))


def test_noise_in_the_real_protocol_is_as_much() -> None:
    parts = {
        name: Contribution(np.zeros(20_000, np.float32), equal_weights=True) for name in range(6)
    }
    total = party(parts, noise=0.9).oracle()(np.zeros(20_000), NU)
    assert total.noise > 0.9
    assert total.push.std() == pytest.approx(total.noise, rel=4 / math.sqrt(40_000))


def test_totals_are_right_but_for_the_noise() -> None:
    """The mass and how many are near among them, on scales of their own."""
    z, dim, count = 0.05, 30, 50
    parts = equals(count, dim)
    terms = Terms(colluder_fraction=0, max_dropout_fraction=0)
    exact = party({n: dataclasses.replace(p, equal_weights=False) for n, p in parts.items()}, terms)
    wanted = exact.unmasked()(np.zeros(dim), 3.0)
    off = {"push": list[float](), "mass": list[float](), "near": list[float]()}
    for number in range(1, 41):
        table = party(parts, terms, noise=z, number=number)
        found = table.unmasked()(np.zeros(dim), 3.0)
        assert (found.count, found.weight, found.squares) == (count, count, None)
        assert found.mass is not None
        assert found.near is not None
        off["push"] += ((found.push - wanted.push) / z).tolist()
        off["mass"].append((found.mass - (wanted.mass or 0)) / (3 * z))
        off["near"].append((found.near - (wanted.near or 0)) / (10 * z))
    for name, values in off.items():
        bound = 4 / math.sqrt(len(values))
        assert abs(np.mean(values)) < bound, name
        assert np.std(values) == pytest.approx(1, abs=bound), name


def test_another_sum_does_not_depend_on_how_many_are_said_to_be_near() -> None:
    """Noise hides those beyond the radius, whoever they are, and each sum is charged."""
    parts = equals(40, 3)
    terms = Terms(colluder_fraction=0.1, max_dropout_fraction=0.1)
    table = party(parts, terms, queries=2, noise=2.0)
    ask, bare = table.oracle(), table.unmasked()
    for _ in range(2):  # all are within the radius
        assert ask(np.zeros(3), 1e4).noise
        bare(np.zeros(3), 1e4)
    assert same(ask.last, bare.last)


def test_a_masked_sum_gets_its_noise_once() -> None:
    """Two answers of the same noise to different requests would tell their difference."""
    table = party(6, noise=1.0)
    request = reach(table, SumRequest)[5]
    reply = table.devices[5].receive(request)
    assert table.devices[5].receive(request) == reply
    for changes in ({"nu": 9.0}, {"v": np.full(3, 2, "<f4")}):
        refuses(table.devices[5], altered(request, **changes), AskedTwiceError)
