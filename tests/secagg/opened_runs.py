"""Rounds whose opened sums are analyzed: populations, what aggregators ask, what terms allow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rfa import PlainOracle, geometric_median
from rfa._types import Floats
from rfa.aggregators import RFA, CenteredClipping, Groups, OneStepRFA, SubCohorts, SumAggregator
from rfa.errors import OracleStoppedError
from rfa.oracle import Sum
from rfa.secagg.errors import ParameterError
from rfa.secagg.fixed_point import Encoding
from rfa.secagg.security import rules
from rfa.secagg.security.parameters import Parameters
from rfa.secagg.security.terms import Terms
from tests.secagg.opened import (
    Exposure,
    OpenedSum,
    Population,
    analyze,
    rounding_noise,
    spread,
)

LEAST_ERROR = 0.1
"""No update may be known better than to this share of the spread of the updates."""


def population(
    rng: np.random.Generator, devices: int, dim: int, *, weights: str = "examples"
) -> Population:
    """Comparable devices: lengths within a factor of 3, weights within a factor of 2, or equal."""
    lengths = rng.uniform(0.5, 1.5, (devices, 1))
    updates = lengths * rng.standard_normal((devices, dim)) / np.sqrt(dim)
    alphas = np.ones(devices) if weights == "equal" else rng.uniform(0.5, 1, devices)
    return Population(updates[None], alphas)


def converged(truth: Population) -> Population:
    """The same around a model that is their median: v hardly moves in a round."""
    center = geometric_median(truth.updates[0], truth.weights).point
    return Population(truth.updates - center, truth.weights)


def typical(truth: Population) -> float:
    """The median length of the updates: twice the radius that is learned."""
    return float(np.median(np.linalg.norm(truth.updates[0], axis=1)))


def opened(
    truth: Population,
    aggregator: SumAggregator[Any],
    parts: Sequence[Sequence[Sequence[int]]],
    cohort: int,
) -> list[OpenedSum]:
    """The sums that an aggregator opens in a round.

    Args:
        truth: what honest devices hold.
        aggregator: what asks.
        parts: for each part of the cohort, who is in each of its sums.
        cohort: the devices of a part, colluders among them, by which numbers are scaled.
    """
    found: list[OpenedSum] = []

    def oracle_of(survivors: Sequence[Sequence[int]]) -> Any:
        turns = iter(survivors)

        def ask(v: Floats, nu: Any) -> Sum:
            members = next(turns, None)
            if members is None:
                msg = "no more sums"
                raise OracleStoppedError(msg)
            noise = rounding_noise(Encoding(cohort).scale, len(members))
            found.append(OpenedSum(np.array(v), nu, tuple(members), noise))
            rows = list(members)
            return PlainOracle(truth.updates[0, rows], truth.weights[rows])(v, nu)

        return ask

    aggregator([oracle_of(survivors) for survivors in parts], truth.updates.shape[2])
    return found


@dataclass(frozen=True)
class Round:
    """A round that terms allow.

    Attributes:
        parameters: of a part.
        aggregator: what asks, with radii in units of the typical distance.
        departures: how many devices leave before each query of a part; at first the drop-outs
            before any sum.
        colluders: how many of a part tell the server what they know.
        weights: "examples" or "equal".
        near_median: whether the model is the median of the updates.
    """

    parameters: Parameters
    aggregator: SumAggregator[Any]
    departures: tuple[int, ...]
    colluders: int
    weights: str
    near_median: bool

    def __str__(self) -> str:
        """What to look for when it is exposed."""
        return (
            f"{self.parameters}, {self.aggregator}, departures {self.departures}, "
            f"{self.colluders} colluders, {self.weights} weights, near median {self.near_median}"
        )


def allowed(terms: Terms, cohort: int, queries: int) -> Parameters | None:
    """The parameters of a part of this size that answers so many queries; None if it refuses."""
    try:
        return terms.parameters(cohort, queries)
    except ParameterError:
        return None


def departures(parameters: Parameters, queries: int) -> Iterator[tuple[int, ...]]:
    """How many devices may leave before each query: all at first, or the fewest in between."""
    f, n = parameters.num_dropouts, parameters.cohort
    yield (0,) * queries
    if f:
        yield (f,) + (0,) * (queries - 1)
    everyone = frozenset(range(n))
    for query in range(1, queries):
        for gone in range(1, f + 1):
            left = frozenset(range(gone, n))
            if rules.may_follow(parameters, everyone, left, same_query=False):
                yield (0,) * query + (gone,) + (0,) * (queries - query - 1)
                break


def aggregators(largest: int) -> Iterator[SumAggregator[Any]]:
    """What may ask a cohort, with radii as shares of the typical distance; 1/2 is learned."""
    yield OneStepRFA(nu=0.5)
    for budget in range(2, largest + 1):
        yield RFA(nu=0.5, budget=budget)
        yield RFA(nu=0.1, budget=budget)
        yield RFA(nu=0.5, budget=budget, start="mean")
        yield CenteredClipping(clip_norm=0.5, budget=budget)
        yield SubCohorts(RFA(nu=0.5, budget=budget))
        for groups in (2, 3):
            yield Groups(RFA(nu=0.5, budget=budget), groups)
    yield RFA(nu=0.5, budget=3, schedule="accelerated")


def rounds(terms: Sequence[Terms], cohorts: Sequence[int], largest: int) -> Iterator[Round]:
    """Every round that terms allow."""
    for offer, cohort, aggregator in itertools.product(terms, cohorts, aggregators(largest)):
        layout = aggregator.layout(cohort)
        part = cohort // layout.parts
        parameters = allowed(offer, part, layout.queries)
        if parameters is None:
            continue
        kinds = itertools.product(
            departures(parameters, layout.queries),
            {0, parameters.num_colluders},
            ("examples", "equal"),
            (False, True),
        )
        for leaving, colluders, weights, near in kinds:
            yield Round(parameters, aggregator, leaving, colluders, weights, near)


def exposure(what: Round, rng: np.random.Generator, dim: int) -> Exposure:
    """What a round tells of its honest devices; those who leave are honest but for colluders."""
    size, parts = what.parameters.cohort, what.aggregator.layout(what.parameters.cohort).parts
    honest = size - what.colluders
    truth = population(rng, parts * honest, dim, weights=what.weights)
    truth = converged(truth) if what.near_median else truth
    truth = Population(truth.updates / typical(truth), truth.weights)
    gone = np.cumsum([_honest_leavers(what, leaving) for leaving in what.departures])
    members = [
        [range(part * honest + count, (part + 1) * honest) for count in gone]
        for part in range(parts)
    ]
    sums = opened(truth, what.aggregator, members, size)
    return analyze(truth, sums, spread(truth))


def _honest_leavers(what: Round, leaving: int) -> int:
    """Those who leave between sums hold all colluders, which is worst; before, none."""
    between = leaving and not what.departures[0]
    return max(0, leaving - what.colluders) if between else leaving


def told_too_much(what: Round, rng: np.random.Generator, dim: int) -> list[str]:
    """What a round determines of a device, or nearly does."""
    found = exposure(what, rng, dim)
    kinds = {"an update": found.updates, "a metric": found.metrics}
    if what.weights == "examples":
        kinds["a weight"] = found.weights
    wrong = [f"{name} is determined" for name, kind in kinds.items() if kind.determined.any()]
    error = float(np.sqrt(max(0.0, 1 - found.updates.share.max())))
    if error < LEAST_ERROR:
        wrong.append(f"an update is known to {error:.2g} of the spread")
    return [f"{reason}: {what}" for reason in wrong]
