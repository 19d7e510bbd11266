"""Scales: how much of an experiment is done, and which settings win."""

from __future__ import annotations

from typing import Any

import pytest

from rfa.lab.paper.scale import Scale, merge, scaled_cells
from rfa.lab.runs.sweep import make_sweep

TASK = "tests.tiny:TASK"
PLAN: dict[str, Any] = {
    "x": "rho",
    "values": [0.0, 0.1, 0.25],
    "settings": {"task": TASK, "corruption": "data"},
    "lines": [
        {"label": "RFA", "aggregator": "rfa"},
        {"label": "few", "aggregator": "rfa", "devices_per_round": 3},
        {"label": "SGD", "aggregator": "sgd"},
    ],
}
SWEEP = make_sweep("mine", PLAN)


def runs(**scale: Any) -> dict[tuple[str, float], list[Any]]:
    found: dict[tuple[str, float], list[Any]] = {}
    for cell in scaled_cells(SWEEP, Scale("s", "s", [1, 2], **scale)):
        found.setdefault((cell.line, cell.value), []).append(cell.settings)
    return found


def test_a_scale_gives_seeds_and_settings() -> None:
    found = runs(tasks={TASK: {"calls": 12, "devices_per_round": 6}})
    assert [s.seed for s in found["RFA", 0.1]] == [1, 2]
    assert {s.rounds for s in found["RFA", 0.1]} == {4}
    assert {s.training.devices_per_round for s in found["RFA", 0.1]} == {6}
    assert {s.training.devices_per_round for s in found["few", 0.1]} == {3}  # the figure's own wins


def test_a_task_may_have_seeds_and_levels_of_its_own() -> None:
    found = runs(tasks={TASK: {"seeds": [7], "levels": [0.0, 0.25]}})
    assert {value for _, value in found} == {0.0, 0.25}
    assert [s.seed for s in found["RFA", 0.25]] == [7]


def test_an_experiment_in_the_scale_wins_over_all() -> None:
    own = {"mine": {"seeds": [3], "values": [0.1], "devices_per_round": 4, "rounds": 2}}
    found = runs(experiments=own, tasks={TASK: {"calls": 12}})
    assert set(found) == {("RFA", 0.1), ("few", 0.1), ("SGD", 0.1)}
    assert {
        (s.seed, s.training.devices_per_round, s.rounds) for some in found.values() for s in some
    } == {(3, 4, 2)}


def test_an_experiment_may_have_settings_by_task() -> None:
    by_task = {TASK: {"rounds": 5}, "glyphs-linear": {"learning_rate": 7.0}}
    found = runs(experiments={"mine": {"rounds": 2, "devices_per_round": 4, "tasks": by_task}})
    assert {
        (s.rounds, s.training.devices_per_round, s.training.learning_rate)
        for s in found["RFA", 0.1]
    } == {(5, 4, 0.1)}


def test_minibatch_sgd_keeps_its_one_step() -> None:
    found = runs(tasks={TASK: {"local_steps": 5, "batch_size": 2}})
    assert {s.training.local_steps for s in found["RFA", 0.1]} == {5}
    assert {(s.training.local_steps, s.training.batch_fraction) for s in found["SGD", 0.1]} == {
        (1, 0.1)
    }


@pytest.mark.parametrize(
    ("layers", "merged"),
    [
        (({"calls": 6}, {"rounds": 2}), {"rounds": 2}),
        (({"rounds": 2}, {"calls": 6}), {"calls": 6}),
        (({"rounds": 2}, {"learning_rate": 1}, {"rounds": 3}), {"rounds": 3, "learning_rate": 1}),
    ],
)
def test_rounds_and_calls_replace_each_other(layers: Any, merged: Any) -> None:
    assert merge(*layers) == merged


def test_what_is_said_of_a_task_holds_for_its_variants_unless_they_are_named() -> None:
    ink = "emnist-linear:polarity=ink"
    lines = [{"label": "RFA", "aggregator": "rfa"}]
    sweep = make_sweep("mine", {"settings": {"task": ink}, "lines": lines})
    tables = {"emnist-linear": {"calls": 12, "seeds": [7]}, ink: {"rounds": 5}}
    (cell,) = scaled_cells(sweep, Scale("s", "s", [1, 2], tasks=tables))
    assert (cell.settings.task, cell.settings.rounds, cell.settings.seed) == (ink, 5, 7)
    del tables[ink]
    (cell,) = scaled_cells(sweep, Scale("s", "s", [1, 2], tasks=tables))
    assert cell.settings.rounds == 4
