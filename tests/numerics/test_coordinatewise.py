"""The median and the trimmed mean of each column, against slow references in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfa.numerics import coordinatewise as columns
from rfa.numerics.coordinatewise import (
    column_mean_near_median,
    column_median,
    column_trimmed_mean,
    inner_products,
)
from rfa.numerics.points import read_points

DTYPES: list[Any] = [np.float16, np.float32, np.float64]
Pairs = list[tuple[int, int]]


def slow_median(pairs: Pairs) -> Fraction:
    """The weighted median of (value, weight) pairs, walking through the weight one by one."""
    line = [value for value, weight in sorted(pairs) for _ in range(weight)]
    return Fraction(line[(len(line) - 1) // 2] + line[len(line) // 2], 2)


def slow_trimmed_mean(pairs: Pairs, share: Fraction) -> Fraction:
    """The mean of what is left of the weight between share and 1 - share."""
    total = sum(weight for _, weight in pairs)
    low, high = share * total, (1 - share) * total
    position, sum_inside = Fraction(0), Fraction(0)
    for value, weight in sorted(pairs):
        inside = min(position + weight, high) - max(position, low)
        sum_inside += value * max(inside, Fraction(0))
        position += weight
    return sum_inside / (high - low)


def slow_mean_near_median(pairs: Pairs, count: int) -> Fraction:
    """The mean of the values nearest to the median, of two at one distance the lower first."""
    middle = slow_median(pairs)
    nearest = sorted(pairs, key=lambda pair: (abs(pair[0] - middle), pair))[:count]
    total = sum(weight for _, weight in nearest)
    return Fraction(sum(value * weight for value, weight in nearest), total)


def weighted_pairs() -> st.SearchStrategy[Pairs]:
    """A few values with ties, and small weights that often split in halves."""
    return st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 4)), min_size=1, max_size=9)


def split(pairs: Pairs, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """The values as m rows of one column, and weights that sum to one, with rounding."""
    values, weights = np.array(pairs).T
    return values[:, None].astype(dtype), weights / weights.sum()


def cloud(m: int, d: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((m, d)).astype(dtype)


def draw_rows(rng: np.random.Generator, kind: str, m: int, dtype: Any) -> np.ndarray:
    """Rows of normal numbers: rounded, repeated, or from next to nothing to huge."""
    rows = rng.standard_normal((m, rng.choice([1, 5, columns.NARROW - 1, 2 * columns.NARROW])))
    if kind == "ties":
        rows = rows.round()
    if kind == "repeated":
        rows = rows[rng.integers(m, size=m).clip(max=m // 2)]
    if kind == "extreme":
        rows *= 10.0 ** rng.uniform(*((-3, 3) if dtype == np.float16 else (-30, 30)), rows.shape)
    return rows.astype(dtype)


def draw_weights(rng: np.random.Generator, kind: str, rows: np.ndarray) -> np.ndarray:
    """Weights of about one, small integers, or of all sizes, the same for the same rows."""
    weights = {
        "random": rng.random(len(rows)),
        "integers": rng.integers(1, 5, len(rows)),
        "uneven": 10.0 ** rng.uniform(-9, 3, len(rows)),
    }[kind]
    _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return weights[first[which]].astype(np.float64)


def plain_median(values: np.ndarray, weights: np.ndarray) -> Any:
    """The weighted median of sorted values, in their type."""
    below = weights.cumsum() / weights.sum()
    lower = int(np.argmax(below >= 1 / 2 - columns.SLACK))
    upper = lower + int(below[lower] <= 1 / 2 + columns.SLACK)
    return values[lower] / 2 + values[upper] / 2 if lower < upper else values[lower]


def plain_kept(weights: np.ndarray, fraction: float) -> np.ndarray:
    """The weights of sorted values that are left without a fraction at each end."""
    below = weights.cumsum() / weights.sum()
    kept = np.diff(below.clip(fraction, 1 - fraction), prepend=fraction)
    return np.where(kept < columns.SLACK, 0, kept)


def plain_nearest(values: np.ndarray, middle: Any, count: int) -> slice:
    """Where the nearest of sorted values are: the farther of both ends goes, one after another."""
    start, stop = 0, len(values)
    while stop - start > count:
        if values[stop - 1] - middle < middle - values[start]:
            start += 1
        else:
            stop -= 1
    return slice(start, stop)


def check_mean(result: Any, values: np.ndarray, weights: np.ndarray, dtype: Any) -> None:
    """A mean is right to some digits of the largest of its values."""
    close = (8 * float(np.finfo(dtype).eps) + 1e-13) * float(np.abs(values[weights > 0]).max())
    expected = np.average(values.astype(np.float64), weights=weights)
    assert result == pytest.approx(expected, rel=0, abs=close)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    m=st.integers(1, 40),
    kind=st.sampled_from(["plain", "ties", "repeated", "extreme"]),
    weighing=st.sampled_from(["random", "integers", "uneven"]),
    fraction=st.sampled_from([0.0, 0.1, 0.25, 0.45]),
)
def test_all_three_are_those_of_plain_code_for_each_column(
    *, dtype: Any, seed: int, m: int, kind: str, weighing: str, fraction: float
) -> None:
    rng = np.random.default_rng(seed)
    rows = draw_rows(rng, kind, m, dtype)
    weights = draw_weights(rng, weighing, rows)
    count = int(rng.integers(1, m + 1))
    medians = column_median(rows, weights)
    trimmed = column_trimmed_mean(rows, weights, fraction)
    near = column_mean_near_median(rows, weights, count)
    for j, column in enumerate(rows.astype(np.result_type(dtype, np.float32)).T):
        order = column.argsort(kind="stable")
        values, ranked = column[order], weights[order]
        middle = plain_median(values, ranked)
        assert medians[j] == middle.astype(dtype)
        check_mean(trimmed[j], values, plain_kept(ranked, fraction), dtype)
        nearest = plain_nearest(values, middle, count)
        if not np.isin(np.delete(values, nearest), values[nearest]).any():  # else either is nearer
            check_mean(near[j], values[nearest], ranked[nearest], dtype)


def test_adding_up_by_rank_or_by_column_gives_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, weights = cloud(60, 300), np.random.default_rng(5).random(60)
    statistics = (
        lambda: column_median(rows, weights),
        lambda: column_trimmed_mean(rows, weights, 0.2),
        lambda: column_mean_near_median(rows, weights, 45),
    )
    by_rank = [statistic() for statistic in statistics]
    monkeypatch.setattr(columns, "NARROW", 301)
    np.testing.assert_array_equal([statistic() for statistic in statistics], by_rank)


@pytest.mark.parametrize("dtype", DTYPES)
@given(pairs=weighted_pairs())
def test_median_is_that_of_the_slow_reference(dtype: Any, pairs: Pairs) -> None:
    rows, weights = split(pairs, dtype)
    assert column_median(rows, weights)[0] == slow_median(pairs)


@pytest.mark.parametrize("dtype", DTYPES)
@given(pairs=weighted_pairs(), cut=st.integers(0, 11))
def test_trimmed_mean_is_that_of_the_slow_reference(dtype: Any, pairs: Pairs, cut: int) -> None:
    rows, weights = split(pairs, dtype)
    expected = float(slow_trimmed_mean(pairs, Fraction(cut, 24)))
    result = column_trimmed_mean(rows, weights, cut / 24)[0]
    assert result == pytest.approx(expected, abs=8 * float(np.finfo(dtype).eps) * 5)


@pytest.mark.parametrize("dtype", DTYPES)
@given(pairs=weighted_pairs(), same=st.booleans(), data=st.data())
def test_mean_near_the_median_is_that_of_the_slow_reference(
    dtype: Any, pairs: Pairs, same: bool, data: st.DataObject
) -> None:
    """With copies of a value that weigh differently, it would matter which of them is left out."""
    pairs = [(value, 1) for value, _ in pairs] if same else list(dict(pairs).items())
    rows, weights = split(pairs, dtype)
    count = data.draw(st.integers(1, len(pairs)))
    expected = float(slow_mean_near_median(pairs, count))
    result = column_mean_near_median(rows, weights, count)[0]
    assert result == pytest.approx(expected, abs=8 * float(np.finfo(dtype).eps) * 5)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 9, 10, 100, columns.SELECT, columns.SELECT + 1, 258])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_median_with_equal_weights_is_numpys(m: int, dtype: Any) -> None:
    rows = cloud(m, 50, dtype)
    result = column_median(rows, np.full(m, 1 / m))
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, np.median(rows, axis=0))


@pytest.mark.parametrize("m", range(2, 40, 2))
def test_unequal_weights_that_balance_give_the_midpoint_in_spite_of_rounding(m: int) -> None:
    half = np.random.default_rng(m).random(m // 2)
    weights = np.concatenate([half, half[::-1]])
    lower = np.linspace(0.1, 0.9, 50, dtype=np.float32)
    upper = np.nextafter(lower, np.float32(1))  # no float is between: the even one must win
    rows = np.array([lower] * (m // 2) + [upper] * (m // 2))
    result = column_median(rows, weights / weights.sum())
    np.testing.assert_array_equal(result, np.median([lower, upper], axis=0))


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0, 1.0], [0.1, 0.2, 0.2, 0.1]])
def test_median_of_integers_is_the_lower_one_and_exact(weights: list[float]) -> None:
    big = 2**53
    rows = np.array([[big + 1, 0], [big + 3, 1], [big + 5, 0], [big + 7, 1]])
    result = column_median(rows, np.array(weights))
    assert result.dtype == np.int64
    assert result.tolist() == [big + 3, 0]


def test_median_of_flags_is_the_weighted_majority() -> None:
    flags = [np.array([True, False]), np.array([False, False]), np.array([False, True])]
    assert column_median(flags, np.array([3.0, 1.0, 1.0])).tolist() == [True, False]
    assert column_median(flags, np.ones(3)).tolist() == [False, False]


def test_weighted_median_is_one_of_the_values_to_the_last_bit() -> None:
    """The number of its point, which a value carries through the sort, must leave no trace."""
    tiny, huge = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max
    values = np.array([-huge, -1.1, -tiny, -0.0, 0.0, tiny, 1 / 3, 1.1, huge], np.float32)
    rows = np.random.default_rng(1).permuted(np.tile(values[:, None], 300), axis=0)
    weights = np.random.default_rng(2).random(values.size)
    weights /= weights.sum()
    for result, column in zip(column_median(rows, weights), rows.T, strict=True):
        order = np.argsort(column)
        below = np.cumsum(weights[order])
        assert result == column[order[np.searchsorted(below, 1 / 2)]]


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=30)
@given(pairs=weighted_pairs(), cut=st.integers(0, 11))
def test_integer_weights_are_repeated_points(dtype: Any, pairs: Pairs, cut: int) -> None:
    rows, weights = split(pairs, dtype)
    many = np.repeat(rows, [weight for _, weight in pairs], axis=0)
    ones = np.ones(len(many))
    assert column_median(rows, weights) == column_median(many, ones)
    np.testing.assert_allclose(
        column_trimmed_mean(rows, weights, cut / 24),
        column_trimmed_mean(many, ones, cut / 24),
        atol=40 * float(np.finfo(dtype).eps),
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [0, 1, 6, 7, 8, 50])
def test_blocks_do_not_change_the_answer(
    monkeypatch: pytest.MonkeyPatch, width: int, dtype: Any, weighted: bool
) -> None:
    rows = cloud(11, width, dtype)
    weights = np.arange(1.0, 12) if weighted else np.ones(11)
    statistics = (
        lambda: column_median(rows, weights),
        lambda: column_trimmed_mean(rows, weights, 0.2),
        lambda: column_mean_near_median(rows, weights, 8),
    )
    full = [statistic() for statistic in statistics]
    monkeypatch.setattr(columns, "BLOCK", 7 * 11 * 4)
    np.testing.assert_array_equal([statistic() for statistic in statistics], full)


@pytest.mark.parametrize("weighted", [False, True])
def test_any_layout_gives_the_same_and_stays_as_it_was(weighted: bool) -> None:
    rows = cloud(12, 30)
    weights = np.arange(1.0, 13) if weighted else np.ones(12)
    padded = np.zeros((12, 60), np.float32)
    padded[:, ::2] = rows
    for layout in (rows, list(rows), np.asfortranarray(rows), padded[:, ::2]):
        before = np.array(layout)
        np.testing.assert_array_equal(column_median(layout, weights), column_median(rows, weights))
        np.testing.assert_array_equal(
            column_trimmed_mean(layout, weights, 0.3), column_trimmed_mean(rows, weights, 0.3)
        )
        np.testing.assert_array_equal(layout, before)


@pytest.mark.parametrize("m", [3, 7, 10, 30, 49, 98])
@pytest.mark.parametrize("weighted", [False, True])
def test_trimming_leaves_no_trace_of_huge_values(m: int, weighted: bool) -> None:
    """f / m times m is not always f in floats, but what is left over must not count."""
    weights = np.ones(m)
    for f in range(1, (m + 1) // 2):
        rows = np.ones((m, 1), np.float32)
        rows[:f] = 1e30
        if weighted:  # the same total in two unequal parts takes the general way
            weights = np.ones(m)
            weights[[0, -1]] = 0.9, 1.1
        share = weights[:f].sum() / weights.sum()
        result = column_trimmed_mean(rows, weights / weights.sum(), share)
        assert result == pytest.approx(1, rel=1e-6)


def test_a_share_just_below_half_gives_the_median() -> None:
    share = float(np.nextafter(0.5, 0))
    for m in (1, 2, 5, 8):
        rows = cloud(m, 20, np.float64)
        weights = np.random.default_rng(m).random(m)
        for chosen in (weights, np.ones(m)):
            result = column_trimmed_mean(rows, chosen, share)
            np.testing.assert_allclose(result, column_median(rows, chosen), rtol=1e-4)


def test_trimmed_mean_of_equal_points_is_the_point_but_for_rounding() -> None:
    rows = np.tile(cloud(1, 100), (37, 1))
    result = column_trimmed_mean(rows, np.ones(37), 0.2)
    np.testing.assert_allclose(result, rows[0], rtol=4 * float(np.finfo(np.float32).eps))


def test_midpoint_of_huge_values_does_not_overflow() -> None:
    for dtype in DTYPES:
        rows = np.array([[1.0], [0.5]], dtype) * np.finfo(dtype).max
        assert column_median(rows, np.ones(2)) == np.finfo(dtype).max * dtype(0.75)


@pytest.mark.parametrize("m", [1, 2, 30])
@pytest.mark.parametrize("widths", [(1,), (300, 0, 5), (16_384,), (20_000, 256), (40_000,)])
def test_inner_products_in_all_blocks(m: int, widths: tuple[int, ...]) -> None:
    models = [[1 + cloud(1, d, seed=i)[0] for d in widths] for i in range(m)]
    exact = np.array([np.concatenate(model, dtype=np.float64) for model in models])
    exact -= exact[-1]
    expected = exact @ exact.T
    for dtype, close in ((np.float32, 1e-6), (np.float64, 1e-14)):
        result = inner_products(read_points(models), dtype)
        np.testing.assert_allclose(result, expected, atol=close * expected.max())
        np.testing.assert_array_equal(result, result.T)


def test_inner_products_are_added_up_in_double_precision() -> None:
    """Sums of ones beyond 2^24, where float32 would stop counting."""
    ones = np.ones((2, 2**24 + 3), np.float32)
    ones[1] = 0
    assert inner_products(read_points(ones), np.float32)[0, 0] == 2**24 + 3
