"""What runs learn from: partitions as settings, the digits, data of one's own, and --fresh."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rfa.cli.main import main
from rfa.errors import InvalidValueError
from rfa.lab.attacks.corruption import NoSuchAttackError
from rfa.lab.datasets.partition import Dirichlet
from rfa.lab.runs.jobs import do_work, plan_work
from rfa.lab.runs.run import Options, run
from rfa.lab.settings.fields import ConfigError
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.registry import TASKS
from rfa.lab.tasks.task import Task
from rfa.lab.training.devices import Devices

RNG = np.random.default_rng(2)
Y = np.arange(400) % 4
X = np.eye(4)[Y] + 0.3 * RNG.standard_normal((400, 4))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RFA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def own_task(**values: Any) -> Task:
    usual: dict[str, Any] = {"name": "four", "module": "linear", "devices": 8, "rounds": 8}
    usual["learning_rate"] = 1.0
    return Task.from_dataset((X, Y), **usual | values)


def do(settings: Settings, out: Path, **options: Any) -> dict[str, Any]:
    return run(settings, Options(out, workers=1, **options))


class TestSettings:
    def test_the_same_partition_is_the_same_run(self) -> None:
        texts: list[Any] = ["dirichlet:alpha=0.3", "dirichlet:seed=1,alpha=0.3", Dirichlet(0.3)]
        runs = [Settings.of("digits-linear", partition=each) for each in texts]
        assert len({each.run_name for each in runs}) == 1
        other = Settings.of("digits-linear", partition="dirichlet:alpha=0.3,seed=2")
        assert other.run_name != runs[0].run_name

    def test_a_task_has_its_own(self) -> None:
        assert Settings.of("digits-linear").training.partition == "iid"
        assert Settings.of("emnist-linear").training.partition == "device"
        task = own_task(partition=Dirichlet(1.0))
        assert Settings.of(task).training.partition == str(Dirichlet(1.0))

    @pytest.mark.parametrize("text", ["dirichlet:alpha=0", "by-hand", "dirichlet"])
    def test_what_has_no_meaning(self, text: str) -> None:
        with pytest.raises(ConfigError, match=r"partition|alpha"):
            Settings.of("digits-linear", partition=text)

    @pytest.mark.parametrize("name", ["learnin_rate", "aggregator", "budget"])
    def test_a_task_with_settings_that_do_not_exist(self, name: str) -> None:
        with pytest.raises(ConfigError, match=f"not '{name}': these are"):
            Settings.of(own_task(**{name: 1}))


def test_the_digits_are_learned_in_fifty_rounds(tmp_path: Path) -> None:
    row = do(Settings.of("digits-linear", aggregator="fedavg"), tmp_path)
    assert (row["rounds"], row["devices"]) == (50, 20)
    assert row["test_accuracy"] > 0.9
    robust = Settings.of("digits-linear", corruption="omniscient", rho=0.25)
    assert do(robust, tmp_path)["test_accuracy"] > 0.85
    broken = Settings.of("digits-linear", aggregator="fedavg", corruption="omniscient", rho=0.25)
    assert do(broken, tmp_path)["test_accuracy"] < 0.5


@pytest.mark.parametrize(
    "partition", ["dirichlet:alpha=0.5", "pathological:classes=2", "size:law=linear"]
)
def test_a_run_has_as_many_devices_as_it_asks_for(tmp_path: Path, partition: str) -> None:
    pytest.importorskip("flwr_datasets")
    given = {"partition": partition, "devices": 12, "devices_per_round": 5, "rounds": 2}
    row = do(Settings.of("digits-linear", **given), tmp_path)
    assert row["devices"] == 12
    too_many = Settings.of("digits-linear", **given | {"devices": 2000})
    with pytest.raises(InvalidValueError, match="devices must be from 1 to 898"):
        do(too_many, tmp_path)


def test_the_seed_of_a_run_does_not_change_who_has_what() -> None:
    pytest.importorskip("flwr_datasets")
    task = TASKS["digits-linear"]
    names = {"partition": "dirichlet:alpha=0.5", "devices": 10, "devices_per_round": 5}
    first, other = (
        Devices(settings, task, task.load(partition=settings.training.partition, devices=10))
        for settings in (Settings.of("digits-linear", seed=seed, **names) for seed in (1, 2))
    )
    np.testing.assert_array_equal(first.weights, other.weights)
    assert (first.initial() != other.initial()).any()


class TestOwnData:
    def test_a_run_with_workers_and_in_other_processes(self, tmp_path: Path) -> None:
        task = own_task()
        settings = Settings.of(task)
        row = do(settings, tmp_path / "a")
        assert row["devices"] == 8
        assert row["test_accuracy"] > 0.8
        options = Options(tmp_path / "b")
        runs = [settings, settings.replace(partition="dirichlet:alpha=1", seed=2)]
        pytest.importorskip("flwr_datasets")
        assert do_work(plan_work(runs, options), options, SweepNotes()) == {}
        assert plan_work(runs, options).todo == []

    def test_a_module_of_one_s_own(self, tmp_path: Path) -> None:
        torch: Any = pytest.importorskip("torch")
        task = own_task(module=lambda: torch.nn.Linear(4, 4))
        rows = [do(Settings.of(task, aggregator="fedavg"), tmp_path / out) for out in "ab"]
        assert rows[0]["test_accuracy"] > 0.8
        assert rows[0]["model_sha256"] == rows[1]["model_sha256"]

    def test_other_data_is_another_run(self) -> None:
        first = Settings.of(own_task())
        again = Settings.of(own_task())
        other = Settings.of(Task.from_dataset((X + 1, Y), name="four", module="linear", devices=8))
        assert first.run_name == again.run_name
        assert other.run_name != first.run_name

    def test_a_corruption_that_it_does_not_have(self) -> None:
        Settings.of(own_task(), corruption="label-flip", rho=0.1)
        Settings.of(own_task(), corruption="adaptive", rho=0.1)
        with pytest.raises(NoSuchAttackError, match="this task has no 'data'"):
            Settings.of(own_task(), corruption="data", rho=0.1)


class SweepNotes:
    """Told nothing."""

    def on_begin(self, settings: Settings) -> None: ...
    def on_progress(self, settings: Settings, done: float) -> None: ...
    def on_end(self, settings: Settings, problem: str) -> None: ...


def test_fresh_reads_the_data_anew(tmp_path: Path, cache: Path) -> None:
    arguments = ["run", "digits-linear", "--rounds", "2", "--workers", "1", "--json"]
    arguments += ["--out", str(tmp_path / "out")]
    first = CliRunner().invoke(main, arguments)
    (entry,) = cache.glob("digits-*")
    labels = np.load(entry / "y.npy")
    np.save(entry / "y.npy", np.zeros_like(labels))
    fresh = CliRunner().invoke(main, [*arguments, "--fresh"])
    assert fresh.exit_code == 0
    np.testing.assert_array_equal(np.load(entry / "y.npy"), labels)
    models = [json.loads(done.stdout)["model_sha256"] for done in (first, fresh)]
    assert models[0] == models[1]
