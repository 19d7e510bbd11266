"""Over the rounds that terms allow, no device's update, weight or metric is determined.

`RFA_OPENED_COHORT=60` looks at every round of every cohort up to that size; by default at some.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rfa.secagg.security import rules, terms
from rfa.secagg.security.parameters import LEAST_HONEST
from rfa.secagg.security.terms import Terms
from tests.secagg.opened import OpenedSum, Population, Prior, analyze
from tests.secagg.opened_runs import allowed, departures, rounds, told_too_much

DIM = 12
"""With fewer coordinates it happens that an update lies at v, and then stands out."""
OFFERS = (
    Terms(),
    Terms(colluder_fraction=0, max_dropout_fraction=0),
    Terms(colluder_fraction=0.2, min_honest_fraction=0.3),
    # So many may drop out that some may leave between two sums.
    Terms(colluder_fraction=0.05, max_dropout_fraction=0.55, min_honest_fraction=0.05),
)
LARGEST = int(os.environ.get("RFA_OPENED_COHORT", "0"))
COHORTS = range(3, LARGEST + 1) if LARGEST else (3, 4, 5, 19, 28, 52, 60)
STRIDE = 1 if LARGEST else 11
"""Which of the rounds are looked at; 11 has no factor in common with the number of kinds."""
BUDGET = 4
SMALL = (3, 4, 5, 6)


@pytest.mark.parametrize("offer", OFFERS, ids=str)
def test_no_round_that_terms_allow_determines_a_device(offer: Terms) -> None:
    wrong: list[str] = []
    looked_at = 0
    every = enumerate(rounds([offer], COHORTS, BUDGET))
    for seed, what in itertools.islice(every, 0, None, STRIDE):
        looked_at += 1
        wrong += told_too_much(what, np.random.default_rng(seed), DIM)
    assert looked_at > 20
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("offer", OFFERS, ids=str)
def test_no_evaluation_that_terms_allow_determines_a_count_or_a_metric(offer: Terms) -> None:
    """All devices bring the same in place of an update, and it is known; all scalars are opened."""
    rng = np.random.default_rng(0)
    for cohort in COHORTS:
        parameters = allowed(offer, cohort, 1)
        if parameters is not None:
            counts = rng.uniform(0.1, 1, parameters.honest)
            truth = Population(np.ones((1, len(counts), DIM)), counts)
            one = OpenedSum(np.zeros(DIM), 100.0, tuple(range(len(counts))), 1e-9)
            found = analyze(truth, [one], Prior(update=0.0, weight=0.3))
            assert not found.weights.determined.any(), parameters
            assert found.metrics.share.max() <= 1 / 3 + 1e-9, parameters


def test_rounds_of_many_kinds_are_looked_at() -> None:
    """The sweep is not empty where it matters."""
    found = list(rounds(OFFERS, (19, 52, 60), BUDGET))
    assert {len(what.departures) for what in found} == {1, 2, 3, 4}
    assert {type(what.aggregator).__name__ for what in found} == {
        "OneStepRFA",
        "RFA",
        "CenteredClipping",
        "SubCohorts",
        "Groups",
    }
    assert any(any(what.departures[1:]) for what in found), "nobody leaves between two sums"
    assert any(what.colluders for what in found)


def test_without_the_rule_on_queries_the_sweep_finds_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def three(*_: Any) -> int:
        return LEAST_HONEST

    monkeypatch.setattr(terms, "honest_needed", three)
    wrong = _found(OFFERS, SMALL)
    for reason in ("an update is determined", "a weight is determined", "of the spread"):
        assert any(reason in text for text in wrong), reason


def test_with_the_floor_alone_the_sweep_finds_devices_that_are_nearly_told() -> None:
    """More honest devices than sums: nothing is determined, and much of some devices is told."""
    wrong = _found([dataclasses.replace(offer, honest_per_query=0) for offer in OFFERS], SMALL)
    assert any("of the spread" in text for text in wrong)
    assert not any("an update is determined" in text for text in wrong)


def test_without_the_rule_on_drop_outs_the_sweep_finds_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def anyone_may_leave(*_: Any, **__: Any) -> bool:
        return True

    monkeypatch.setattr(rules, "may_follow", anyone_may_leave)
    wrong = _found([OFFERS[0]], [28])
    assert any("a metric is determined" in text for text in wrong)
    assert any("an update is" in text and "near median True" in text for text in wrong)


def test_the_rules_refuse_what_the_sweep_would_find() -> None:
    for cohort in SMALL:
        assert all(allowed(offer, cohort, 2) is None for offer in OFFERS)
    parameters = allowed(OFFERS[0], 28, 2)
    assert parameters is not None
    assert all(not any(leaving[1:]) for leaving in departures(parameters, 2))


def _found(offers: Sequence[Terms], cohorts: Sequence[int]) -> list[str]:
    every = enumerate(rounds(offers, cohorts, BUDGET))
    return [
        text
        for seed, what in itertools.islice(every, 0, None, STRIDE)
        for text in told_too_much(what, np.random.default_rng(seed), DIM)
    ]
