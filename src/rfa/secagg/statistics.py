"""The table of what is summed beside the push: a new statistic in a sum is one row of it.

A device's value of a statistic travels as a whole number, in units of 2^-bits, modulo 2^128. The
rows say how large a value can be, how it is rounded, and what its total is bounded by; what follows
from them (no total wraps around, how much one device can change it) is computed here.

>>> {row.name: row.sensitivity for row in (*STATISTICS, METRIC) if not row.bits}
{'near': 1.0, 'count': 1.0}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rfa.secagg.errors import ParameterError
from rfa.secagg.words import TAIL

SLACK = 2.0**-44
"""More than the rounding errors of a mass, in parts of it, for up to a thousand million numbers."""
_TOLERANCE = 1e-9
"""By how much totals of fractions may be beyond their bounds."""


@dataclass(frozen=True)
class LocalFacts:
    """What a device knows of itself when it is asked about a point; secret.

    Attributes:
        weight: its weight alpha_i, at most 1.
        mass: its mass at the point, at most its weight.
        near: whether its update is within REACH * nu of the point.
    """

    weight: float = field(repr=False)
    mass: float = field(repr=False)
    near: bool = field(repr=False)


@dataclass(frozen=True)
class Statistic:
    """A number of each device that is summed.

    Attributes:
        name: its name, which is that of a field of `rfa.oracle.Sum` where it has one.
        value: what a device adds, of what it knows.
        largest: the largest value of a device.
        bits: binary digits after the point.
        rounding: how a value becomes a whole number of units.
        at_most: the statistic whose total is never less than this one's; none for the cohort.
        least: the least value of a device.
        positive: whether the total must be positive.
    """

    name: str
    value: Callable[[LocalFacts], float]
    largest: float
    bits: int
    rounding: Callable[[float], int]
    at_most: str | None = None
    least: float = 0.0
    positive: bool = True

    def units(self, value: float) -> int:
        """A value as a whole number of units."""
        return self.rounding(math.ldexp(value, self.bits))

    def encode(self, value: float) -> int:
        """A value as it is added, modulo 2^128."""
        return self.units(value) % TAIL

    def decode(self, total: int) -> float:
        """A total, from what it is modulo 2^128."""
        value = signed(total)
        return value / (1 << self.bits) if self.bits else value

    @property
    def sensitivity(self) -> float:
        """How much one device can change the sum, whether it comes, leaves or changes its value."""
        return (self.units(self.largest) - self.units(self.least)) / (1 << self.bits)

    def fits(self, cohort: int) -> bool:
        """Whether no total over so many devices wraps around."""
        return cohort * max(abs(self.units(x)) for x in (self.least, self.largest)) < TAIL // 2


def signed(total: int) -> int:
    """A total, which can be negative, from what it is modulo 2^128."""
    return total - TAIL if total >= TAIL // 2 else total


STATISTICS = (
    # Rounded down, so that a certificate, which divides by it, errs to the safe side.
    Statistic("mass", lambda local: local.mass * (1 - SLACK), 1.0, 96, math.floor, "weight"),
    # Rounded up, for the same reason.
    Statistic(
        "squares",
        lambda local: (local.mass * (1 + SLACK)) ** 2,
        (1 + SLACK) ** 2,
        96,
        math.ceil,
        "mass",
    ),
    Statistic("weight", lambda local: local.weight, 1.0, 96, math.floor, "count"),
    Statistic("near", lambda local: local.near, 1.0, 0, math.floor, "count", positive=False),
    Statistic("count", lambda _: 1.0, 1.0, 0, math.floor),
)
"""What a sum can hold, in the order in which it travels; the device's metrics follow. A round's
opening says which rows travel; the count always does."""
ALL = frozenset(row.name for row in STATISTICS)
"""The names of all of them."""
METRIC = Statistic("metric", lambda _: 0.0, 2.0**32, 64, round, least=-(2.0**32))
"""What a device may add of its local: as many as the round says, which no other total bounds."""
COUNT = STATISTICS[-1]
"""How many devices answered, which is always exact."""
NOISY = frozenset({"mass", "near"})
"""Those that travel in rounds with noise, beside the count."""
POSITIONS = {row.name: position for position, row in enumerate(STATISTICS)}
"""Where in the table a statistic is, and in the tail of a sum that holds all of them."""
MASS_BITS = STATISTICS[POSITIONS["mass"]].bits


def mask_of(names: Collection[str]) -> int:
    """The statistics of these names, and count, as bits: the first row in the lowest one.

    Raises:
        ParameterError: naming one that is not in the table.
    """
    if unknown := sorted(set(names) - ALL):
        msg = f"there is no statistic {unknown[0]!r}: there are {', '.join(sorted(ALL))}"
        raise ParameterError(msg)
    wanted = {*names, "count"}
    return sum(1 << place for place, row in enumerate(STATISTICS) if row.name in wanted)


def mask_of_round(
    names: Collection[str],
    *,
    queries: int,
    max_share: float,
    equal_weights: bool = False,
    noise: float = 0.0,
) -> int:
    """The statistics that travel in a round whose aggregator reads these, as bits.

    A limit on shares takes the mass. Whether there may be another query depends on how many devices
    are near, unless there is noise, which hides them. Weights that are equal are not sent; nor are
    squares where there is noise: they are of no use there.
    """
    further = queries > 1 and not noise
    needed = {*names, *(["mass"] if max_share else []), *(["near"] if further else [])}
    needed -= {"weight"} if equal_weights else set()
    return mask_of(needed - {"squares"} if noise else needed)


def rows_of(mask: int) -> tuple[Statistic, ...]:
    """The rows that a mask names, in the order in which they travel.

    Raises:
        ParameterError: if it names others, or not the count, which always travels.
    """
    rows = tuple(row for place, row in enumerate(STATISTICS) if mask >> place & 1)
    if mask >> len(STATISTICS) or COUNT not in rows:
        msg = f"the statistics {mask:#b} are none of the {len(STATISTICS)} that there are, or "
        raise ParameterError(msg + "count is not among them")
    return rows


Rows = Sequence[Statistic]


def encode_all(local: LocalFacts, metrics: Sequence[float], rows: Rows = STATISTICS) -> list[int]:
    """The tail of a device: its statistics and its metrics as whole numbers."""
    statistics = [row.encode(row.value(local)) for row in rows]
    return statistics + [METRIC.encode(metric) for metric in metrics]


def decode_all(
    tail: Sequence[int], rows: Rows = STATISTICS
) -> tuple[dict[str, float], tuple[float, ...]]:
    """The totals of the statistics by name, and those of the metrics."""
    totals = zip(rows, tail[: len(rows)], strict=True)
    metrics = tuple(METRIC.decode(total) for total in tail[len(rows) :])
    return {row.name: row.decode(total) for row, total in totals}, metrics


def implausible(totals: Mapping[str, float], cohort: int, *, equal: bool = False) -> str:
    """What no sum of honest devices can be; empty if there is nothing.

    Of totals that are wrong, the first is named whose own bound is right. What was not sent bounds
    nothing: its own bound does.

    *Formal guarantee*: no sum of honest devices is refused, whatever their updates, v and nu, and
    whatever their weights unless `equal`; the rounding of the rows is allowed for.

    Args:
        totals: the total of each statistic that was sent.
        cohort: how many devices there are at most.
        equal: whether every device has weight 1.
    """
    wrong: dict[str, str] = {}
    bounds = {row.name: row.at_most for row in STATISTICS}
    for row in STATISTICS:
        if row.name not in totals:
            continue
        bound = row.at_most
        while bound is not None and bound not in totals:
            bound = bounds[bound]
        bounds[row.name] = bound
        total, most = totals[row.name], totals[bound] if bound else cohort
        if total < 0 or (row.positive and not total) or total > most + _TOLERANCE * bool(row.bits):
            wrong[row.name] = f"the total {row.name} is {total}, of at most {most}"
    first = next((text for name, text in wrong.items() if bounds[name] not in wrong), "")
    return first or _unlike(totals) or (_unlike_equals(totals) if equal else "")


def _unlike(totals: Mapping[str, float]) -> str:
    """What squares cannot be, whatever the weights: by Cauchy and Schwarz, too small."""
    if not {"mass", "squares"} <= totals.keys():
        return ""
    mass, squares, count = totals["mass"], totals["squares"], totals["count"]
    if count * squares * (1 + SLACK) < mass**2:
        return f"the total squares are {squares}, and {count} masses of {mass} have more"
    return ""


def _unlike_equals(totals: Mapping[str, float]) -> str:
    """What the totals of devices of weight 1 cannot be.

    A device of weight 1 is near if its mass is 1 / REACH = 1/2 or more. So with k near devices of n

        k / 2 <= mass <= (n + k) / 2,
        squares lie between those of masses as even, and as uneven, as k near ones allow.

    The bounds are tight: devices can be placed so that each is met.
    """
    count = totals["count"]
    if totals.get("weight", count) != count:
        return f"the total weight of {count} devices of weight 1 is {totals['weight']}"
    if not {"mass", "near"} <= totals.keys():
        return ""
    mass, near = totals["mass"], totals["near"]
    if not near * (1 - 4 * SLACK) <= 2 * mass <= (count + near) * (1 + SLACK):
        return f"the total mass is {mass}, with {near} of {count} devices near"
    least, most = _squares_between(mass, near, count)
    squares = totals.get("squares", least)
    if not least * (1 - SLACK) <= squares <= most + 8 * SLACK * count:
        return f"the total squares are {squares}, from {least} to {most} by the other totals"
    return ""


def _squares_between(mass: float, near: float, count: float) -> tuple[float, float]:
    """The least and the most squares of masses of at least 1/2 for the near, at most for others."""
    held, even = (near, count - near) if 2 * mass < count else (count - near, near)
    rest = max(0.0, mass - held / 2)  # over the others, each on their side of 1/2
    least = held / 4 + (rest**2 / even if even else 0.0)
    return least, mass / 2 + min(near, mass) - near / 2
