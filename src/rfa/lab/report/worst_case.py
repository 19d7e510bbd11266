"""The worst case of a defense over attacks, with an interval, and which defenses are the best.

A defense has, for each attack, one number a seed. Runs of the same seed share devices, cohorts and
corrupted devices, so that seeds pair them. The worst case is theta, the least over attacks of the
mean that infinitely many seeds would give; the attack with the lowest mean over the seeds at hand
estimates it. That choice is made on the same numbers, and the interval accounts for it:

from    the lowest of the lower ends of the attacks' own 95 % intervals (Student). If theta is below
        it, so is the lower end of the attack that is truly the worst above its mean: one fixed
        attack, so that no correction is needed.
to      the upper end of the 95 % interval of numbers whose attack is chosen without them: for each
        seed the attack that is worst on the other seeds. Their mean is at least theta, whichever
        attacks are chosen.

A defense is behind another one if that is shown: under every attack, the other one has more than
the worst case of the first, chosen in the same way, by a one-sided paired t-test. All comparisons
of a defense with the others are wrong together in at most 5 % of the cases (Bonferroni). Those that
are behind nobody are the best, as far as these seeds tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rfa.lab.runs.statistics import mean_interval

LEVEL = 0.05
MIN_SEEDS = 3
"""With fewer seeds there is no interval and no test."""
Heights: TypeAlias = Mapping[str, Mapping[int, float]]
"""What a defense has under each attack, by seed."""


@dataclass(frozen=True)
class WorstCase:
    """The lowest mean over attacks.

    Attributes:
        attack: the attack; empty where there is none.
        mean: the mean over seeds.
        low: where the 95 % interval begins; NaN with too few seeds.
        high: where it ends.
        seeds: how many seeds all attacks have.
    """

    attack: str = ""
    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    seeds: int = 0


def worst_case(heights: Heights) -> WorstCase:
    """The worst case of a defense."""
    known = _known(heights)
    if not known:
        return WorstCase()
    means = {attack: math.fsum(by.values()) / len(by) for attack, by in known.items()}
    attack = min(means, key=means.__getitem__)
    seeds = _shared(known)
    if len(seeds) < MIN_SEEDS:
        return WorstCase(attack, means[attack], seeds=len(seeds))
    low = min(mean_interval([by[seed] for seed in seeds]).low for by in known.values())
    high = mean_interval(chosen_elsewhere(known, seeds)).high
    return WorstCase(
        attack, means[attack], min(low, means[attack]), max(high, means[attack]), len(seeds)
    )


def chosen_elsewhere(heights: Heights, seeds: Sequence[int]) -> list[float]:
    """For each seed, the number under the attack that is the worst on the other seeds."""
    attacks = list(heights)
    table = np.array([[heights[attack][seed] for seed in seeds] for attack in attacks])
    others = table.sum(axis=1, keepdims=True) - table
    return [float(table[int(others[:, s].argmin()), s]) for s in range(len(seeds))]


def best_defenses(defenses: Mapping[str, Heights]) -> set[str] | None:
    """The defenses that are not shown to be behind another one; None with too few seeds."""
    known = {name: heights for name, some in defenses.items() if (heights := _known(some))}
    if not known or any(len(_shared(heights)) < MIN_SEEDS for heights in known.values()):
        return None
    return {
        name
        for name in known
        if not any(
            is_behind(known[name], known[other], len(known) - 1) for other in known if other != name
        )
    }


def is_behind(heights: Heights, other: Heights, comparisons: int = 1) -> bool:
    """Whether a defense is shown to have a lower worst case than another, as one of some tests."""
    seeds = [seed for seed in _shared(heights) if seed in _shared(other)]
    if len(seeds) < MIN_SEEDS:
        return False
    worst = np.array(chosen_elsewhere(heights, seeds))
    quantile = 1 - LEVEL / comparisons
    return all(
        mean_interval(np.array([by[seed] for seed in seeds]) - worst, quantile).low > 0
        for by in other.values()
    )


def _known(heights: Heights) -> Heights:
    """The attacks that were run, without numbers that are not known."""
    finite = {
        attack: {seed: value for seed, value in by.items() if math.isfinite(value)}
        for attack, by in heights.items()
    }
    return {attack: by for attack, by in finite.items() if by}


def _shared(heights: Heights) -> list[int]:
    """The seeds that all attacks have."""
    every = [set(by) for by in heights.values()]
    return sorted(every[0].intersection(*every[1:]))
