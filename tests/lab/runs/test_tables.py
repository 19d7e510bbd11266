"""Results as tidy tables: each row tells its run, and every number is that of the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.errors import InvalidValueError
from rfa.lab.runs.store import Store
from rfa.lab.runs.tables import devices_table, evaluations_table, rounds_table, runs_table
from rfa.lab.settings.settings import Settings
from tests.lab.runs.test_run import do

CASES: list[dict[str, Any]] = [
    {"aggregator": "rfa:budget=2", "corruption": "omniscient", "rho": 0.25},
    {"aggregator": "coordinate-median", "seed": 3, "devices": 20},
    {"budget": 4, "attackers": "random", "corruption": "sign-flip", "rho": 0.1},
]
LEADING = ("run", "task", "aggregator", "parameters", "corruption", "rho", "seed")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("tables")
    rows = [do(out, rounds=6, **values) for values in CASES]
    with Store(out) as kept:
        yield kept, [row["run"] for row in rows]


@pytest.mark.parametrize("make", [runs_table, evaluations_table, rounds_table, devices_table])
def test_every_row_tells_its_run(store: Any, make: Any) -> None:
    table = make(store[0])
    assert table.columns[: len(LEADING)] == LEADING
    assert set(table["run"]) == set(store[1])
    assert set(table["aggregator"]) == {"rfa", "coordinate-median"}
    by_run = {row["run"]: tuple(row[name] for name in LEADING[3:]) for row in table}
    first, clear, anew = (by_run[name] for name in store[1])
    assert "budget=2" in first[0].split(",")
    assert "budget=4" in anew[0].split(",")
    assert first[1:] == ("omniscient", 0.25, 1)
    assert clear == ("", "none", 0.0, 3)


def test_runs_can_be_chosen_and_unknown_ones_are_named(store: Any) -> None:
    kept, names = store
    assert list(runs_table(kept, [names[1]])["run"]) == [names[1]]
    assert set(evaluations_table(kept, names[:1])["run"]) == set(names[:1])
    assert len(rounds_table(kept, [])) == 0
    assert devices_table(kept, [])["accuracy"].dtype == np.float64
    with pytest.raises(InvalidValueError, match=r"no run is called 'x'.* `rfa runs`"):
        devices_table(kept, ["x"])


def test_numbers_are_those_of_the_store(store: Any) -> None:
    kept, names = store
    evaluations, runs = evaluations_table(kept, names[:1]), runs_table(kept, names[:1])
    rows = kept.table("evaluations", run=names[0])
    for name in ("round", "test_accuracy", "honest_accuracy", "train_loss", "test_loss"):
        assert evaluations[name].tolist() == [row[name] for row in rows]
    assert runs["honest_accuracy"][0] == evaluations["honest_accuracy"][-1]
    assert np.isnan(evaluations["backdoor"]).all()
    assert evaluations["round"].dtype == np.int64
    assert "device_accuracy" not in evaluations.columns
    last = evaluations_table(kept, last=True)
    assert last["round"].tolist() == [6, 6, 6]


def test_rounds_have_lists_of_devices(store: Any) -> None:
    kept, names = store
    table = rounds_table(kept, names[:1])
    rows = kept.table("rounds", run=names[0])
    assert table["round"].tolist() == [1, 2, 3, 4, 5, 6]
    assert [list(devices) for devices in table["devices"]] == [
        json.loads(row["devices"]) for row in rows
    ]
    assert table["rejected"].dtype == np.bool_
    assert all(sum(weights) == pytest.approx(1, abs=1e-4) for weights in table["weights"])
    clear = rounds_table(kept, names[1:2])
    assert set(clear["weights"]) == {None}
    assert clear["objective"].dtype == np.float64


def test_devices_have_a_row_each_for_every_evaluation(store: Any) -> None:
    kept, names = store
    table = devices_table(kept, names[:1])
    last = kept.table("evaluations", run=names[0])[-1]
    at_end = table.where(round=6)
    assert at_end["device"].tolist() == list(range(24))
    assert at_end["accuracy"].tolist() == json.loads(last["device_accuracy"])
    corrupted = json.loads(kept.runs(run=names[0])[0]["corrupted"])
    assert at_end.where(corrupted=True)["device"].tolist() == corrupted
    assert 0 < len(corrupted) < 24
    assert sorted(at_end["name"]) == [f"d{i:02}" for i in range(24)]
    assert len(table) == 24 * len(set(table["round"]))
    few, anew = (devices_table(kept, [name], last=True) for name in names[1:])
    assert few["name"].tolist() == at_end["name"][:20].tolist()
    assert not anew["corrupted"].any()


def test_the_median_honest_device_follows_from_the_rows(store: Any) -> None:
    kept, names = store
    honest = devices_table(kept, names[:1], last=True).where(corrupted=False)
    (row,) = runs_table(kept, names[:1])
    assert np.median(honest["accuracy"]) == pytest.approx(row["honest_median_device"], abs=1e-6)


def test_a_run_that_has_just_begun_has_no_numbers_yet(tmp_path: Path) -> None:
    with Store(tmp_path) as kept:
        kept.begin("r", Settings.of("tests.tiny:TASK"), {"data": "d", "corrupted": "[]"})
        (row,) = runs_table(kept)
        assert np.isnan(row["test_accuracy"])
        assert row["status"] == "running"
        assert len(devices_table(kept)) == len(rounds_table(kept)) == 0
