"""A trained model, loaded: it answers as the run did, and survives a file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rfa.errors import InvalidValueError
from rfa.lab.datasets.cache import load
from rfa.lab.errors import LabError
from rfa.lab.learners.learner import Learner
from rfa.lab.learners.linear import LinearLearner
from rfa.lab.learners.network import NetworkLearner
from rfa.lab.model import Model, ModelError, load_model
from rfa.lab.runs.checkpoint import CheckpointError
from rfa.lab.runs.store import Store, StoreError
from rfa.lab.settings.settings import Settings
from rfa.lab.tasks.registry import find_task
from rfa.lab.tasks.task import Task
from rfa.lab.training.devices import Devices
from tests import tiny
from tests.lab.runs.test_run import Notes, do

SMALL = {"devices": 12, "devices_per_round": 6, "rounds": 3, "eval_every": 2}


def held_out(task: str, **values: Any) -> list[tuple[Any, Any]]:
    """The test examples of each device, and their classes."""
    described = find_task(task)
    population = load(described.reader, None)
    devices = Devices(Settings.of(task, **values), described, population)
    spans = zip(devices.trains, devices.stops, strict=True)
    return [(population.x[a:b], np.asarray(population.y[a:b])) for a, b in spans]


@pytest.mark.parametrize(
    ("task", "values"),
    [
        ("tests.tiny:TASK", {"corruption": "omniscient", "rho": 0.2}),
        ("glyphs-linear", SMALL),
        ("glyphs-convnet", SMALL | {"devices": 4, "devices_per_round": 2, "rounds": 1}),
    ],
)
def test_a_loaded_model_has_the_accuracy_that_the_store_has(
    tmp_path: Path, task: str, values: dict[str, Any]
) -> None:
    if task == "glyphs-convnet":
        pytest.importorskip("torch")
    row = do(tmp_path, task=task, **values)
    model = load_model(row["run"][-6:], tmp_path)
    examples = held_out(task, **values)
    right = sum(int((model.predict(x) == y).sum()) for x, y in examples)
    count = sum(len(y) for _, y in examples)
    assert right == round(row["test_accuracy"] * count)
    assert row["test_accuracy"] == pytest.approx(right / count, rel=1e-12)
    assert (model.run, model.round, model.device) == (row["run"], row["rounds"], None)
    assert model.sha256 == row["model_sha256"]
    with Store(tmp_path) as store:
        (*_, last) = store.table("evaluations", run=row["run"])
    accuracies = [round(model.accuracy(x, y), 6) for x, y in examples]
    assert accuracies == json.loads(last["device_accuracy"])


def test_an_interrupted_run_has_the_model_of_its_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        do(tmp_path, Notes(8), checkpoint_every=5)
    model = load_model("tests.tiny", tmp_path)
    assert model.round == 5
    whole = do(tmp_path / "whole", rounds=5)
    assert model.sha256 == whole["model_sha256"]


def test_a_device_of_a_personalized_run_has_its_own_model(tmp_path: Path) -> None:
    row = do(tmp_path, personalize=True, rounds=2, devices_per_round=4)
    shared = load_model(row["run"], tmp_path)
    with Store(tmp_path) as store:
        (*_, last) = store.table("evaluations", run=row["run"])
        rounds = store.table("rounds", run=row["run"])
    took_part = {device for each in rounds for device in json.loads(each["devices"])}
    accuracies = json.loads(last["device_accuracy"])
    for device, (x, y) in enumerate(held_out("tests.tiny:TASK")):
        model = load_model(row["run"], tmp_path, device=device)
        assert round(model.accuracy(x, y), 6) == accuracies[device]
        same = np.array_equal(model.parameters, shared.parameters)
        assert same is (device not in took_part)
    for device in (-1, 24):
        with pytest.raises(InvalidValueError, match=rf"device={device}: there are devices 0 to 23"):
            load_model(row["run"], tmp_path, device=device)
    (path,) = tmp_path.glob("*/personal.f32")
    before = path.read_bytes()
    path.write_bytes(before[:-4])
    with pytest.raises(ModelError, match=r"personal\.f32 are not complete: .*--fresh"):
        load_model(row["run"], tmp_path, device=3)
    assert path.stat().st_size == len(before) - 4


def test_what_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there are no results in"):
        load_model("x", tmp_path)
    rows = [do(tmp_path, rounds=1, seed=seed) for seed in (1, 2)]
    with pytest.raises(InvalidValueError, match="no run matches 'x'"):
        load_model("x", str(tmp_path))
    with pytest.raises(InvalidValueError, match="2 runs match 'tests'"):
        load_model("tests", tmp_path)
    with pytest.raises(InvalidValueError, match="keeps no personal parameters here"):
        load_model(rows[0]["run"], tmp_path, device=3)
    momentum = do(tmp_path, rounds=1, devices_per_round=24, worker_momentum=0.5)
    with pytest.raises(InvalidValueError, match="keeps no personal parameters here"):
        load_model(momentum["run"], tmp_path, device=3)
    first, second = (tmp_path / row["run"] / "checkpoint.npz" for row in rows)
    first.write_bytes(first.read_bytes()[:200])
    second.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_model(rows[0]["run"], tmp_path)
    with pytest.raises(ModelError, match="has no checkpoint in"):
        load_model(rows[1]["run"], tmp_path)


def task_with(learner: Learner) -> Task:
    def make(_: str) -> Learner:
        return learner

    return dataclasses.replace(tiny.TASK, learner=make)


def a_model(**changes: Any) -> Model:
    parameters = np.random.default_rng(1).standard_normal(90).astype(np.float32)
    return dataclasses.replace(Model(parameters, tiny.TASK, "a.run", 7), **changes)


def test_a_model_survives_a_file(tmp_path: Path) -> None:
    model = a_model(device=3)
    model.save(tmp_path / "deep" / "model.npz")
    again = Model.load(tmp_path / "deep" / "model.npz")
    assert again.parameters.tobytes() == model.parameters.tobytes()
    assert (again.task, again.run, again.round, again.device) == (tiny.TASK, "a.run", 7, 3)
    other = dataclasses.replace(tiny.TASK, title="mine")
    assert Model.load(str(tmp_path / "deep" / "model.npz"), task=other).task is other


def test_files_that_are_no_models_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    a_model().save(path)
    good = path.read_bytes()
    for content in (b"", b"nothing", good[:-30], good[:300]):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=r"m\.npz cannot be read as a model"):
            Model.load(path)
    path.write_bytes(good)
    with np.load(path) as kept:
        arrays = dict(kept)
    np.savez(path, parameters=arrays["parameters"] + 1, about=arrays["about"])
    with pytest.raises(ModelError, match="are not those that were saved"):
        Model.load(path)
    np.savez(path, parameters=arrays["parameters"], about=np.array("[]"))
    with pytest.raises(ModelError, match="cannot be read as a model"):
        Model.load(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"x\.npz cannot be written"):
        a_model().save(tmp_path / "file" / "x.npz")


def test_parameters_are_a_copy_that_fits_the_task() -> None:
    vector = np.ones(90, np.float32)
    model = a_model(parameters=vector)
    vector[0] = 5
    assert model.parameters[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        model.parameters[0] = 5
    with pytest.raises(InvalidValueError, match=r"has 90 parameters, not .*\(89,\)"):
        a_model(parameters=vector[1:])


def test_examples_are_as_the_data_set_keeps_them() -> None:
    task = find_task("glyphs-linear")
    model = Model(np.ones(task.learner("cpu").dim, np.float32), task)
    pixels = np.full((2, 784), 255, np.uint8)
    assert model.scores(pixels)[0, 0] == pytest.approx(784)
    assert model.scores(pixels.tolist()).tolist() == model.scores(pixels).tolist()
    assert model.predict(pixels[:0]).shape == (0,)
    for wrong in (pixels[0], pixels / 255, pixels[:, :5]):
        with pytest.raises(InvalidValueError, match=r"keeps them, uint8 of shape \(n, 784\)"):
            model.scores(wrong)
    with pytest.raises(InvalidValueError, match=r"2 examples, and classes of shape \(3,\)"):
        model.accuracy(pixels, [1, 2, 3])
    with pytest.raises(InvalidValueError, match="there are 0 examples"):
        model.accuracy(pixels[:0], [])


@pytest.mark.parametrize("binary", [False, True])
def test_a_linear_model_is_a_torch_module_too(binary: bool) -> None:
    torch: Any = pytest.importorskip("torch")
    learner = LinearLearner(30, 2, binary=binary)
    task = task_with(learner)
    rng = np.random.default_rng(2)
    model = Model(rng.standard_normal(learner.dim).astype(np.float32), task)
    x = rng.standard_normal((5, 30)).astype(np.float32)
    with torch.no_grad():
        scores = model.module()(torch.from_numpy(x)).numpy()
    assert scores == pytest.approx(model.scores(x), abs=1e-5)


def test_the_module_of_a_network_is_a_copy() -> None:
    torch: Any = pytest.importorskip("torch")
    task = task_with(
        NetworkLearner(
            lambda t: t.nn.Sequential(t.nn.Linear(30, 4), t.nn.Tanh(), t.nn.Linear(4, 3)), 3
        )
    )
    rng = np.random.default_rng(2)
    model = Model(rng.standard_normal(30 * 4 + 4 + 4 * 3 + 3).astype(np.float32), task)
    x = rng.standard_normal((5, 30)).astype(np.float32)
    before = model.scores(x)
    module = model.module()
    with torch.no_grad():
        assert module(torch.from_numpy(x)).numpy() == pytest.approx(before, abs=1e-6)
        for parameter in module.parameters():
            parameter.zero_()
    assert not module.training
    assert model.scores(x).tolist() == before.tolist()


def test_a_model_without_a_module_says_so() -> None:
    class Plain(Learner):
        dim, classes = 90, 3

        def initial(self, rng: Any) -> Any: ...

        def train(self, start: Any, x: Any, y: Any, plan: Any) -> Any: ...

        def scores(self, w: Any, x: Any) -> Any: ...

    task = task_with(Plain())
    with pytest.raises(LabError, match="Plain has no torch module"):
        a_model(task=task).module()
