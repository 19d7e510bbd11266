"""The worst case of a defense over attacks, with an interval, and the best defenses.

A defense has, for each attack, one number per seed. Runs of the same seed share devices, cohorts
and corrupted devices, so seeds pair them. The worst case is theta, the least over attacks of the
mean over infinitely many seeds. Its estimate is the attack with the lowest mean over the given
seeds. That choice uses the same numbers, and the interval accounts for it:

from    the lowest of the lower ends of the attacks' own 95 % intervals (Student). If theta is below
        it, then the lower end of the truly worst attack is above its mean. This is one fixed
        attack, so no correction is needed.
to      the upper end of the 95 % interval of numbers whose attack is chosen without them: for each
        seed the attack that is worst on the other seeds. Their mean is at least theta, whichever
        attacks are chosen.

A defense is behind another one if a test shows it: under every attack, the other one has more than
the worst case of the first, chosen in the same way, by a one-sided paired t-test. The comparisons
of a defense with all others are wrong together in at most 5 % of the cases (Bonferroni); of many
defenses as good as each other, one in twenty is found to be behind. The best defenses are those
that are behind no other. A broken defense may scatter too much to be behind: so if the mean of all
updates is behind some defense, the best ones must also be shown to be ahead of the mean.

Intervals and tests assume that numbers scatter about their mean as in a normal distribution. Where
runs break with probability 0.2 or 0.8 they may be alike by chance: the interval misses the mean in
half of the cases with three seeds, and in a third with five.
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
"""The numbers of a defense under each attack, by seed."""


@dataclass(frozen=True)
class WorstCase:
    """The lowest mean over attacks.

    Attributes:
        attack: the attack; empty if there is none.
        mean: the mean over seeds.
        low: the lower end of the 95 % interval; NaN with too few seeds.
        high: the upper end.
        seeds: the number of seeds that all attacks have.
    """

    attack: str = ""
    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    seeds: int = 0


def worst_case(heights: Heights) -> WorstCase:
    """Return the worst case of a defense."""
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
    """Return, for each seed, the number under the attack that is worst on the other seeds."""
    attacks = list(heights)
    table = np.array([[heights[attack][seed] for seed in seeds] for attack in attacks])
    others = table.sum(axis=1, keepdims=True) - table
    return [float(table[int(others[:, s].argmin()), s]) for s in range(len(seeds))]


def best_defenses(defenses: Mapping[str, Heights], mean: str = "") -> set[str] | None:
    """Return the defenses that are not shown to be behind another one; None with too few seeds.

    `mean` names the mean of all updates, if it is among them: if it is behind one, the best must be
    ahead of it.
    """
    known = {name: heights for name, some in defenses.items() if (heights := _known(some))}
    if not known or any(len(_shared(heights)) < MIN_SEEDS for heights in known.values()):
        return None
    tests = len(known) - 1
    ahead = {
        name: {other for other in known if is_behind(known[other], known[name], tests)}
        for name in known
    }
    beaten = set[str]().union(*ahead.values())
    best = known.keys() - beaten
    return {name for name in best if mean in ahead[name]} if mean in beaten else best


def is_behind(heights: Heights, other: Heights, comparisons: int = 1) -> bool:
    """Return whether a defense is shown to have a lower worst case than another.

    `comparisons` is the number of such tests together.
    """
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
    """Return the attacks that were run, without unknown numbers."""
    finite = {
        attack: {seed: value for seed, value in by.items() if math.isfinite(value)}
        for attack, by in heights.items()
    }
    return {attack: by for attack, by in finite.items() if by}


def _shared(heights: Heights) -> list[int]:
    """Return the seeds that all attacks have."""
    every = [set(by) for by in heights.values()]
    return sorted(every[0].intersection(*every[1:]))
