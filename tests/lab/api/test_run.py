"""The lab from Python does what the command line does, and gives it back as tables."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rfa import lab
from rfa.cli.main import main
from rfa.errors import InvalidTypeError, InvalidValueError, PluginError
from rfa.lab.runs.store import StoreError

TINY = "tests.tiny:TASK"
SMALL: dict[str, Any] = {"workers": 1, "progress": False}


def test_it_is_the_run_of_the_command_line(tmp_path: Path) -> None:
    result = lab.run(
        TINY, aggregator="rfa", corruption="omniscient", rho=0.2, rounds=6, out=tmp_path, **SMALL
    )
    options = ["--corruption", "omniscient", "--rho", "0.2", "--rounds", "6", "--json"]
    shown = CliRunner().invoke(main, ["run", TINY, *options, "--out", str(tmp_path)])
    assert "was done before" in shown.stderr
    row = json.loads(shown.stdout)
    assert (row["run"], row["model_sha256"]) == (result.name, result.row["model_sha256"])
    fresh = CliRunner().invoke(main, ["run", TINY, *options, "--out", str(tmp_path / "other")])
    assert json.loads(fresh.stdout)["model_sha256"] == result.model.sha256


def test_what_a_result_has(tmp_path: Path) -> None:
    result = lab.run(TINY, corruption="data", rho=0.3, rounds=5, out=tmp_path, **SMALL)
    assert result.status == "finished"
    assert result.evaluations["round"].tolist() == [0, 4, 5]
    assert result.evaluations["test_accuracy"][-1] == result.test_accuracy
    assert result.evaluations["honest_accuracy"][-1] == result.honest_accuracy
    assert result.honest_accuracy != result.test_accuracy
    assert len(result.rounds) == 5
    assert set(result.devices["corrupted"].tolist()) == {True, False}
    assert result.settings == lab.Settings.of(TINY, corruption="data", rho=0.3, rounds=5)
    assert result.model.sha256 == result.row["model_sha256"]
    again = lab.load_run(result.name[-6:], tmp_path)
    assert (again.name, again.status, again.settings) == (result.name, "finished", result.settings)
    assert lab.list_runs(tmp_path)["run"].tolist() == [result.name]
    assert f"({result.honest_accuracy:.1%})" in str(result).replace("honest ", "")
    assert result.name in result._repr_html_()  # pyright: ignore[reportPrivateUsage]
    figure = result.plot("train_loss")
    line = figure.axes[0].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), result.evaluations["train_loss"])
    for line, name in zip(result.plot().axes[0].lines, ("test", "honest"), strict=True):
        wanted = 100 * result.evaluations[f"{name}_accuracy"]
        np.testing.assert_allclose(line.get_ydata(), wanted)
    with pytest.raises(InvalidValueError, match="no column of numbers: there are rho, seed, round"):
        result.plot("aggregator")


def test_settings_are_a_way_to_give_all_of_them(tmp_path: Path) -> None:
    settings = lab.Settings.of(TINY, rounds=3, seed=4)
    result = lab.run(settings, out=tmp_path, **SMALL)
    assert result.settings == settings
    assert lab.Settings.of(TINY, rounds=np.int32(3), seed=np.int64(4)) == settings
    changed = lab.run(settings, seed=5, out=tmp_path, **SMALL)
    assert changed.settings == settings.replace(seed=5)
    assert changed.name != result.name


def test_what_is_not_given_is_the_paper_s() -> None:
    settings = lab.Settings.of("emnist-linear")
    assert (settings.training.learning_rate, settings.rounds) == (0.08, 2000)


def test_functions_see_the_run_and_stop_it(tmp_path: Path) -> None:
    seen: list[Any] = []
    how: dict[str, Any] = {"rounds": 8, "out": tmp_path, **SMALL}
    result = lab.run(
        TINY,
        on_round=lambda run, facts: seen.append((run.round, len(facts.devices))),
        on_evaluation=lambda run, evaluation: run.stop("enough") if evaluation.round else None,
        **how,
    )
    assert (result.status, result.row["rounds"], result.row["stop_reason"]) == (
        "stopped",
        4,
        "enough",
    )
    assert [number for number, _ in seen] == [1, 2, 3, 4]
    whole = lab.run(TINY, **how)
    alone = lab.run(TINY, rounds=8, out=tmp_path / "alone", **SMALL)
    assert whole.status == "finished"
    assert whole.model.sha256 == alone.model.sha256
    for name in set(whole.evaluations.columns) - {"seconds"}:
        np.testing.assert_array_equal(whole.evaluations[name], alone.evaluations[name])


def _other(rows: Any) -> Any:
    return 5 * rows


CONSTANT = """
from rfa.lab import corrupts_updates
SCALE = 2.0
def scaled(rows):
    return -SCALE * rows
@corrupts_updates
def attack(attack):
    return scaled(attack.updates[attack.corrupted])
"""


def test_a_module_s_constant_that_somebody_set_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "constant_attack.py").write_text(CONSTANT)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    module: Any = importlib.import_module("constant_attack")
    how: dict[str, Any] = {"rho": 0.3, "rounds": 2, "out": tmp_path / "out", **SMALL}
    assert lab.run(TINY, corruption=module.attack, **how).status == "finished"
    monkeypatch.setattr(module, "SCALE", 9.0)
    with pytest.raises(PluginError, match=r"constant_attack\.SCALE is not what its file says"):
        lab.run(TINY, corruption=module.attack, **how)
    monkeypatch.setattr(module, "SCALE", 2.0)
    assert lab.run(TINY, corruption=module.attack, **how).status == "finished"
    monkeypatch.setattr(module, "scaled", _other)
    with pytest.raises(PluginError, match=r"constant_attack\.scaled is not what its file says"):
        lab.run(TINY, corruption="constant_attack:attack", **how)


SCRIPT = """
import sys
import numpy as np
from rfa import lab

STRENGTH = float(sys.argv[2])

@lab.corrupts_updates
def backwards(attack, *, scale=STRENGTH):
    return -scale * attack.updates[attack.corrupted]

class Median(lab.ClearAggregator):
    def aggregate(self, points, weights):
        return np.median(points, axis=0)

if __name__ == "__main__":
    how = dict(rounds=3, out=sys.argv[1], progress=False)
    result = lab.run("tests.tiny:TASK", corruption=backwards, rho=0.3, aggregator=Median(), **how)
    study = lab.sweep("tests.tiny:TASK", corruption=backwards, rho=[0, 0.3],
                      aggregator=["fedavg", Median()], **how)
    assert study.axes["aggregator"] == ("fedavg", "Median"), study.axes
    both = study.table.where(aggregator="Median", rho=0.3)
    assert both["run"].tolist() == [result.name]
    print(result.name, result.model.sha256)
"""


def test_objects_of_a_script_are_taken_and_told_apart(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def play(strength: str) -> list[str]:
        command = [sys.executable, str(script), str(tmp_path / "out"), strength]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first, again, other = play("2"), play("2"), play("3")
    assert first == again
    assert other[0] != first[0], "another attack is another run"
    assert other[1] != first[1]


class Misspelled(lab.Callback):
    def on_rounds(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"agregator": "rfa"}, ValueError, "no setting is called 'agregator'"),
        ({"rounds": "ten"}, ValueError, "rounds must be a whole number, not 'ten'"),
        ({"aggregator": 3}, ValueError, "aggregator must be text, not 3"),
        ({"aggregator": "krum", "budget": 3}, ValueError, "budget=3 is not for krum"),
        ({"rho": 0.2}, ValueError, "rho=0.2 needs a corruption"),
        (
            {"corruption": "omniscient"},
            ValueError,
            "'omniscient' needs a level: give rho",
        ),
        ({"engine": "cloud"}, ValueError, "the engine is 'lab' or 'flower'"),
        ({"federation": "mine"}, ValueError, "a federation is Flower's"),
        ({"engine": "flower", "callbacks": [lab.Callback()]}, ValueError, "elsewhere"),
        ({"callbacks": [print]}, InvalidTypeError, "callback"),
        ({"callbacks": None}, InvalidTypeError, "callbacks must be a list"),
        ({"callbacks": [Misspelled()]}, InvalidTypeError, "Misspelled.on_rounds would never be"),
        ({"on_round": 3}, InvalidTypeError, "on_round must be a function"),
        ({"checkpoint_every": 0}, ValueError, "checkpoint_every must be a whole number from 1"),
        ({"workers": "2"}, ValueError, "workers must be a whole number from 1 on, not '2'"),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path, given: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        lab.run(TINY, out=tmp_path, progress=False, **given)


def test_a_folder_without_results(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no results"):
        lab.load_run("x", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_the_names_of_the_lab_are_there_and_no_others() -> None:
    assert all(getattr(lab, name) is not None for name in lab.__all__)
    with pytest.raises(AttributeError, match=r"rfa\.lab has no 'Bananas': it has RFA"):
        _ = lab.Bananas  # type: ignore[attr-defined]
