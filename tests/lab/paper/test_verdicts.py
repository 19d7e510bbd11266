"""The judges themselves, on simulated seeds: how often they are wrong, and can be right."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from rfa.lab.paper.verdicts import (
    CONFIRMED,
    INCONCLUSIVE,
    OPEN,
    REFUTED,
    Fact,
    Finding,
    conclude,
    told,
)
from rfa.lab.runs.statistics import mean_interval, student

TRIALS = 4000
ODDS = 0.05 + 3 * (0.05 * 0.95 / TRIALS) ** 0.5
"""5 %, and three standard deviations of what is counted."""


def simulate(
    seeds: int, truths: list[float], bound: float = 0.0, margin: float | None = None
) -> Counter[str]:
    """Verdicts on a statement whose findings have true differences, many times."""
    rng = np.random.default_rng(seeds)
    shape = (TRIALS, len(truths), seeds)
    noise = rng.standard_normal(shape) + np.array(truths)[:, None]
    return Counter(
        conclude([Finding("", list(values), bound, margin) for values in trial]) for trial in noise
    )


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("findings", [1, 3])
def test_between_equal_methods_a_winner_is_rarely_named(seeds: int, findings: int) -> None:
    verdicts = simulate(seeds, [0.0] * findings)
    assert verdicts[CONFIRMED] + verdicts[REFUTED] <= ODDS * TRIALS


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("truth", [-0.5, -2.0])
def test_what_is_false_is_rarely_confirmed(seeds: int, truth: float) -> None:
    assert simulate(seeds, [truth])[CONFIRMED] <= ODDS * TRIALS
    assert simulate(seeds, [5.0, truth])[CONFIRMED] <= ODDS * TRIALS  # one part is enough


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("findings", [1, 2, 4])
def test_what_is_true_is_rarely_refuted(seeds: int, findings: int) -> None:
    assert simulate(seeds, [0.1] * findings)[REFUTED] <= ODDS * TRIALS


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("truth", [-1.0, 1.0, 1.5])
def test_unequal_methods_are_rarely_called_equal(seeds: int, truth: float) -> None:
    assert simulate(seeds, [truth], margin=1.0)[CONFIRMED] <= ODDS * TRIALS


@pytest.mark.parametrize("seeds", [3, 5])
def test_equal_methods_are_rarely_called_unequal(seeds: int) -> None:
    assert simulate(seeds, [0.9], margin=1.0)[REFUTED] <= ODDS * TRIALS
    assert simulate(seeds, [0.9] * 4, margin=1.0)[REFUTED] <= ODDS * TRIALS


def test_five_seeds_are_enough_for_what_is_plain() -> None:
    assert simulate(5, [4.0])[CONFIRMED] > 0.95 * TRIALS
    assert simulate(5, [-4.0])[REFUTED] > 0.95 * TRIALS
    assert simulate(5, [0.0], margin=4.0)[CONFIRMED] > 0.95 * TRIALS
    assert simulate(5, [8.0], margin=4.0)[REFUTED] > 0.95 * TRIALS
    assert simulate(5, [0.5])[INCONCLUSIVE] > 0.8 * TRIALS


def test_there_is_no_verdict_without_three_seeds_or_numbers() -> None:
    assert Finding("", [5.0, 5.1]).verdict == OPEN
    assert Finding("", [5.0, 5.1, float("nan")]).verdict == OPEN
    assert Finding("", [5.0, 5.1, 5.2], why_open="not trained").verdict == OPEN
    assert conclude([]) == OPEN
    assert told(Finding("RFA", [5.0, 5.1])) == "RFA (2 seeds of at least 3)"


def test_facts_that_no_seeds_vary() -> None:
    good = Finding("", [5.0, 5.1, 5.2])
    assert conclude([good, Fact("", holds=True)]) == CONFIRMED
    assert conclude([good, Fact("", holds=False)]) == REFUTED
    assert conclude([good, Fact("", holds=None)]) == INCONCLUSIVE


def test_a_finding_is_told_with_its_interval() -> None:
    assert told(Finding("a minus b", [1.0, 2.0, 3.0])) == (
        "a minus b: +2.0 (-0.5 to +4.5), should be above 0, 3 seeds"
    )
    assert told(Finding("a", [1.0, 2.0, 3.0], margin=1.0)).endswith("should be within 1, 3 seeds")


@pytest.mark.parametrize(
    ("freedom", "quantile", "value"),
    [
        (1, 0.975, 12.706),
        (2, 0.975, 4.303),
        (4, 0.95, 2.132),
        (9, 0.995, 3.250),
        (30, 0.975, 2.042),
    ],
)
def test_quantiles_of_students_law(freedom: int, quantile: float, value: float) -> None:
    assert student(freedom, quantile) == pytest.approx(value, abs=5e-4)


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    intervals = [mean_interval(rng.standard_normal(4)) for _ in range(TRIALS)]
    outside = sum(not each.low < 0 < each.high for each in intervals)
    assert abs(outside / TRIALS - 0.05) < ODDS - 0.05
