"""Frozen cohorts: Figure 1 on a task that is small enough to check."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.lab.paper.frozen import DISTANCE, WEIGHTS, Frozen, exhibit, freeze, frozen_run, span
from rfa.lab.paper.scale import Scale
from rfa.lab.runs.run import Options, run

PLAN: dict[str, Any] = {
    "name": "weiszfeld",
    "title": "t",
    "claim": "c",
    "paper": "p",
    "rounds": 4,
    "rho": 0.25,
    "steps": 60,
    "corruptions": ["none", "omniscient", "gaussian"],
}
TASK = "tests.tiny:TASK"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Frozen]:
    out = tmp_path_factory.mktemp("out")
    own = {TASK: {"calls": 99, "devices_per_round": 20}}
    settings = frozen_run(TASK, Scale("s", "s", [1], own), PLAN)
    assert settings.rounds == 4
    run(settings, Options(out, workers=1))
    return freeze(settings, out, None, PLAN)


def test_a_span_keeps_distances() -> None:
    rng = np.random.default_rng(1)
    points = (rng.standard_normal((7, 400)) + 1e3).astype(np.float32).astype(np.float64)
    small = span(points)
    assert small.shape == (7, 7)
    for i in range(7):
        want = np.linalg.norm(
            points.astype(np.float32).astype(float) - points[i].astype("f4"), axis=1
        )
        np.testing.assert_allclose(np.linalg.norm(small - small[i], axis=1), want, atol=1e-9)


def test_convergence_is_linear_near_the_median(found: list[Frozen]) -> None:
    assert [one.corruption for one in found] == ["none", "omniscient", "gaussian"]
    for one in found:
        assert one.distance[0] == 1
        assert one.distance[-1] < 1e-6
        late = one.distance[(one.distance < 1e-2) & (one.distance > 1e-9)]
        rates = late[1:] / late[:-1]
        assert rates.max() < 1
        assert rates.std() < 0.1  # a straight line in log scale
        assert (np.diff(one.objective) <= 1e-12).all()


STEPS = np.arange(1.0, 60)


@pytest.mark.parametrize(
    ("distance", "rate"),
    [
        (0.5**STEPS, 0.5),
        (STEPS**-2, None),  # slower than any rate
        (STEPS**-1, None),
        (np.maximum(0.1**STEPS, 5e-3), None),  # it stalls
    ],
    ids=["linear", "quadratic", "harmonic", "stalled"],
)
def test_a_rate_is_that_of_a_straight_line_in_log_scale(
    distance: Any, rate: float | None, found: list[Frozen]
) -> None:
    one = dataclasses.replace(found[0], distance=distance)
    assert one.rate == (rate if rate is None else pytest.approx(rate))


def test_omniscient_updates_weigh_less(found: list[Frozen]) -> None:
    clean, bad, _ = found
    assert clean.share == 0
    assert 0.1 < bad.share < 0.5
    assert bad.share_after < 0.5 * bad.share
    assert bad.ratio[bad.corrupted > 0].max() < bad.ratio[bad.corrupted == 0].min()
    assert bad.steps is not None


def test_the_exhibit_has_all_views(found: list[Frozen]) -> None:
    shown = exhibit(PLAN, found, {TASK: "tiny"})
    assert shown.views == [DISTANCE, "objective", WEIGHTS]
    weights = [panel for panel in shown.panels if panel.view == WEIGHTS]
    assert [panel.title for panel in weights] == ["tiny, omniscient", "tiny, gaussian"]
    assert sum(len(line.x) for line in weights[0].lines) == 20
    assert len(shown.tables[0].rows) == 3


def test_nothing_is_frozen_before_its_run_is_done(tmp_path: Path) -> None:
    settings = frozen_run(TASK, Scale("s", "s", [1]), PLAN)
    assert freeze(settings, tmp_path, None, PLAN) == []
