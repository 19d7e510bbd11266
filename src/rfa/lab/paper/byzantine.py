"""The last row of table:corrupt:example: a device that misbehaves while the aggregate is computed.

Update poisoning sends one vector, whatever it is, and answers all questions of the round by it. A
Byzantine device answers each question as it likes. Its push and mass then belong to no vector, and
no bound on the median speaks of it: one device is enough to put the aggregate anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from rfa._types import Floats, Vector
from rfa.aggregators.weiszfeld import weiszfeld
from rfa.lab.randomness import stream
from rfa.lab.report.exhibit import Table
from rfa.numerics.plain_oracle import PlainOracle
from rfa.oracle import Sum, SumOracle
from rfa.radii import Radius, farthest

Answer: TypeAlias = Callable[[Vector, float, Sum], Sum]
"""What the sum becomes: from v, nu and the sum over the other devices."""
STEPS, NU = 3, 1e-3


class ByzantineOracle:
    """Another oracle, with one more device that answers each question as it likes."""

    def __init__(self, ask: SumOracle, answer: Answer) -> None:
        self._ask, self._answer = ask, answer

    def __call__(self, v: Vector, nu: Radius) -> Sum:
        """The sum over all devices."""
        return self._answer(v, farthest(nu, len(v)), self._ask(v, nu))


@dataclass(frozen=True)
class Drag:
    """A push of any length: the step ends at the target, wherever that is."""

    target: Vector

    def __call__(self, v: Vector, nu: float, others: Sum) -> Sum:
        """Add the missing part to the step toward the target."""
        missing = (self.target - v) * others.need("mass") / nu - others.push
        return replace(others, push=others.push + missing, count=others.count + 1)


@dataclass(frozen=True)
class Hollow:
    """A negative mass: the push stays as short as honest ones are, and the step becomes long.

    The total is one that honest devices could have, so the secure sum does not notice.
    """

    left: float

    def __call__(self, _v: Vector, _nu: float, others: Sum) -> Sum:
        """Leave that share of the mass of the others."""
        mass = self.left * others.need("mass")
        return replace(
            others, mass=mass, squares=min(others.need("squares"), mass), count=others.count + 1
        )


def aggregate_with(
    others: Floats, answer: Answer | None = None, vector: Vector | None = None
) -> Vector:
    """The approximate median of the others, and of one that sends a vector or answers at will."""
    points = others if vector is None else np.vstack([others, vector])
    ask: SumOracle = PlainOracle(points)
    if answer is not None:
        ask = ByzantineOracle(ask, answer)
    return weiszfeld(ask, np.zeros_like(others[0]), nu=NU, steps=STEPS)


def honest_cohort(m: int = 19, d: int = 10) -> Floats:
    """Updates of m honest devices, of length about one."""
    return stream(1, "byzantine").standard_normal((m, d)) / np.sqrt(d)


def byzantine_table(lengths: Sequence[float] = (1e1, 1e3, 1e6, 1e12)) -> Table:
    """How far one device of twenty moves the aggregate, by what it is able to do."""
    others = honest_cohort()
    without = aggregate_with(others)
    far = np.ones(others.shape[1]) / np.sqrt(others.shape[1])

    def moved(answer: Answer | None = None, vector: Vector | None = None) -> float:
        return float(np.linalg.norm(aggregate_with(others, answer, vector) - without))

    rows = [
        [length, moved(vector=length * far), moved(Drag(length * far)), moved(Hollow(1 / length))]
        for length in lengths
    ]
    head = ["size of the lie", "one vector (update poisoning)", "a push at will", "a mass at will"]
    return Table("How far one device of twenty moves the aggregate", head, rows)
