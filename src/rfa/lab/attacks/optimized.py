"""Attacks that know the defense: they try several inputs, and keep the most harmful one.

By default, harm is how far the server's step falls short of the honest weighted mean, measured
along it. To first order, this is the progress that the round loses. The plain distance would also
count errors orthogonal to the mean, and those may cancel over rounds. Both are greedy: the most
harmful input in a round need not be the most harmful in a run, and a fixed attack can do more. A
rejected aggregate is a step of length zero, so these attacks stay below the limit of rejection.

`ipm-optimized:goal=distance` and `alie-optimized:goal=distance` are those of Allouah et al. (2023),
as in the benchmark of ByzFL: harm is the plain distance, and the factor comes from a line search
with 20 trials that starts at 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from operator import itemgetter
from typing import Annotated, Any

import numpy as np

from rfa._types import Floats
from rfa.lab.attacks import limits
from rfa.lab.attacks.corruption import UpdateAttack, corrupts_updates
from rfa.lab.attacks.honest import Honest, unit
from rfa.lab.attacks.literature import EPSILON, alie_deviations, anchor, repeat, zero_update

DECADES = tuple(10.0 ** (k / 2) for k in range(-2, 7))
"""The factors that are tried first, from 0.1 to 1000."""
AROUND = tuple(10.0 ** (k / 8) for k in (-3, -2, -1, 1, 2, 3))
"""The factors around the most harmful one that are tried next."""
SHORTFALL, DISTANCE = GOALS = ("shortfall", "distance")
"""The measures of harm that attacks on any defense may maximize."""
GOAL = limits.one_of(GOALS)
TRIALS, STRIDE, SHRINK = 20, 10.0, 0.8
"""The line search of Allouah et al.: its trials, its first step, and the factor of shorter
steps."""
DISTANCES = (0.3, 3.0, 30.0, 300.0)
"""The distances of an attack on the median, as multiples of a typical honest update."""


def harm(attack: UpdateAttack, honest: Honest, rows: Any) -> float:
    """Return how far the server's step would fall short of the honest mean, along it."""
    return float((honest.mean - attack.aggregate(rows)) @ unit(honest.mean))


def distance(attack: UpdateAttack, honest: Honest, rows: Any) -> float:
    """Return how far the server's step would be from the honest mean."""
    return float(np.linalg.norm(attack.aggregate(rows) - honest.mean))


@corrupts_updates
def ipm_optimized(attack: UpdateAttack, *, goal: Annotated[str, GOAL] = SHORTFALL) -> Floats:
    """Inner-product manipulation (Xie et al. 2020) with the most harmful epsilon."""
    honest = Honest.of(attack)
    return _worst_factor(
        attack, honest, lambda epsilon: repeat(attack, -epsilon * honest.mean), EPSILON, goal
    )


@corrupts_updates
def alie_optimized(attack: UpdateAttack, *, goal: Annotated[str, GOAL] = SHORTFALL) -> Floats:
    """A little is enough (Baruch et al. 2019) with the most harmful z."""
    honest = Honest.of(attack)
    z = alie_deviations(len(attack.updates), len(attack.corrupted))
    return _worst_factor(
        attack, honest, lambda z: repeat(attack, honest.mean - z * honest.std), z, goal
    )


@corrupts_updates
def anti_median(attack: UpdateAttack) -> Floats:
    """Attack the geometric median, knowing where and how it is computed.

    It tries the points where iterations begin, zero and the mean (the anchor), and a common point
    at several distances from the honest mean: against it, against the standard deviations, and in
    the direction of largest variance.
    """
    honest = Honest.of(attack)
    directions = (unit(-honest.mean), unit(-honest.std), honest.principal)

    def point(which: int, distance: float) -> Floats:
        return repeat(attack, honest.mean + distance * honest.spread * directions[which])

    places = itertools.product(range(len(directions)), DISTANCES)
    harms = {place: harm(attack, honest, point(*place)) for place in places}
    which, distance = max(harms, key=harms.__getitem__)
    near = [(which, distance * factor) for factor in (10**-0.5, 10**0.5)]
    harms |= {place: harm(attack, honest, point(*place)) for place in near}
    worst = max(harms, key=harms.__getitem__)
    starts = (zero_update.forge(attack), anchor.forge(attack))
    tried = [(harm(attack, honest, rows), rows) for rows in starts]
    return max([(harms[worst], point(*worst)), *tried], key=itemgetter(0))[1]


def line_search(height: Callable[[float], float]) -> float:
    """Return the factor with the largest height that a line search with few trials finds from 0 on.

    Steps double while they go up. After the first step that does not, each is shorter than the one
    before, and is taken if it goes up.

    >>> round(line_search(lambda factor: -abs(factor - 12)), 2)
    13.36
    """
    best, highest, step, grow = 0.0, height(0.0), STRIDE, True
    for _ in range(TRIALS - 1):
        tried = height(best + step)
        is_up = tried > highest
        if is_up:
            best, highest = best + step, tried
        grow = grow and is_up
        step *= 2 if grow else SHRINK
    return best


def _worst_factor(
    attack: UpdateAttack,
    honest: Honest,
    rows: Callable[[float], Floats],
    usual: float,
    goal: str,
) -> Floats:
    """Return the rows of the most harmful factor: the usual one, a grid, or around its worst."""
    if goal == DISTANCE:
        return rows(line_search(lambda factor: distance(attack, honest, rows(factor))))
    factors = dict.fromkeys((usual, *DECADES))
    harms = {factor: harm(attack, honest, rows(factor)) for factor in factors}
    worst = max(harms, key=harms.__getitem__)
    near = [worst * factor for factor in AROUND]
    harms |= {factor: harm(attack, honest, rows(factor)) for factor in near}
    return rows(max(harms, key=harms.__getitem__))
