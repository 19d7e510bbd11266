"""What a server that is curious, or chooses radii, learns of single devices in blocks."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from rfa._types import Floats
from rfa.aggregators.block_clipping import BlockRadii
from rfa.radii import LEAST_RADIUS, Radii, count_blocks
from rfa.secagg.errors import AskedTwiceError, NotCanonicalError, ParameterError
from rfa.secagg.fixed_point import Contribution, Encoding
from rfa.secagg.oracle import open_round
from rfa.secagg.statistics import mask_of
from rfa.secagg.words import WORD
from tests.secagg.attack import TERMS, altered, refuses
from tests.secagg.fast_round import first_sum
from tests.secagg.party import SMALL, contributions, equals, party

ZERO = np.empty(0, np.float32)
TINY = 0


def opened(updates: Floats, weights: Floats, radii: Radii, seed: int = 0) -> tuple[Floats, Floats]:
    """The push and the votes of a sum as the server decodes it."""
    rng, (count, dim) = np.random.default_rng(seed), updates.shape
    coder = Encoding(count, mask_of({"weight"}), block=radii.size)
    words = np.zeros(dim, WORD)
    for update, weight in zip(updates.astype(np.float32), weights, strict=True):
        part = Contribution(update, float(weight))
        words += coder.encode(part, ZERO, radii, rng.bytes(16)).words
    found: Any = coder._vectors(words)  # pyright: ignore[reportPrivateUsage]
    return found["push"], found["votes"]


def even(dim: int, size: int, level: int) -> Radii:
    return Radii(np.full(count_blocks(dim, size), level, np.uint8), size)


def weights_in(push: Floats, total: float, digits: float) -> list[float]:
    """The weights whose sums with signs these are, from nothing but the sums.

    Where one device alone is negative, the sum falls short of the total by twice its weight. The
    least shortfall that is no sum of those found before is that of the next device.
    """
    found: list[float] = []
    known = np.zeros(1)
    for short in np.sort(total - push) / 2:
        if np.abs(known - short).min() > digits:
            found.append(short)
            known = np.concatenate([known, known + short])
    return found


def signs_in(push: Floats, weights: list[float]) -> Floats:
    """The signs with which the weights add up to each sum, nearest."""
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=len(weights))))
    sums = signs @ weights
    return signs[np.abs(sums[:, None] - push).argmin(axis=0)].T


@pytest.mark.parametrize("first_round", [False, True])
def test_in_blocks_of_one_coordinate_weights_tell_whose_sign_is_which(first_round: bool) -> None:
    """What the rule is for: one exact sum gives the sign of every coordinate of every update.

    Radii need not be chosen for it: in the first round they are far below long updates.
    """
    rng, (count, dim) = np.random.default_rng(1), (6, 1500)
    updates, weights = 5 * rng.standard_normal((count, dim)), np.sort(rng.uniform(0.1, 1, count))
    radii = Radii(BlockRadii.first(dim, 1).levels) if first_round else even(dim, 1, TINY)
    push, _ = opened(updates, weights, radii)
    beyond = (np.abs(updates) > radii.values).all(axis=0)
    assert beyond.mean() > 0.99
    learned = weights_in(push[beyond], weights.sum(), 1e-5)
    assert np.abs(np.array(learned) - weights).max() < 1e-6
    assert np.array_equal(signs_in(push, learned)[:, beyond], np.sign(updates[:, beyond]))


@pytest.mark.parametrize(("dim", "block"), [(5, 1), (9, 8), (1, 8), (7, 3)])
def test_servers_and_devices_refuse_blocks_of_one_coordinate_unless_weights_are_equal(
    dim: int, block: int
) -> None:
    usual: dict[str, Any] = {"queries": 1, "dim": dim, "statistics": {"weight"}}
    with pytest.raises(ParameterError, match=r"whose sign is which: give equal weights"):
        open_round(1, SMALL, block=block, **usual)
    assert open_round(1, SMALL, block=block, equal_weights=True, **usual).block == block
    table = party(contributions(9, dim, metrics=0))
    device = next(iter(table.devices.values()))
    forged = dataclasses.replace(table.opening, block=block, statistics=mask_of({"weight"}))
    with pytest.raises(NotCanonicalError, match="whose sign is which"):
        device.receive(forged.encode())


def test_with_equal_weights_a_push_of_signs_is_a_count_and_no_more() -> None:
    """Whoever changes places with whom, the sum is the same to the bit.

    It is exact: where all agree, it is proof of the sign of each. With h honest devices whose signs
    are coins, that is one coordinate of 2^(h - 1).
    """
    rng, (count, dim) = np.random.default_rng(2), (5, 4000)
    updates, ones = rng.standard_normal((count, dim)), np.ones(count)
    push, _ = opened(updates, ones, even(dim, 1, TINY))
    mixed = rng.permuted(updates, axis=0)
    assert not np.array_equal(np.sign(mixed), np.sign(updates))
    assert np.array_equal(opened(mixed, ones, even(dim, 1, TINY), seed=1)[0], push)
    agreed = np.abs(push) == count
    assert np.array_equal(agreed, (np.sign(updates) == np.sign(updates[0])).all(axis=0))
    assert agreed.mean() == pytest.approx(2.0 ** (1 - count), abs=0.01)


@pytest.mark.parametrize("first_sign", [1.0, -1.0])
def test_in_blocks_of_two_any_sign_explains_the_sum(first_sign: float) -> None:
    """Three devices beyond the radius: others with other signs have the same sum."""
    weights = np.array([0.3, 0.7, 0.9])
    angles = np.array([0.4, 2.2, 4.6])
    total = weights @ np.column_stack([np.cos(angles), np.sin(angles)])
    explained = 0
    for angle in np.linspace(0, 2 * np.pi, 100):
        first = np.array([np.cos(angle), np.sin(angle)])
        rest = total - weights[0] * first
        if np.sign(first[0]) != first_sign or not _reachable(rest, weights[1:]):
            continue
        others = _two_circles(rest, weights[1:])
        push, _ = opened(np.vstack([first, others]), weights, even(2, 2, TINY))
        assert push == pytest.approx(total, abs=1e-6)
        explained += 1
    assert explained > 10


def _reachable(rest: Floats, lengths: Floats) -> bool:
    return abs(lengths[0] - lengths[1]) < float(np.linalg.norm(rest)) < lengths.sum()


def _two_circles(rest: Floats, lengths: Floats) -> Floats:
    """Two vectors of length 1 that add up to the rest, each times a length."""
    far = float(np.linalg.norm(rest))
    along = (far**2 + lengths[0] ** 2 - lengths[1] ** 2) / (2 * far * lengths[0])
    unit = rest / far
    one = along * unit + math.sqrt(1 - along**2) * np.array([-unit[1], unit[0]])
    return np.vstack([one, (rest - lengths[0] * one) / lengths[1]])


@pytest.mark.parametrize("size", [1, 4])
def test_two_rounds_of_the_same_updates_with_radii_around_one_device_is_a_limit(size: int) -> None:
    """A server that chooses radii takes the longest part of each block out of two sums.

    It needs nobody to leave: devices that train to nearly the same twice are enough. What one sum
    clips, and the other does not, is of the one device that is longer than the radius.
    """
    rng, (count, blocks) = np.random.default_rng(3), (12, 40)
    updates = rng.standard_normal((count, blocks * size))
    lengths = np.linalg.norm(updates.reshape(count, blocks, size), axis=2)
    second, longest = np.sort(lengths, axis=0)[-2:]
    ratio = np.ceil(8 * np.log2(second / LEAST_RADIUS)).astype(np.uint8)
    between = Radii(ratio, size)
    singled = (second <= between.values) & (between.values < longest)
    assert singled.sum() > 10
    beyond = Radii(np.full(blocks, 200, np.uint8), size)
    sums = [
        (opened(updates, np.ones(count), radii)[0].reshape(blocks, size).T * radii.values).T
        for radii in (between, beyond)
    ]
    cut = sums[1] - sums[0]
    short = np.linalg.norm(cut, axis=1)
    found = cut * (1 + between.values / np.maximum(short, 1e-12))[:, None]
    victims = lengths.argmax(axis=0)
    true = updates.reshape(count, blocks, size)[victims, np.arange(blocks)]
    errors = np.linalg.norm(found - true, axis=1)[singled]
    assert np.median(errors / longest[singled]) < 0.01


def test_a_second_roster_is_asked_with_the_radii_of_the_first() -> None:
    """Else the two sums, of which both could be opened somehow, are at radii around one device."""
    radii = Radii(np.array([160, 161, 162], np.uint8))
    table = party(equals(10, 3), TERMS, fast=True, block=1)
    at = first_sum(table=table, point=np.zeros(3), radius=radii).regroup()
    at.deliver()
    at.ask(at.server.ask(np.zeros(3), radii))
    other = altered(at.request, levels=bytes([160, 161, 163]))
    refuses(at.victim, other, AskedTwiceError, "with another roster")
    at.victim.receive(at.request)


def votes_of(near: int, far: int) -> Floats:
    """The probability of each count of yes among honest devices of whom these are within."""
    chances = np.ones(1)
    for yes in [3 / 4] * near + [1 / 4] * far:
        chances = np.convolve(chances, [1 - yes, yes])
    return chances


@pytest.mark.parametrize("honest", [3, 4, 7, 16, 60])
def test_a_count_tells_at_most_log_3_of_a_device_and_on_average_little(honest: int) -> None:
    """What is known of the votes of one device to who knows all others, but for their coins."""
    for others in range(honest):
        within = votes_of(others + 1, honest - 1 - others)
        beyond = votes_of(others, honest - others)
        loss = np.log(within / beyond)
        assert np.abs(loss).max() == pytest.approx(math.log(3))  # if all say the same
        assert max(within @ loss, -beyond @ loss) < 0.8 / honest


@pytest.mark.parametrize("votes", [1, 30, 300])
def test_many_votes_about_the_same_tell_what_one_does_not(votes: int) -> None:
    """Coins are for one block of one round: facts that last show, as the square root of votes.

    Of ten honest devices the server knows nine, and asks whether the tenth is within the radius.
    """
    honest, trials, mistakes = 10, 400, 0
    chance = math.erfc(math.sqrt(votes / (6 * honest))) / 2  # 0.43, 0.16 and 0.001
    for trial in range(trials):
        updates = np.where(np.arange(honest)[:, None] < 5, 100.0, np.zeros((honest, votes)))
        updates[-1] = 100.0 * (trial % 2)
        _, counts = opened(updates, np.ones(honest), even(votes, 1, 160), seed=trial)
        likely = counts.mean() < (4 + 5) / 2 * 3 / 4 + (6 + 5) / 2 / 4
        mistakes += likely != trial % 2
    assert mistakes / trials == pytest.approx(chance, abs=0.08)


def test_a_block_of_thousands_of_millions_takes_no_memory() -> None:
    """The size of a block is the server's word: what is longer than the update is one block."""
    radii = Radii(np.array([160], np.uint8), (1 << 32) - 1)
    tracemalloc.start()
    try:
        push, near = radii.push(np.ones(1000))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert np.linalg.norm(push) == pytest.approx(1.0)
    assert not near.any()
    table = party(contributions(9, 3, metrics=0), block=(1 << 32) - 1)
    total = table.oracle()(np.zeros(3), Radii(np.array([160], np.uint8), (1 << 32) - 1))
    assert total.count == 9
    with pytest.raises(ParameterError, match="block must be below"):
        open_round(1, SMALL, queries=1, dim=3, statistics={"weight"}, block=1 << 32)
