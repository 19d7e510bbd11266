"""Worst cases over attacks: intervals that cover, and tests that are rarely wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rfa.lab.report.worst_case import (
    Heights,
    WorstCase,
    best_defenses,
    chosen_elsewhere,
    is_behind,
    worst_case,
)
from rfa.lab.runs.statistics import mean_interval

SEEDS = 5


def drawn(rng: np.random.Generator, means: list[float], seeds: int = SEEDS) -> Heights:
    """Numbers of some attacks around their means; what seeds have in common, and what not."""
    common = rng.standard_normal(seeds)
    return {
        f"attack {a}": dict(enumerate(mean + common + rng.standard_normal(seeds)))
        for a, mean in enumerate(means)
    }


def test_the_worst_attack_has_the_lowest_mean_and_not_the_lowest_number() -> None:
    case = worst_case({"lucky": {1: 0.0, 2: 60.0, 3: 60.0}, "steady": {1: 30.0, 2: 31.0, 3: 29.0}})
    assert case.attack == "steady"
    assert case.mean == pytest.approx(30)
    assert case.low < 0 < case.mean
    assert case.seeds == 3


def test_one_attack_has_students_interval() -> None:
    case, alone = worst_case({"only": {1: 1.0, 2: 2.0, 3: 3.0}}), mean_interval([1.0, 2.0, 3.0])
    assert (case.low, case.high) == (alone.low, alone.high)


@pytest.mark.parametrize("seeds", [3, SEEDS])
@pytest.mark.parametrize("means", [15 * [50.0], [50.0, 50.5, 51, 55, 60, 70], [50.0, *14 * [50.3]]])
def test_the_interval_covers_the_worst_case_in_95_of_100_cases(
    means: list[float], seeds: int
) -> None:
    rng = np.random.default_rng(0)
    cases = [worst_case(drawn(rng, means, seeds)) for _ in range(2000)]
    covered = np.mean([case.low <= min(means) <= case.high for case in cases])
    assert covered > 0.95 - 3 * (0.05 * 0.95 / 2000) ** 0.5  # three standard errors of the draws


def test_three_runs_that_all_break_by_chance_say_nothing_of_those_that_do_not() -> None:
    """The limit of few seeds: half of the runs end at about 40 and half at about 0."""
    rng = np.random.default_rng(0)
    ends = 40.0 * rng.integers(0, 2, (1000, 3)) + rng.standard_normal((1000, 3))
    cases = [worst_case({"attack": dict(zip(range(3), some, strict=True))}) for some in ends]
    covered = np.array([case.low <= 20 <= case.high for case in cases])
    alike = np.ptp(ends, axis=1) < 20
    assert covered[~alike].all()
    assert not covered[alike].any()


@pytest.mark.parametrize(("seeds", "missed"), [(3, 1 / 2), (SEEDS, 1 / 3)])
@pytest.mark.parametrize("breaks", [0.2, 0.8])
def test_how_often_runs_that_break_or_not_are_alike_by_chance(
    breaks: float, seeds: int, missed: float
) -> None:
    """What the module and the page say of the limit."""
    rng = np.random.default_rng(0)
    ends = 40.0 * (rng.random((1000, seeds)) > breaks) + rng.standard_normal((1000, seeds))
    cases = [worst_case({"attack": dict(zip(range(seeds), some, strict=True))}) for some in ends]
    covered = np.mean([case.low <= 40 * (1 - breaks) <= case.high for case in cases])
    assert covered == pytest.approx(1 - missed, abs=0.06)


def test_an_interval_around_the_lowest_mean_alone_would_not() -> None:
    """What the correction is for: with many attacks, the lowest mean is too low."""
    rng = np.random.default_rng(0)
    cases = [worst_case(drawn(rng, 15 * [50.0])) for _ in range(300)]
    assert np.mean([case.mean for case in cases]) < 49.5
    apart = [drawn(rng, 15 * [50.0]) for _ in range(300)]
    chosen = [float(np.mean(chosen_elsewhere(heights, range(SEEDS)))) for heights in apart]
    assert abs(np.mean(chosen) - 50) < 0.1


def test_each_number_is_chosen_on_the_other_seeds() -> None:
    heights = {"a": {1: 0.0, 2: 9.0, 3: 9.0}, "b": {1: 5.0, 2: 5.0, 3: 5.0}}
    assert chosen_elsewhere(heights, [1, 2, 3]) == [5.0, 9.0, 9.0]


def test_equal_defenses_are_rarely_told_apart() -> None:
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(400):
        common = rng.standard_normal(SEEDS)
        some: dict[str, Heights] = {
            f"defense {d}": {
                f"attack {a}": dict(enumerate(50 + common + rng.standard_normal(SEEDS)))
                for a in range(6)
            }
            for d in range(8)
        }
        wrong += best_defenses(some) != set(some)
    assert wrong / 400 < 0.05


def test_a_defense_as_good_as_all_is_rarely_behind_where_one_attack_decides() -> None:
    """The hardest case for the test: nothing but noise decides, and ties do not help."""
    rng, defenses, games = np.random.default_rng(1), 16, 150
    left_out = 0
    for _ in range(games):
        common = rng.standard_normal(SEEDS)
        some: dict[str, Heights] = {
            f"defense {d}": {
                "weak": dict(enumerate(90 + common + rng.standard_normal(SEEDS))),
                "strong": dict(enumerate(50 + common + rng.standard_normal(SEEDS))),
            }
            for d in range(defenses)
        }
        best = best_defenses(some)
        assert best is not None
        left_out += defenses - len(best)
    chances = games * defenses
    assert left_out / chances < 0.05 + 3 * (0.05 * 0.95 / chances) ** 0.5


def test_broken_defenses_are_not_among_the_best_because_they_scatter() -> None:
    broken = {"attack": {1: 49.0, 2: 20.0, 3: 48.0, 4: 75.0, 5: 50.0}}
    some: dict[str, Heights] = {
        "mean": {"attack": {1: 49.0, 2: 49.2, 3: 49.1, 4: 49.0, 5: 48.9}},
        "broken": broken,
        "good": {"attack": {1: 60.0, 2: 60.3, 3: 59.8, 4: 60.1, 5: 60.0}},
    }
    assert not is_behind(broken, some["good"])
    assert best_defenses(some) == {"broken", "good"}
    assert best_defenses(some, mean="mean") == {"good"}


def test_where_nothing_is_shown_to_be_ahead_of_the_mean_it_is_among_the_best() -> None:
    rng = np.random.default_rng(4)
    some = {name: drawn(rng, [50, 60]) for name in ("mean", "as good", "as good, too")}
    assert best_defenses(some, mean="mean") == set(some)


def test_defenses_that_are_far_apart_are_told_apart() -> None:
    rng = np.random.default_rng(2)
    some = {name: drawn(rng, [mean, 60]) for name, mean in (("good", 50), ("as good", 50))}
    some["bad"] = drawn(rng, [20, 60])
    assert best_defenses(some) == {"good", "as good"}
    assert is_behind(some["bad"], some["good"])
    assert not is_behind(some["good"], some["bad"])


def test_seeds_pair_runs_so_that_what_they_share_does_not_count() -> None:
    rng = np.random.default_rng(3)
    common = 30 * rng.standard_normal(SEEDS)
    some = {
        name: {"attack": dict(enumerate(mean + common + 0.1 * rng.standard_normal(SEEDS)))}
        for name, mean in (("a", 50.0), ("b", 48.0))
    }
    assert best_defenses(some) == {"a"}


def test_too_few_seeds_give_no_interval_and_no_test() -> None:
    two: Heights = {"attack": {1: 50.0, 2: 60.0}}
    case = worst_case(two)
    assert case.mean == pytest.approx(55)
    assert math.isnan(case.low)
    assert best_defenses({"a": two}) is None
    assert best_defenses({}) is None
    assert worst_case({}) == worst_case({"attack": {1: math.nan}})
    assert worst_case({}).attack == WorstCase().attack == ""


def test_seeds_that_some_attack_lacks_do_not_count_for_the_interval() -> None:
    heights = {"a": {1: 1.0, 2: 2.0, 3: 3.0, 4: 90.0}, "b": {1: 70.0, 2: 70.0, 3: 70.0}}
    case = worst_case(heights)
    assert (case.attack, case.seeds) == ("a", 3)
    assert case.mean == pytest.approx(24)
