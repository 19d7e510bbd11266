"""What calls are worth, on a task that is small enough to check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rfa.lab.paper.calls import BUDGETS, HALF, SMALL, Worth, exhibit, measure
from rfa.lab.paper.frozen import frozen_run
from rfa.lab.paper.scale import Scale
from rfa.lab.runs.run import Options, run

TASK = "tests.tiny:TASK"
PLAN: dict[str, Any] = {
    "name": "calls",
    "title": "t",
    "claim": "c",
    "rounds": 4,
    "cases": [["none", 0.0], ["omniscient", 0.25], ["unknown", 0.1]],
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Worth]:
    out: Path = tmp_path_factory.mktemp("out")
    own = {TASK: {"devices_per_round": 24}}
    settings = frozen_run(TASK, Scale("s", "s", [1], own), PLAN)
    assert list(measure(settings, out, None, PLAN)) == []
    run(settings, Options(out, workers=1))
    return list(measure(settings, out, None, PLAN))


def test_more_calls_come_nearer(found: list[Worth]) -> None:
    assert [(one.case, one.radius) for one in found] == [
        (case, radius) for case in ("none", "omniscient 0.25") for radius in (SMALL, HALF)
    ]
    for one in found:
        for start in ("from zero", "from the mean"):
            plain = one.distance[f"plain, {start}"]
            assert sorted(plain, reverse=True) == plain
            assert one.distance[f"accelerated, {start}"][-1] < plain[-2]
            assert one.distance[f"accelerated, {start}"][:2] == plain[:2]


def test_one_part_is_one_step_and_the_first_call_from_the_mean_is_the_mean(
    found: list[Worth],
) -> None:
    for one in found:
        once = one.distance["plain, from zero"][0]
        assert one.distance["sub-cohorts, from zero"][0] == pytest.approx(once)
        assert one.distance["sub-cohorts, from zero"][2] > one.distance["plain, from zero"][2]
    assert found[2].distance["plain, from the mean"][0] > 1  # omniscient devices turn the mean
    assert found[0].bias < 1e-9 < found[1].bias


def test_the_exhibit_has_a_view_for_each_radius(found: list[Worth]) -> None:
    shown = exhibit(PLAN, found, {TASK: "tiny"})
    assert shown.views == [SMALL, HALF]
    assert [panel.title for panel in shown.panels[:2]] == ["tiny, none", "tiny, omniscient 0.25"]
    assert all(list(line.x) == list(BUDGETS) for panel in shown.panels for line in panel.lines)
    assert len(shown.tables[0].rows) == 4 * 5
