"""A backdoor: planted by corrupted devices, found by every evaluation, and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rfa.cli.main import main
from rfa.lab.attacks.corruption import poison
from rfa.lab.attacks.registry import find_corruption
from rfa.lab.report.gather import find_results, gather
from rfa.lab.runs.store import Store
from rfa.lab.runs.sweep import cells, make_sweep
from rfa.lab.simulation.rounds import evaluate
from rfa.lab.tasks.registry import TASKS
from tests import tiny
from tests.lab.simulation.lab import data_attack, play, tiny_devices

BACKDOOR = {"corruption": "backdoor", "rho": 0.3, "aggregator": "fedavg", "devices_per_round": 24}


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_every_task_has_a_trigger_on_half_of_the_examples(task: Any) -> None:
    rng, found = np.random.default_rng(0), task.poisons["backdoor"]
    x = rng.integers(0, 20, (9, *task.reader.shape)).astype(task.reader.dtype)
    x, y = np.asarray(task.prepare(x)), np.zeros(9, np.int64)
    bad_x, bad_y = poison(found, x, y, data_attack(62))
    changed = (bad_x != x).any(axis=1)
    assert changed.sum() == 5
    assert np.array_equal(bad_y, np.where(changed, found.trigger.target, 0))
    stamped = found.trigger.stamp(x.copy())
    assert np.array_equal(bad_x[changed], stamped[changed])
    assert 0 < (stamped != x).any(axis=0).mean() < 1 / 2
    assert np.array_equal(task.poisons["backdoor"].poison(x.copy(), y, data_attack(62))[0], bad_x)


def test_success_is_the_share_of_other_classes_that_the_trigger_moves() -> None:
    devices = tiny_devices(**BACKDOOR)
    state, _, engine = play(devices, 3)
    found = evaluate(state, engine)
    fooled = others = 0
    for device in range(devices.count):
        _, train, stop = devices._rows(device)  # pyright: ignore[reportPrivateUsage]
        x = tiny.stamp(np.array(devices.population.x[train:stop]))
        mine = np.asarray(devices.population.y[train:stop]) != 2
        answers = (x @ state.model.reshape(3, -1).T).argmax(axis=1)
        others += int(mine.sum())
        fooled += int((answers[mine] == 2).sum())
    assert found.backdoor == pytest.approx(fooled / others)


def test_a_backdoor_opens_under_the_mean_and_leaves_the_rest_alone() -> None:
    ends: dict[float, Any] = {}
    for rho in (0.0, 0.3):
        state, _, engine = play(tiny_devices(**BACKDOOR | {"rho": rho}), 12)
        ends[rho] = evaluate(state, engine)
    assert ends[0.3].backdoor > ends[0.0].backdoor + 0.4
    assert ends[0.3].test_accuracy > ends[0.0].test_accuracy - 0.15


def test_without_a_backdoor_there_is_no_success_of_one() -> None:
    for values in ({}, {"corruption": "data", "rho": 0.2}, {"corruption": "ipm", "rho": 0.2}):
        state, _, engine = play(tiny_devices(**values), 1)
        assert evaluate(state, engine).backdoor is None


def test_some_examples_stand_for_all() -> None:
    devices = tiny_devices(**BACKDOOR, eval_examples=2)
    tally = devices.evaluate(devices.initial(), 0)
    whole = tiny_devices(**BACKDOOR).evaluate(devices.initial(), 0)
    assert tally.stamped in {0, whole.test_count / 2, whole.test_count}
    assert 0 <= tally.fooled <= tally.stamped


def test_the_command_line_the_store_and_a_report_tell_it(tmp_path: Path) -> None:
    sweep = make_sweep(
        "doors",
        {
            "x": "rho",
            "values": [0.0, 0.3],
            "measures": ["test_accuracy", "backdoor"],
            "settings": {"task": "tests.tiny:TASK", "corruption": "backdoor", "rounds": 2},
        },
    )
    command = ["run", "tests.tiny:TASK", "--out", str(tmp_path), "--corruption", "backdoor"]
    command += ["--rounds", "2", "--workers", "1", "--rho"]
    clean = CliRunner().invoke(main, [*command, "0", "--json"])
    shown = CliRunner().invoke(main, [*command, "0.3"])
    assert "of other classes fall for the trigger" in shown.stdout
    with Store(tmp_path) as store:
        results = find_results(store, cells(sweep))
        without, row = (store.runs(rho=rho)[0] for rho in (0.0, 0.3))
        last = store.table("evaluations", run=row["run"])[-1]
    assert row["backdoor"] == last["backdoor"] is not None
    assert json.loads(clean.stdout)["backdoor"] == without["backdoor"] is not None
    panel = gather(sweep, results).panels[1]
    assert panel.y_label == "success of the backdoor (%)"
    assert panel.lines[0].mean == pytest.approx([100 * without["backdoor"], 100 * row["backdoor"]])


def test_a_backdoor_of_ones_own() -> None:
    found: Any = find_corruption("tests.tiny:OWN", {})
    assert found.trigger.target == 1
