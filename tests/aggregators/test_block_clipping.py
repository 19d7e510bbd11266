"""Clipping block by block: what it converges to, how far anyone moves it, and what it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa._types import Floats
from rfa.aggregators import BlockClipping, Groups, OneStepRFA, build, spec_of
from rfa.aggregators.base import pack_state, unpack_state
from rfa.aggregators.block_clipping import LONGEST, RISE, SETTLED, BlockRadii
from rfa.aggregators.registry import build_private
from rfa.errors import InvalidValueError
from rfa.numerics.plain_oracle import PlainOracle
from rfa.oracle import Sum, SumOracle
from rfa.radii import LEAST_RADIUS, PER_DOUBLING, TOP_LEVEL, Radii, Radius, count_blocks, lengths_of
from rfa.secagg.oracle import open_round
from rfa.secagg.security.terms import Terms

SIZES = st.integers(1, 9)


def cloud(seed: int, devices: int = 12, dim: int = 20) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((devices, dim)), rng.uniform(0.1, 1, devices)


def radii_of(dim: int, size: int, level: int | None = None, seed: int = 0) -> Radii:
    count = count_blocks(dim, size)
    drawn = np.random.default_rng(seed).integers(120, 180, count)
    return Radii((drawn if level is None else np.full(count, level)).astype(np.uint8), size)


def state_of(radii: Radii) -> BlockRadii:
    return BlockRadii(radii.levels, np.zeros(len(radii.levels), np.int8))


def step(updates: Any, weights: Any, radii: Radii) -> Floats:
    aggregator = BlockClipping(size=radii.size)
    dim = np.shape(updates)[1]
    return aggregator([PlainOracle(updates, weights)], dim, state_of(radii))[0].point


def huber_minimizer(points: Floats, weights: Floats, nu: float) -> float:
    """Where the sum of clipped differences of one coordinate vanishes, by bisection."""
    low, high = points.min(), points.max()
    for _ in range(200):
        middle = (low + high) / 2
        pull = weights @ np.clip((points - middle) / nu, -1, 1)
        low, high = (middle, high) if pull > 0 else (low, middle)
    return float(low)


def test_many_steps_end_at_the_huber_minimizer_of_each_coordinate() -> None:
    updates, weights = cloud(1)
    updates[:3] += 50.0
    radii = radii_of(20, 1, level=156)
    v = np.zeros(20)
    for _ in range(600):
        v = v + step(updates - v, weights, radii)
    best = [huber_minimizer(column, weights, radii.nu) for column in updates.T]
    assert np.abs(v - best).max() < 1e-9
    assert np.abs(v).max() < 3


def test_one_block_of_all_coordinates_is_the_clipped_mean() -> None:
    updates, weights = cloud(2)
    radii = radii_of(20, 20, level=170)
    lengths = np.linalg.norm(updates, axis=1)
    clipped = updates * np.minimum(1, radii.nu / lengths)[:, None]
    assert np.allclose(step(updates, weights, radii), weights @ clipped / weights.sum())


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 999), size=SIZES, scale=st.sampled_from([0.0, 1.0, 1e30]))
def test_devices_with_a_share_p_move_a_block_by_at_most_p_of_its_radius(
    seed: int, size: int, scale: float
) -> None:
    updates, weights = cloud(seed)
    radii = radii_of(20, size, seed=seed)
    others = step(updates, weights, radii)
    changed = updates.copy()
    changed[:3] = scale * np.random.default_rng(seed).standard_normal((3, 20))
    share = weights[:3].sum() / weights.sum()
    moved = lengths_of(step(changed, weights, radii) - others, size)
    assert (moved <= 2 * share * radii.values * (1 + 1e-9)).all()
    gone = step(np.vstack([np.zeros((3, 20)), updates[3:]]), weights, radii)
    moved = lengths_of(step(changed, weights, radii) - gone, size)
    assert (moved <= share * radii.values * (1 + 1e-9)).all()


@pytest.mark.parametrize("size", [1, 3, 20])
def test_whatever_a_sum_holds_no_block_moves_by_more_than_its_radius(size: int) -> None:
    def liar(v: Floats, radius: Any) -> Sum:
        votes = np.full(len(radius.levels), 9.0)
        return Sum(np.full(20, -1e9), None, 1e-3, None, 9, None, votes=votes)

    radii = radii_of(20, size)
    result, after = BlockClipping(size=size)([liar], 20, state_of(radii))
    assert (lengths_of(result.point, size) <= radii.values * (1 + 1e-9)).all()
    assert (after.levels == np.maximum(radii.levels.astype(int) - LONGEST, 0)).all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), size=SIZES)
def test_the_order_of_devices_and_the_sign_do_not_matter(seed: int, size: int) -> None:
    updates, weights = cloud(seed)
    radii = radii_of(20, size, seed=seed)
    found = step(updates, weights, radii)
    order = np.random.default_rng(seed).permutation(len(updates))
    assert np.allclose(step(updates[order], weights[order], radii), found)
    assert np.allclose(step(-updates, weights, radii), -found)


def test_a_query_elsewhere_is_the_query_of_moved_updates() -> None:
    updates, weights = cloud(3)
    radii, v = radii_of(20, 4), np.random.default_rng(0).standard_normal(20)
    there = PlainOracle(updates, weights)(v, radii)
    moved = PlainOracle(updates - v, weights)(np.zeros(20), radii)
    assert np.allclose(there.push, moved.push)
    assert np.array_equal(there.votes, moved.votes)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("size", [1, 4])
def test_radii_become_the_median_length_of_each_block(size: int) -> None:
    rng, state, found = np.random.default_rng(4), None, list[Floats]()
    scales = np.repeat(10.0 ** np.arange(-4, 1), size)
    for _ in range(80):
        updates = scales * rng.standard_normal((41, 5 * size))
        _, state = BlockClipping(size=size)([PlainOracle(updates)], 5 * size, state)
        found.append(np.log2(Radii(state.levels, size).values))
    lengths = np.abs(rng.standard_normal((4000, 5, size)))
    usual = np.median(np.linalg.norm(lengths, axis=2)) * scales[::size]
    settled = np.array(found[30:]) - np.log2(usual)
    assert np.abs(settled.mean(axis=0)).max() < 1 / 4
    assert np.abs(settled).max() < 2


def test_a_settled_radius_grows_by_half_a_doubling_whatever_the_votes_are() -> None:
    state = BlockRadii.first(4, 1)
    for near in (0, 1, 0, 1, 0, 1, 0, 1):
        state = state.after(np.full(4, float(near)))
    assert (np.abs(state.strides) == 1).all()
    for near in ([0] * 5, [1] * 5, [0, 1, 0, 0, 1]):
        for vote in near:
            before = state.levels.astype(int)
            state = state.after(np.full(4, float(vote)))
            assert (np.abs(state.levels - before) <= SETTLED).all()
    assert (state.after(np.zeros(4)).after(np.zeros(4)).strides == 2).all()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_whatever_the_votes_are_a_radius_at_most_doubles(votes: list[int]) -> None:
    state = BlockRadii.first(5, 1)
    for near in votes:
        before = state.levels.astype(int)
        state = state.after(np.arange(5) / 4 * (near / 4))
        assert (state.levels <= before + PER_DOUBLING).all()


def test_radii_stay_on_the_scale() -> None:
    for near, level in ((0.0, TOP_LEVEL), (1.0, 0)):
        state = BlockRadii.first(3, 1)
        for _ in range(40):
            state = state.after(np.full(3, near))
        assert (state.levels == level).all()
    assert BlockRadii.first(10**13, 10**9).levels[0] > 0
    assert Radii(np.zeros(1, np.uint8)).nu == LEAST_RADIUS


def test_a_backdoor_that_the_median_lets_through_is_stopped() -> None:
    """A quarter changes four coordinates, which nobody else does, by less than its own length."""
    rng = np.random.default_rng(5)
    ends: dict[str, Floats] = {}
    for name in ("rfa-one-step", "block-clipping:size=4"):
        model, state, aggregator = np.zeros(80), None, build_private(name)
        for _ in range(40):
            updates = np.where(np.arange(80) < 4, 0.0, rng.normal(0.1, 1.0, (40, 80)))
            updates[:10, :4] = 2.0
            result, state = aggregator([PlainOracle(updates)], 80, state)
            model += result.point
        ends[name] = model
    median, blocks = ends.values()
    assert median[:4].min() > 5
    assert np.abs(blocks[:4]).max() < 0.05
    assert blocks[4:].mean() > median[4:].mean() / 3


def test_a_backdoor_in_coordinates_that_honest_devices_change_gets_through() -> None:
    """The counterpart: signs of a quarter there move a block by a quarter of its radius a round."""
    rng, state, model = np.random.default_rng(6), None, np.zeros(80)
    for _ in range(40):
        updates = rng.normal(0.0, 1.0, (40, 80))
        updates[:10, :4] = 1e3
        result, state = BlockClipping(size=4)([PlainOracle(updates)], 80, state)
        model += result.point
    assert model[:4].min() > 5
    assert np.abs(model[4:]).max() < 5


def test_groups_take_the_median_of_votes() -> None:
    grouped = Groups(BlockClipping(size=2), 3)
    assert grouped.block == 2

    def votes(count: float) -> SumOracle:
        told = np.array([count, 9.0 - count])

        def ask(_v: Floats, _radius: Radius) -> Sum:
            return Sum(np.zeros(4), None, 9.0, None, 9, None, votes=told)

        return ask

    _, after = grouped([votes(9), votes(9), votes(0)], 4)
    first = BlockRadii.first(4, 2).levels.astype(int)
    assert (after.levels == first + np.array([-LONGEST, RISE])).all()


def test_texts_states_and_certificates() -> None:
    assert build("block-clipping:size=3") == BlockClipping(size=3)
    assert str(spec_of(BlockClipping())) == "block-clipping:size=8"
    updates, weights = cloud(7)
    result, state = BlockClipping()([PlainOracle(updates, weights)], 20)
    assert result.certificate == pytest.approx(1 / weights.sum())
    assert result.calls == 1
    again = unpack_state(BlockClipping(), pack_state(state))
    assert np.array_equal(again.levels, state.levels)
    assert np.array_equal(again.strides, state.strides)
    assert again.levels.dtype == np.uint8
    first = unpack_state(BlockClipping(), pack_state(BlockClipping().init()))
    assert not len(first.levels)


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(InvalidValueError, match="size must be"):
        BlockClipping(size=0)
    with pytest.raises(InvalidValueError, match="take rfa-one-step"):
        BlockClipping().check_noise()
    with pytest.raises(InvalidValueError, match="5 radii, not 20"):
        step(np.zeros((3, 20)), None, Radii(np.zeros(20, np.uint8), 4))
    with pytest.raises(InvalidValueError, match="a vector of uint8"):
        Radii(np.zeros(3))  # pyright: ignore[reportArgumentType]
    zero = Sum(np.zeros(2), None, 0.0, None, 0, None, votes=np.zeros(1))
    with pytest.raises(InvalidValueError, match="nothing to average"):
        BlockClipping()([lambda v, radius: zero], 2)
    OneStepRFA().check_noise()


def test_a_block_larger_than_the_update_is_all_of_it_and_takes_no_memory() -> None:
    updates, weights = cloud(3)
    whole = step(updates, weights, radii_of(20, 20))
    for size in (21, 10**6, 2**32 - 1):  # 34 GB, if each coordinate of a block took some
        assert np.array_equal(step(updates, weights, radii_of(20, size)), whole)


@pytest.mark.parametrize("size", [2**32, 10**23])
def test_a_block_that_no_update_has_is_refused(size: int) -> None:
    with pytest.raises(InvalidValueError, match=rf"size must be below 2\^32, not {size}"):
        BlockClipping(size=size)
    with pytest.raises(InvalidValueError, match=r"block must be below 2\^32"):
        open_round(1, Terms(), queries=1, dim=3, statistics={"weight"}, block=size)
