"""The table of statistics that are summed beside the push: a new statistic is one row.

A device's value of a statistic is sent as a whole number, in units of 2^-bits, modulo 2^128. The
rows say how large a value can be, how it is rounded, and which total bounds its own. This module
derives the rest from them: that no total wraps around, and how much one device can change it.

>>> {row.name: row.sensitivity for row in (*STATISTICS, METRIC) if not row.bits}
{'near': 1.0, 'count': 1.0}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from rfa.secagg.errors import ParameterError
from rfa.secagg.words import TAIL

SLACK = 2.0**-44
"""More than the relative rounding error of a mass, for up to a thousand million numbers."""
_TOLERANCE = 1e-9
"""By how much totals of fractions may exceed their bounds."""


@dataclass(frozen=True)
class LocalFacts:
    """What a device knows about itself at the point of a query; secret.

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
        name: its name; that of a field of `rfa.oracle.Sum` where there is one.
        value: computes the value of a device from its local facts.
        largest: the largest value of a device.
        bits: the number of binary digits after the point.
        rounding: how a value becomes a whole number of units.
        at_most: the statistic whose total bounds this one; by default the size of the cohort does.
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
        """Return a value as a whole number of units."""
        return self.rounding(math.ldexp(value, self.bits))

    def encode(self, value: float) -> int:
        """Return a value as it is sent, modulo 2^128."""
        return self.units(value) % TAIL

    def decode(self, total: int) -> float:
        """Return a total from its value modulo 2^128."""
        value = signed(total)
        return value / (1 << self.bits) if self.bits else value

    @property
    def sensitivity(self) -> float:
        """How much one device can change the sum, by joining, leaving or changing its value."""
        return (self.units(self.largest) - self.units(self.least)) / (1 << self.bits)

    def fits(self, cohort: int) -> bool:
        """Return whether no total over this number of devices wraps around."""
        return cohort * max(abs(self.units(x)) for x in (self.least, self.largest)) < TAIL // 2


def signed(total: int) -> int:
    """Return a total, which may be negative, from its value modulo 2^128."""
    return total - TAIL if total >= TAIL // 2 else total


STATISTICS = (
    # Rounded down, so that a certificate, which divides by it, errs on the safe side.
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
"""The statistics of a sum, in the order in which they are sent; the device's metrics follow. The
opening of a round says which rows are sent; the count always is."""
ALL = frozenset(row.name for row in STATISTICS)
"""The names of all statistics."""
METRIC = Statistic("metric", lambda _: 0.0, 2.0**32, 64, round, least=-(2.0**32))
"""A metric of a device. The round says how many there are, and no other total bounds them."""
COUNT = STATISTICS[-1]
"""The number of devices that answered, which is always exact."""
NOISY = frozenset({"mass", "near"})
"""The statistics that are sent in rounds with noise, beside the count."""
POSITIONS = {row.name: position for position, row in enumerate(STATISTICS)}
"""The position of each statistic in the table, and in the tail of a sum that holds all of them."""
MASS_BITS = STATISTICS[POSITIONS["mass"]].bits


def mask_of(names: Collection[str]) -> int:
    """Return the statistics of these names, and count, as bits: the first row in the lowest one.

    Raises:
        ParameterError: if a name is not in the table.
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
    """Return the statistics that a round sends for an aggregator that reads these, as bits.

    A limit on shares needs the mass. Without noise, whether there may be another query depends on
    the number of devices that are near. Equal weights are not sent. Squares are not sent with
    noise, where they have no use.
    """
    further = queries > 1 and not noise
    needed = {*names, *(["mass"] if max_share else []), *(["near"] if further else [])}
    needed -= {"weight"} if equal_weights else set()
    return mask_of(needed - {"squares"} if noise else needed)


def rows_of(mask: int) -> tuple[Statistic, ...]:
    """Return the rows that a mask names, in the order in which they are sent.

    Raises:
        ParameterError: if it names unknown rows, or not the count, which is always sent.
    """
    rows = tuple(row for place, row in enumerate(STATISTICS) if mask >> place & 1)
    if mask >> len(STATISTICS) or COUNT not in rows:
        msg = f"the statistics {mask:#b} are none of the {len(STATISTICS)} that there are, or "
        raise ParameterError(msg + "count is not among them")
    return rows


Rows = Sequence[Statistic]


def encode_all(local: LocalFacts, metrics: Sequence[float], rows: Rows = STATISTICS) -> list[int]:
    """Return the tail of a device: its statistics and its metrics as whole numbers."""
    statistics = [row.encode(row.value(local)) for row in rows]
    return statistics + [METRIC.encode(metric) for metric in metrics]


def decode_all(
    tail: Sequence[int], rows: Rows = STATISTICS
) -> tuple[dict[str, float], tuple[float, ...]]:
    """Return the totals of the statistics by name, and those of the metrics."""
    totals = zip(rows, tail[: len(rows)], strict=True)
    metrics = tuple(METRIC.decode(total) for total in tail[len(rows) :])
    return {row.name: row.decode(total) for row, total in totals}, metrics


def implausible(totals: Mapping[str, float], cohort: int, *, equal: bool = False) -> str:
    """Return why honest devices cannot have these totals; empty if they can.

    If several totals are wrong, the message names the first whose own bound is right. The bound of
    a statistic that was not sent is the bound of its own row.

    *Formal guarantee*: no sum of honest devices is rejected, for all updates, v and nu, and for all
    weights unless `equal`. The bounds allow for the rounding of the rows.

    Args:
        totals: the total of each statistic that was sent.
        cohort: the largest possible number of devices.
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
    """Return why squares are too small for any weights, by the Cauchy-Schwarz inequality."""
    if not {"mass", "squares"} <= totals.keys():
        return ""
    mass, squares, count = totals["mass"], totals["squares"], totals["count"]
    if count * squares * (1 + SLACK) < mass**2:
        return f"the total squares are {squares}, and {count} masses of {mass} have more"
    return ""


def _unlike_equals(totals: Mapping[str, float]) -> str:
    """Return why devices of weight 1 cannot have these totals.

    A device of weight 1 is near if its mass is 1 / REACH = 1/2 or more. So with k near devices of n

        k / 2 <= mass <= (n + k) / 2,
        squares lie between those of masses as even, and as uneven, as k near ones allow.

    The bounds are tight: for each there are devices that meet it.
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
    """Return the least and the most squares of masses: at least 1/2 if near, at most otherwise."""
    held, even = (near, count - near) if 2 * mass < count else (count - near, near)
    rest = max(0.0, mass - held / 2)  # for the others, each on their side of 1/2
    least = held / 4 + (rest**2 / even if even else 0.0)
    return least, mass / 2 + min(near, mass) - near / 2


def weighs_more(mass: int, total: int, max_share: float) -> bool:
    """Return whether a mass exceeds a share of the total mass, in exact arithmetic."""
    return Fraction(mass) > Fraction(max_share) * total
