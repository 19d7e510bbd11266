"""Sweeps from Python: every combination once, in tidy tables, with intervals over seeds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa import lab
from rfa.lab.runs.statistics import mean_interval, student

TINY = "tests.tiny:TASK"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> lab.Study:
    return lab.sweep(
        TINY,
        corruption="omniscient",
        aggregator=["fedavg", lab.RFA(budget=2), lab.RFA(budget=4)],
        rho=[0, 0.3],
        seed=range(1, 4),
        rounds=4,
        out=tmp_path_factory.mktemp("out"),
        progress=False,
    )


def test_every_combination_is_a_row(study: lab.Study) -> None:
    assert study.axes == {
        "aggregator": ("fedavg", "RFA(budget=2)", "RFA(budget=4)"),
        "rho": (0, 0.3),
        "seed": (1, 2, 3),
    }
    table = study.table
    assert len(table) == 18
    assert table.columns[:3] == ("aggregator", "rho", "seed")
    assert set(table.where(rho=0)["corruption"].tolist()) == {"none"}
    assert set(table.where(rho=0.3)["corruption"].tolist()) == {"omniscient"}
    assert table.where(aggregator="RFA(budget=4)")["oracle_calls"].max() == 16
    assert [result.name for result in study.results] == table["run"].tolist()
    assert len(study.evaluations) == 18 * 2
    assert len(study.rounds) == 18 * 4


def test_a_row_is_the_run_alone(study: lab.Study) -> None:
    alone = lab.run(
        TINY,
        corruption="omniscient",
        aggregator=lab.RFA(budget=4),
        rho=0.3,
        seed=2,
        rounds=4,
        out=study.out / "alone",
        progress=False,
    )
    (row,) = study.table.where(aggregator="RFA(budget=4)", rho=0.3, seed=2)
    assert row["model_sha256"] == alone.model.sha256


def test_means_have_student_s_interval(study: lab.Study) -> None:
    means = study.means()
    assert len(means) == 6
    (row,) = means.where(aggregator="fedavg", rho=0.3)
    values = study.table.where(aggregator="fedavg", rho=0.3)["test_accuracy"]
    reach = 4.302653 * np.std(values, ddof=1) / math.sqrt(3)
    assert row["test_accuracy"] == pytest.approx(values.mean())
    assert (row["high"] - row["low"]) / 2 == pytest.approx(reach)
    assert row["runs"] == 3
    one = mean_interval([0.5])
    assert (one.mean, one.count) == (0.5, 1)
    assert math.isnan(one.low)
    assert student(30) == pytest.approx(2.0422725)
    assert student(31) == pytest.approx(2.0395134)
    assert student(10**6) == pytest.approx(1.96, abs=1e-4)


def test_pictures(study: lab.Study) -> None:
    figure = study.plot(x="rho")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(
        study.axes["aggregator"]
    )
    means = study.means().where(aggregator="fedavg")
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 100 * means["test_accuracy"])
    curves = study.plot(x="round", y="train_loss", panels="rho")
    assert [panel.get_title() for panel in curves.axes] == ["rho 0", "rho 0.3"]
    part = study.where(rho=0.3).plot(x="aggregator", y="honest_accuracy")
    assert len(part.axes[0].lines) == 1
    with pytest.raises(ValueError, match="rho would be averaged over"):
        study.plot(x="round", by="aggregator", panels="seed")
    with pytest.raises(ValueError, match="no column is called 'speed'"):
        study.plot(x="rho", y="speed")
    with pytest.raises(ValueError, match="'speed' does not differ in this study"):
        study.plot(x="speed")
    limits = [panel.get_ylim() for panel in study.plot(x="round", panels="rho").axes]
    highest = 100 * study.evaluations["test_accuracy"].max()
    assert limits[0] == limits[1]
    assert limits[0][1] >= highest, "no panel cuts off another's lines"
    with pytest.raises(ValueError, match=r"rho=0.7 is not in the study: there are 0, 0.3"):
        study.where(rho=0.7)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rho": []}, r"rho=\[\] must have values"),
        ({"seed": [1, 1]}, "each of them once"),
        ({"aggregator": ["fedavg", "krum"], "budget": [2, 3]}, "budget is a parameter of none"),
        ({"agregator": ["rfa"]}, "no setting is called 'agregator'"),
        ({"rho": [0, 0.7, 1.2], "corruption": "data"}, "rho must be below 1"),
        ({"corruption": "data"}, "corruption='data' needs a level: give rho"),
        ({"callbacks": []}, "callbacks is for lab.run"),
        ({"jobs": -1}, "jobs must be a whole number from 0 on"),
    ],
)
def test_mistakes_are_named_before_anything_runs(
    tmp_path: Path, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        lab.sweep(TINY, out=tmp_path / "out", progress=False, **given)
    assert not (tmp_path / "out").exists()


def test_runs_that_fail_are_told_and_the_others_kept(tmp_path: Path) -> None:
    how: dict[str, Any] = {"rounds": 2, "out": tmp_path, "progress": False}
    with pytest.raises(lab.SweepError, match=r"1 of 2 runs failed.*\n.*devices_per_round=1000"):
        lab.sweep(TINY, devices_per_round=[4, 1000], **how)
    assert lab.list_runs(tmp_path)["status"].tolist() == ["finished"]


def test_settings_and_tables_of_settings_are_bases(tmp_path: Path) -> None:
    how: dict[str, Any] = {"out": tmp_path, "progress": False, "seed": np.arange(1, 3)}
    base = lab.Settings.of(TINY, rounds=2)
    first = lab.sweep(base, **how)
    second = lab.sweep({"task": TINY, "rounds": 2}, **how)
    assert first.table["run"].tolist() == second.table["run"].tolist()
    mixed = lab.sweep(base, aggregator=[lab.CoordinateMedian(), "rfa"], budget=2, **how)
    assert mixed.table.where(aggregator="rfa")["oracle_calls"].tolist() == [4, 4]
    assert mixed.axes["aggregator"] == ("CoordinateMedian()", "rfa")
